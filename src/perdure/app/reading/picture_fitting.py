"""Makes pictures fit for models, with Pillow. This module is imported only by the process that
reads documents.

A picture becomes upright, loses its second and later frames, and gets smaller until both its sides
and its bytes are small enough. What has few colours or is partly transparent stays a PNG if that is
small enough; everything else becomes a JPEG. What the picture says of its place and its camera is
left out.
"""

import io
from typing import Final

import pillow_heif
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    IcoImagePlugin,
    Image,
    ImageOps,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from perdure.domain.reading.pictures import BYTES_MAX, SIDE_MAX
from perdure.domain.reading.texts import UnreadableFile

# A larger picture takes more memory than this process may have.
POINTS_MAX: Final = 100_000_000
DAMAGED: Final = "the picture is damaged, or in a format that cannot be read here"
# Only these are tried, whatever else Pillow reads: some of its formats start other programs.
_DRAWN: Final = (
    PngImagePlugin.PngImageFile.format,
    GifImagePlugin.GifImageFile.format,
    BmpImagePlugin.BmpImageFile.format,
    IcoImagePlugin.IcoImageFile.format,
)
_FORMATS: Final = (
    *_DRAWN,
    JpegImagePlugin.JpegImageFile.format,
    WebPImagePlugin.WebPImageFile.format,
    TiffImagePlugin.TiffImageFile.format,
    Jpeg2KImagePlugin.Jpeg2KImageFile.format,
    AvifImagePlugin.AvifImageFile.format,
    "HEIF",
)
_QUALITIES: Final = (88, 75, 60)
_SMALLER: Final = 0.7
_WHITE: Final = (255, 255, 255)


def fitted(data: bytes) -> bytes:
    """Return a picture as models take it. Raises `UnreadableFile` with the reason if it cannot be
    read."""
    pillow_heif.register_heif_opener(decode_threads=2)
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # each thread may reserve memory of its own
    Image.MAX_IMAGE_PIXELS = None  # checked below, with words for people
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
            return _made(picture)
    except MemoryError as error:
        raise UnreadableFile(
            "the picture is too large to be read here; send a smaller one"
        ) from error
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError) as error:
        raise UnreadableFile(DAMAGED) from error


def _made(picture: Image.Image) -> bytes:
    drawn = picture.format in _DRAWN
    # A JPEG can be decoded at an eighth of its size at least.
    picture.draft(None, (SIDE_MAX, SIDE_MAX))
    width, height = picture.size
    if width * height > POINTS_MAX:
        raise UnreadableFile(
            f"it has {width:,} by {height:,} points, which is too large to be read here; send a "
            "smaller one"
        )
    # Points of a palette cannot be mixed.
    mixed = _in_colours(picture) if picture.mode in ("1", "P", "PA") else picture
    mixed.thumbnail((SIDE_MAX, SIDE_MAX), reducing_gap=2.0)
    upright = _in_colours(ImageOps.exif_transpose(mixed))
    return _small_enough(upright, drawn=drawn)


def _in_colours(picture: Image.Image) -> Image.Image:
    """Return a picture in grey, in RGB, or in RGB with transparency."""
    if picture.mode.startswith("I"):  # 16 bits or more for each point
        return picture.point(lambda value: value * (1 / 256)).convert("L")
    if "A" in picture.mode or "transparency" in picture.info:
        return picture.convert("RGBA")
    return picture if picture.mode in ("L", "RGB") else picture.convert("RGB")


def _small_enough(picture: Image.Image, *, drawn: bool) -> bytes:
    """Return the bytes of a picture, made smaller until they are few enough."""
    has_alpha = picture.mode == "RGBA"
    if drawn or has_alpha:
        data = _saved(picture, "PNG", compress_level=6)
        if len(data) <= BYTES_MAX:
            return data
    if has_alpha:
        on_white = Image.new("RGB", picture.size, _WHITE)
        on_white.paste(picture, mask=picture.getchannel("A"))
        picture = on_white
    while True:
        for quality in _QUALITIES:
            data = _saved(picture, "JPEG", quality=quality)
            if len(data) <= BYTES_MAX:
                return data
        smaller = tuple(max(int(side * _SMALLER), 1) for side in picture.size)
        picture = picture.resize((smaller[0], smaller[1]))


def _saved(picture: Image.Image, form: str, **options: int) -> bytes:
    data = io.BytesIO()
    colours = picture.info.get("icc_profile") if picture.mode in ("RGB", "RGBA") else None
    picture.info.pop("exif", None)
    picture.save(data, form, icc_profile=colours, **options)
    return data.getvalue()
