"""Defines what all events have in common."""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True):
    v: int = 1
