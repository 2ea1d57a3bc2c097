"""Keeps an agent's text from notifying people on Slack.

An invisible character breaks up everything that could become a mention. Where it is put depends
only on the characters right before and after that position. So the result for a longer text begins
with the result for a shorter one, and a stream can be given only the rest.
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
    """Return the text with an invisible character inside everything that could be a mention."""
    return _ADDRESSING.sub(INVISIBLE, text)
