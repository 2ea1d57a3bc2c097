"""Compares messages that carry no key with a part of unknown fate. Pure.

A stream gets its key only when it ends, and some servers store no keys. Such a message is the part
if it shows exactly what was sent, at about the time it was sent. Slack may rewrite a text, and its
clock is not ours, so a message that is only similar proves nothing, in either direction.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from perdure.adapters.slack.names import MessageName, file_receipt, has_mark
from perdure.adapters.slack.payloads import Message
from perdure.adapters.slack.render import caption, markdown
from perdure.adapters.slack.text.mentions import INVISIBLE
from perdure.adapters.slack.text.mrkdwn import escaped, mrkdwn
from perdure.adapters.slack.text.reading import read
from perdure.ports.platform.adapter import Sought

# How far Slack's time of a message may be from our time of the attempt: the clocks differ, and a
# call takes a while.
TOLERANCE_S: Final = 120.0


class _ShownBlock(msgspec.Struct, frozen=True):
    type: str = ""
    text: object = None


class Shown(Message, frozen=True, kw_only=True):
    """Holds a message as the history shows it."""

    blocks: tuple[_ShownBlock, ...] | None = None


def is_of_another(message: Shown, sought: Sought) -> bool:
    """Tell whether a message certainly belongs to another part."""
    names = {MessageName(sought.address.place, message.ts).external_id}
    names.update(file_receipt(sought.address.place, file.id) for file in message.files or ())
    is_marked = any(has_mark(file.name or "") for file in message.files or ())
    is_other_kind = bool(message.files) and not sought.name
    return is_marked or is_other_kind or not names.isdisjoint(sought.owned)


def is_proven(message: Shown, sought: Sought) -> bool:
    """Tell whether a message certainly is the part, if no other one fits as well."""
    return is_same(message, sought) and sought.tried_at > 0 and _is_timely(message, sought)


def is_possible(message: Shown, sought: Sought, *, keeps_keys: bool) -> bool:
    """Tell whether a message may be the part without proof.

    If this place stores keys, a finished post without a key is not ours.
    """
    if is_same(message, sought):
        return True
    if sought.tried_at > 0 and not _is_timely(message, sought):
        return False
    has_no_key_yet = bool(message.files) if sought.name else bool(message.streaming_state)
    return has_no_key_yet or not keeps_keys


def is_same(message: Shown, sought: Sought) -> bool:
    """Tell whether a message shows exactly what was sent."""
    if sought.name:
        names = {name for file in message.files or () for name in (file.title, file.name)}
        return sought.name in names and not _said(message).isdisjoint(_sent(sought))
    return bool(sought.text) and not _said(message).isdisjoint(_sent(sought))


def _is_timely(message: Shown, sought: Sought) -> bool:
    try:
        return abs(float(message.ts) - sought.tried_at / 1000) <= TOLERANCE_S
    except ValueError:
        return False


def _said(message: Shown) -> set[str]:
    """Return the text of a message, both as it is and read by Slack's rules. If its blocks hold the
    text, the text beside them is for notifications and may be cut."""
    whole = "\n".join(_in_blocks(message.blocks or ())) or message.text or ""
    return {_bare(whole), _bare(read(whole, bot="", names={}))}


def _in_blocks(blocks: tuple[_ShownBlock, ...]) -> Iterator[str]:
    for block in blocks:
        match block:
            case _ShownBlock("markdown", str(text)) | _ShownBlock("section", {"text": str(text)}):
                yield text
            case _:
                pass


def _sent(sought: Sought) -> set[str]:
    """Return the forms in which Slack may show what was sent."""
    if sought.name:
        return {_bare(read(caption(sought.text), bot="", names={}))}
    forms = (mrkdwn(sought.text), escaped(sought.text))
    read_by_slack = {_bare(read(form, bot="", names={})) for form in forms}
    return {_bare(markdown(sought.text)), *read_by_slack}


def _bare(text: str) -> str:
    """Return the text without invisible characters and with single spaces: Slack changes both."""
    return " ".join(text.replace(INVISIBLE, "").split())
