"""Estimates how many tokens a text takes, if no provider has counted them.

Text is measured in UTF-8 bytes, which suits both alphabets and ideographs. An image counts as many
tokens as providers charge for one, not the length of its encoding.
"""

from typing import Final

_BYTES_PER_TOKEN: Final = 3.6
IMAGE_TOKENS: Final = 1_500
MESSAGE_TOKENS: Final = 4


def tokens_of(text: str) -> int:
    """Return about how many tokens a text takes."""
    size = len(text) if text.isascii() else len(text.encode())
    return int(size / _BYTES_PER_TOKEN) + 1
