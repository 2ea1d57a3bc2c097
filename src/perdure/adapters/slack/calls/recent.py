"""Keeps a bounded number of recent values. A forgotten value costs a request, never a message."""

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Maps keys to values, and forgets the least recently set ones beyond `count_max`."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._kept: OrderedDict[str, Value] = OrderedDict()

    def __setitem__(self, key: str, value: Value) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > self._count_max:
            self._kept.popitem(last=False)

    def __getitem__(self, key: str) -> Value:
        return self._kept[key]

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def get(self, key: str) -> Value | None:
        return self._kept.get(key)
