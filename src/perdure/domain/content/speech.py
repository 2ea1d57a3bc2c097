"""Says which words of an answer are read aloud."""

from typing import Final

# Servers that speak OpenAI's wire take at most 4,096 characters at a time.
SPOKEN_MAX: Final = 4_000
# How people are shown the file of a recording, and its type.
SPEECH_NAME: Final = "answer.ogg"
SPEECH_MIME: Final = "audio/ogg"
_ENDS: Final = (". ", "! ", "? ", ".\n", "!\n", "?\n", "。", "！", "？")  # noqa: RUF001 - any language


def words_to_speak(answer: str) -> str:
    """Return the words of an answer in Markdown that are read aloud: without code, tables and
    addresses, and not more than a server takes. Returns an empty string if no words are left."""
    # Imported here: the parser takes a while to import, and most gateways never speak.
    from perdure.domain.markdown.parse import parse  # noqa: PLC0415
    from perdure.domain.markdown.spoken import to_spoken  # noqa: PLC0415

    words = to_spoken(parse(answer)).strip()
    if len(words) > SPOKEN_MAX:
        words = _first_sentences(words[:SPOKEN_MAX])
    return words if any(char.isalnum() for char in words) else ""


def _first_sentences(words: str) -> str:
    """Return as many whole sentences as there are, or whole words if there is no sentence."""
    ends = [at + len(end) for end in _ENDS if (at := words.rfind(end)) >= 0]
    cut = max(ends, default=words.rfind(" "))
    return words[:cut].strip() if cut > 0 else words
