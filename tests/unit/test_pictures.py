"""Checks which pictures models take as they are, and how the others are made to fit."""

import io
import struct
import zlib
from typing import Any

import pillow_heif
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from perdure.app.reading import picture_fitting
from perdure.app.reading.reading_child import reading_of
from perdure.domain.reading.kinds import kind_of
from perdure.domain.reading.pictures import (
    BYTES_MAX,
    SIDE_MAX,
    fits,
    head_of,
    is_picture,
    needs_fitting,
)

pillow_heif.register_heif_opener()
TURNED = 6
ORIENTATION = 0x0112


def made(form: str, size: tuple[int, int] = (30, 20), mode: str = "RGB", **more: Any) -> bytes:
    """Return a picture whose left half is red."""
    picture = Image.new("RGB", size, "blue")
    picture.paste("red", (0, 0, size[0] // 2, size[1]))
    data = io.BytesIO()
    picture.convert(mode).save(data, form, **more)
    return data.getvalue()


def noisy(form: str, size: tuple[int, int], **more: Any) -> bytes:
    data = io.BytesIO()
    Image.effect_noise(size, 80).convert("RGB").save(data, form, **more)
    return data.getvalue()


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = TURNED
    return exif


def moving(form: str) -> bytes:
    frames = [Image.effect_noise((20, 20), 50).convert("RGB") for _ in range(3)]
    data = io.BytesIO()
    frames[0].save(data, form, save_all=True, append_images=frames[1:])
    return data.getvalue()


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (made("PNG"), "image/png"),
        (made("PNG", (SIDE_MAX, 20), "P"), "image/png"),
        (made("JPEG"), "image/jpeg"),
        (made("JPEG", progressive=True, comment=b"\xff" * 300), "image/jpeg"),
        (made("JPEG", mode="L"), "image/jpeg"),
        (made("GIF"), "image/gif"),
        (made("WEBP"), "image/webp"),
        (made("WEBP", lossless=True), "image/webp"),
    ],
)
def test_what_models_take_stays_as_it_is(data: bytes, mime: str) -> None:
    assert kind_of(data) == mime
    head = head_of(data, mime)
    assert head is not None
    assert (head.width, head.height) == opened(data).size
    assert fits(data, mime)
    assert not needs_fitting(data, mime)


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (made("PNG", (SIDE_MAX + 1, 20)), "image/png"),
        (made("JPEG", (20, 9_000)), "image/jpeg"),
        (made("WEBP", (5_000, 20)), "image/webp"),
        (made("WEBP", (5_000, 20), lossless=True), "image/webp"),
        (made("GIF", (5_000, 20)), "image/gif"),
        (noisy("PNG", (700, 700)), "image/png"),
        (made("JPEG", exif=turned()), "image/jpeg"),
        (made("WEBP", exif=turned()), "image/webp"),
        (made("PNG", exif=turned()), "image/png"),
        (made("JPEG", mode="CMYK"), "image/jpeg"),
        (moving("GIF"), "image/gif"),
        (moving("WEBP"), "image/webp"),
        (moving("PNG"), "image/png"),
        (made("HEIF", (300, 200)), "image/heic"),
        (made("AVIF", (300, 200)), "image/avif"),
        (made("TIFF"), "image/tiff"),
        (made("TIFF", mode="CMYK"), "image/tiff"),
        (made("BMP"), "image/bmp"),
        (made("JPEG2000"), "image/jp2"),
        (made("ICO", (64, 64)), "image/x-icon"),
    ],
)
def test_what_models_do_not_take_is_made_to_fit(data: bytes, mime: str) -> None:
    assert kind_of(data) == mime
    assert is_picture(mime)
    assert not fits(data, mime)
    assert needs_fitting(data, mime)

    reading = reading_of(data, mime)

    assert reading.problem == ""
    kind = kind_of(reading.picture)
    assert kind in ("image/png", "image/jpeg")
    assert fits(reading.picture, kind), "once is enough"
    assert opened(reading.picture).mode in ("L", "RGB", "RGBA")


@pytest.mark.parametrize("form", ["JPEG", "WEBP", "PNG", "TIFF"])
def test_a_picture_that_its_camera_has_turned_becomes_upright(form: str) -> None:
    upright = opened(picture_fitting.fitted(made(form, exif=turned())))

    assert upright.size == (20, 30)
    red, _, blue = upright.convert("RGB").getpixel((10, 3))  # type: ignore[misc]
    assert red > 200 > blue, "what was on the left is on top"
    assert ORIENTATION not in upright.getexif(), "nobody turns it again"


def test_what_a_picture_says_of_its_place_is_left_out() -> None:
    exif = turned()
    exif[0x010E] = "at home"
    assert b"at home" not in picture_fitting.fitted(made("JPEG", exif=exif))


def test_a_large_photograph_gets_few_bytes() -> None:
    data = noisy("JPEG", (5_000, 4_000), quality=95)
    small = picture_fitting.fitted(data)

    assert len(data) > 5 * BYTES_MAX
    assert len(small) <= BYTES_MAX
    assert opened(small).size == (2_000, 1_600)


def test_transparency_is_kept_or_becomes_white() -> None:
    clear = io.BytesIO()
    Image.new("RGBA", (3_000, 30), (0, 0, 0, 0)).save(clear, "PNG")
    assert opened(picture_fitting.fitted(clear.getvalue())).mode == "RGBA"

    noise = Image.effect_noise((1_500, 1_500), 90).convert("RGBA")
    noise.putalpha(Image.effect_noise((1_500, 1_500), 90))
    noise.paste((0, 0, 0, 0), (0, 0, 300, 300))
    heavy = io.BytesIO()
    noise.save(heavy, "PNG")
    white = opened(picture_fitting.fitted(heavy.getvalue()))
    assert white.mode == "RGB"
    assert min(white.getpixel((100, 100))) > 240  # type: ignore[arg-type]


def png_head(width: int, height: int) -> bytes:
    """Return a PNG that claims this size and holds almost nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1_000_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "mime", "words"),
    [
        (png_head(50_000, 50_000), "image/png", "50,000 by 50,000 points"),
        (png_head(5_000, 5_000)[:200], "image/png", "damaged"),
        (made("HEIF", (300, 200))[:300], "image/heic", "damaged"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "image/tiff", "damaged"),
        (b"", "image/tiff", "damaged"),
    ],
)
def test_what_cannot_be_made_to_fit_is_said(data: bytes, mime: str, words: str) -> None:
    reading = reading_of(data, mime)

    assert words in reading.problem
    assert reading.picture == b""


@pytest.mark.parametrize("mime", ["image/png", "image/jpeg", "image/gif", "image/webp"])
@given(data=st.binary(max_size=300))
def test_any_head_is_looked_at_without_an_error(mime: str, data: bytes) -> None:
    marks = {
        "image/png": b"\x89PNG\r\n\x1a\n",
        "image/jpeg": b"\xff\xd8",
        "image/gif": b"GIF89a",
        "image/webp": b"RIFF\0\0\0\0WEBPVP8X",
    }
    head_of(marks[mime] + data, mime)
    needs_fitting(data, mime)


def test_what_is_another_picture_than_its_sender_says_is_looked_at_again() -> None:
    assert needs_fitting(made("PNG"), "image/jpeg")
    assert not needs_fitting(b"no picture", "image/png")
    assert kind_of(b"BM is how this text begins") == "text/plain"
