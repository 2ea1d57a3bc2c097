"""Names the buttons under a question, so that a press tells which question and which choice it is
about. Pure.

An adapter gives each button the data that `button_data` makes, and reads it with `press_in` when it
comes back. What comes back is not trusted: on some platforms a person's own client can send any
data in place of a button's.
"""

import re
from typing import Final

from perdure.domain.ids import QuestionId
from perdure.domain.inbound.arrivals import Press
from perdure.domain.markdown.units import TextUnit, cut

# An id of at most 40 characters, and a number of at most 99. All of it is ASCII, so it fits into
# the 64 bytes that Telegram allows. Other platforms allow more.
_DATA: Final = re.compile(r"(qst_[0-9A-Za-z_-]{1,36}):(0|[1-9][0-9]?)")


def button_data(question: QuestionId, choice: int) -> str:
    """Return the data of the button for a choice, such as `qst_01h…:0`."""
    data = f"{question}:{choice}"
    assert _DATA.fullmatch(data), f"{data!r} could not be read again"
    return data


def press_in(data: str | None) -> Press | None:
    """Return the press that the data of a button tells of, or None if it is no question's."""
    found = _DATA.fullmatch(data or "")
    return Press(question=QuestionId(found[1]), choice=int(found[2])) if found else None


def button_label(choice: str, number: int, limit: int) -> str:
    """Return what stands on a button: the text of the choice, cut to `limit` characters. Platforms
    refuse empty labels, so a choice of which nothing is left is named by its number, from 1."""
    return cut(choice.strip(), TextUnit.CHARS, limit).strip() or str(number + 1)
