"""Nothing that an agent writes calls people together.

What could address them is broken by a character that nobody sees. Where it goes depends on nothing
but the characters before and at it: so what a longer text becomes begins with what a shorter one
became, and a stream can be given the rest alone.
"""

import re
from typing import Final

INVISIBLE: Final = "\u200b"
_ADDRESSING: Final = re.compile(
    r"(?<=<!)(?=[a-ce-z])"  # <!channel>, <!subteam^S1>, but not <!doctype html>
    r"|(?<=<[@#])(?=\w)"  # <@U1>, <#C1>
    r"|(?<=@her)(?<!\w@her)(?=e)"  # @here, but not in an address
    r"|(?<=@channe)(?<!\w@channe)(?=l)"
    r"|(?<=@everyon)(?<!\w@everyon)(?=e)",
    re.IGNORECASE,
)


def unaddressed(text: str) -> str:
    return _ADDRESSING.sub(INVISIBLE, text)
