"""Keeps secrets from being shown.

A secret prints as a mask wherever it ends up by accident: in a log line, a traceback, a dump of the
configuration. Code that needs the value must say `reveal`. A secret is neither a string nor a
struct, so encoders refuse it and cannot write it out.
"""

from typing import Final

_MASK: Final = "********"


class Secret:
    """Holds a value that prints as a mask."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return f"Secret({_MASK})"

    def __str__(self) -> str:
        return _MASK

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not serialised; pass its reveal() where it is needed")
