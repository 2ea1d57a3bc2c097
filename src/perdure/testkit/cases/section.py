"""Writes a section of the configuration, and names the function that makes a platform from it."""

import json
from collections.abc import Callable

from perdure.ports.platform.adapter import Platform

MakePlatform = Callable[[str], Platform]


def section(heading: str, **values: str | bool | list[str]) -> str:
    """Return a section in TOML. JSON writes strings, lists and booleans in the same way."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([f"[{heading}]", *lines, ""])
