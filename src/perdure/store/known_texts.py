"""Which texts are stored already, as far as this process knows."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from perdure.domain.prompt.prefix import KeptText

KNOWN_MAX: Final = 1024


class KnownTexts:
    """Remembers which texts are stored, so that most turns need not ask: those used last, and no
    more than `KNOWN_MAX`. What falls out is only offered to the store once more."""

    def __init__(self) -> None:
        self._keys: OrderedDict[tuple[object, ...], None] = OrderedDict()

    def unknown(self, texts: Sequence[KeptText]) -> tuple[KeptText, ...]:
        """Return those that may not be stored yet."""
        return tuple(text for text in texts if not self._is_known(text))

    def _is_known(self, text: KeptText) -> bool:
        if text.key not in self._keys:
            return False
        self._keys.move_to_end(text.key)
        return True

    def learn(self, texts: Sequence[KeptText]) -> None:
        """Take note of texts whose transaction has committed."""
        for text in texts:
            self._keys[text.key] = None
        while len(self._keys) > KNOWN_MAX:
            self._keys.popitem(last=False)
