"""A section of the configuration, and what makes a platform of it."""

import json
from collections.abc import Callable

from perdure.ports.platform.adapter import Platform

MakePlatform = Callable[[str], Platform]


def section(heading: str, **values: str | bool | list[str]) -> str:
    """JSON's texts, lists and truths are TOML's as well."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([f"[{heading}]", *lines, ""])
