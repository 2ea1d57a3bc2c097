"""Checks in which encodings text files are read, as people have them."""

import codecs
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.app.reading.reading_child import reading_of
from perdure.app.reading.text_guessing import guessed_encoding
from perdure.domain.reading.encodings import UTF_8, encoding_of
from perdure.domain.reading.kinds import HEAD_BYTES, UNKNOWN, kind_of
from perdure.domain.reading.texts import decoded_text

GERMAN = "Grüße aus München. Die Straße ist schön, und der Kaffee heiß.\n"
FRENCH = "Le café est fermé à midi, mais le garçon a préparé la crème brûlée.\n"
QUOTES = "“Smart quotes” – and a dash… it’s €5\n"  # noqa: RUF001 - what Windows-1252 has beyond Latin-1
RUSSIAN = "Привет, как дела? Сегодня хорошая погода, и мы идём гулять.\n"
JAPANESE = "これは日本語のテキストです。今日は天気がいいですね。\n"
CHINESE = "这是一个中文文本。今天天气很好,我们去公园吧。\n"
TRADITIONAL = "這是一個中文文本。今天天氣很好,我們去公園吧。\n"
KOREAN = "이것은 한국어 텍스트입니다. 오늘 날씨가 좋네요.\n"
POLISH = "Zażółć gęślą jaźń. Dziś jest piękny dzień, idziemy na spacer.\n"
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy.\n"
GREEK = "Καλημέρα, τι κάνετε; Σήμερα έχει ωραίο καιρό.\n"
TURKISH = "Bugün hava çok güzel, İstanbul'da yürüyüşe çıkıyoruz. Şişe ığdır\n"  # noqa: RUF001 - a letter of its own
ARABIC = "مرحبا بالعالم، كيف حالك اليوم؟ الطقس جميل.\n"
TABLE = "Name;Ort;Größe\nMüller;Zürich;1,80\nMeier;Bern;1,75\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GERMAN, "latin-1"),
        ("Grüße aus München", "latin-1"),
        ("café", "latin-1"),
        (TABLE, "latin-1"),
        (FRENCH, "latin-1"),
        (QUOTES, "cp1252"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        ("Привет, мир", "koi8-r"),
        (RUSSIAN, "cp866"),
        (RUSSIAN, "iso8859-5"),
        (JAPANESE, "shift_jis"),
        ("日本語", "shift_jis"),
        (JAPANESE, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
        (CHINESE, "gb18030"),
        (TRADITIONAL, "big5"),
        (KOREAN, "euc_kr"),
        (POLISH, "cp1250"),
        (POLISH, "iso8859-2"),
        (CZECH, "cp1250"),
        (GREEK, "iso8859-7"),
        (TURKISH, "iso8859-9"),
        (ARABIC, "cp1256"),
    ],
)
def test_text_in_an_older_encoding_is_read(text: str, encoding: str) -> None:
    data = text.encode(encoding)

    assert kind_of(data[:HEAD_BYTES], name="notes.txt", declared="text/plain") == "text/plain"
    assert reading_of(data, "text/plain").text == text


@pytest.mark.parametrize("text", [GERMAN, FRENCH, RUSSIAN, JAPANESE, KOREAN, TABLE])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_unicode_is_read_with_and_without_a_mark(text: str, encoding: str) -> None:
    data = text.encode(encoding)

    assert kind_of(data[:HEAD_BYTES]) == "text/plain"
    assert decoded_text(data) == text
    assert encoding_of(data), "nothing has to be guessed"


def test_a_mark_of_the_other_order_is_read_too() -> None:
    assert decoded_text(codecs.BOM_UTF16_BE + GERMAN.encode("utf-16-be")) == GERMAN
    assert decoded_text(codecs.BOM_UTF32_BE + GERMAN.encode("utf-32-be")) == GERMAN


def test_a_letter_far_behind_plain_lines_decides() -> None:
    data = (b"a plain line of ASCII\n" * 10_000) + RUSSIAN.encode("koi8-r")

    assert reading_of(data[-90_000:], "text/plain").text.endswith(RUSSIAN)


def test_damaged_utf_8_stays_utf_8() -> None:
    data = GERMAN.encode() + b"\xff" + GERMAN.encode()

    assert encoding_of(data) == UTF_8
    assert decoded_text(data) == f"{GERMAN}\ufffd{GERMAN}"


def test_what_a_document_states_of_itself_is_believed_if_it_can_be_true() -> None:
    page = '<html><meta charset="koi8-r"><p>да</p></html>'.encode("koi8-r")
    lies = '<html><meta charset="ascii"><p>Привет, как дела?</p></html>'.encode()
    table = '<?xml version="1.0" encoding="ISO-8859-2"?><a>gęś</a>'.encode("iso-8859-2")

    assert reading_of(page, "text/html").text == "да"
    assert reading_of(lies, "text/html").text == "Привет, как дела?"
    assert "gęś" in reading_of(table, "application/xml").text


def test_binary_files_are_not_taken_for_text() -> None:
    assert kind_of(bytes(range(256)) * 4) == UNKNOWN
    assert kind_of(b"\xff\xfe\x00\xd8" + bytes(range(200)), declared="text/plain") == UNKNOWN
    assert kind_of(b"\x9f\xe3\xc1\x88", name="key.bin") == UNKNOWN


def test_a_large_file_is_guessed_from_a_sample() -> None:
    data = GERMAN.encode("latin-1") * 50_000
    began = time.monotonic()

    assert data.decode(guessed_encoding(data)).startswith(GERMAN)
    assert time.monotonic() - began < 5


@given(st.binary(max_size=300))
def test_any_bytes_are_read_as_something(data: bytes) -> None:
    reading = reading_of(data, "text/plain")
    assert reading.text or reading.problem
