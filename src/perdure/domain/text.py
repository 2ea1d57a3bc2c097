"""What text may hold.

PostgreSQL cannot store U+0000 and UTF-8 cannot carry lone surrogates; platforms and models send
both now and then. They are replaced once, at the edge, so that every later layer can trust text.
"""

from typing import Final

REPLACEMENT: Final = "\ufffd"
_ENDS: Final = (".", "?", "!", "…", "。", "？", "！")  # noqa: RUF001 - a model's server may write any


def storable(text: str) -> str:
    """The same text with what no store can hold replaced by U+FFFD."""
    if text.isascii():
        return text.replace("\x00", REPLACEMENT) if "\x00" in text else text
    return (
        text.encode("utf-16-le", "surrogatepass")
        .decode("utf-16-le", "replace")
        .replace("\x00", REPLACEMENT)
    )


def sentence(text: str) -> str:
    """Return a text with a full stop behind it, unless it ends with a mark of its own."""
    kept = text.rstrip()
    return kept if kept.endswith(_ENDS) else f"{kept}."


def one_line(text: str) -> str:
    """A name that anyone can choose, made harmless: it stays in its line and inside brackets of
    ours."""
    kept = "".join(c if c.isprintable() else " " for c in storable(text) if c not in "[]()")
    return " ".join(kept.split())
