"""How much a model reads, where no provider has counted it.

Text is measured in UTF-8 bytes, which fits both alphabets and ideographs; an image costs what
providers take for one, not the length of its encoding.
"""

from typing import Final

_BYTES_PER_TOKEN: Final = 3.6
IMAGE_TOKENS: Final = 1_500
MESSAGE_TOKENS: Final = 4


def tokens_of(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode())
    return int(size / _BYTES_PER_TOKEN) + 1
