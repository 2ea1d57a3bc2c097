"""Remembers which request texts this process knows to be stored."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from perdure.domain.prompt.prefix import KeptText

# Bounds the memory this takes. Only keys are kept, not the texts.
KNOWN_MAX: Final = 1024


class KnownTexts:
    """Remembers which texts are stored, so that most turns need not write them again. Keeps the
    `KNOWN_MAX` most recently used keys. Forgetting one, or a restart, is harmless: the text is
    written again and the database ignores the duplicate."""

    def __init__(self) -> None:
        self._keys: OrderedDict[tuple[object, ...], None] = OrderedDict()

    def unknown(self, texts: Sequence[KeptText]) -> tuple[KeptText, ...]:
        """Return the texts that may not be stored yet."""
        return tuple(text for text in texts if not self._is_known(text))

    def _is_known(self, text: KeptText) -> bool:
        if text.key not in self._keys:
            return False
        self._keys.move_to_end(text.key)
        return True

    def learn(self, texts: Sequence[KeptText]) -> None:
        """Remember that these texts are stored. Call it only after their transaction has
        committed."""
        for text in texts:
            self._keys[text.key] = None
        while len(self._keys) > KNOWN_MAX:
            self._keys.popitem(last=False)
