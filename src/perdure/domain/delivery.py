"""Plans how a reply becomes parts, and says what may be done with a part that could not be sent.

pending ──▶ attempting ──▶ sent
   ▲            │─────────▶ unknown   it may have arrived: reconcile or show, never resend
   │            │─────────▶ failed    it will never arrive
   └────────────┘ (definite failure)  pending ──▶ expired

While a turn runs, its text is shown in bubbles. A bubble is a part like any other: its row is
written and marked as attempting before its first words are posted. The later changes of a bubble
have no rows, because they only show text that is durable already. The reply's own parts stand
behind the bubbles in the same line, and edit those bubbles that have a receipt.

On a platform whose messages can never be changed, the first parts of a reply go ahead of the rest:
each is sent as soon as no later text can change it. They are ordinary parts, and the reply goes on
where they end.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.markdown.units import TextUnit


class DeliveryStep(StrEnum):
    """Lists what a platform can be asked to do: show something, show it while it grows, change or
    take away what it shows, send a file, mark a message."""

    POST = "post"
    BUBBLE = "bubble"
    EDIT = "edit"
    DELETE = "delete"
    UPLOAD = "upload"
    REACT = "react"


class PartState(StrEnum):
    """Lists the states of a part. How they follow each other is drawn at the top of this file."""

    PENDING = "pending"
    ATTEMPTING = "attempting"
    SENT = "sent"
    UNKNOWN = "unknown"
    FAILED = "failed"
    EXPIRED = "expired"


# The states that may follow each state. A part in doubt stays attempting until its fate is known.
LEGAL: Final[Mapping[PartState, frozenset[PartState]]] = {
    PartState.PENDING: frozenset({PartState.ATTEMPTING, PartState.EXPIRED}),
    PartState.ATTEMPTING: frozenset(
        {PartState.SENT, PartState.PENDING, PartState.UNKNOWN, PartState.FAILED}
    ),
    PartState.UNKNOWN: frozenset({PartState.SENT, PartState.PENDING}),  # reconciled
    PartState.SENT: frozenset(),
    PartState.FAILED: frozenset({PartState.PENDING}),  # replayed by a person
    PartState.EXPIRED: frozenset({PartState.PENDING}),
}

# The mark on a message that waits, or that was handed to the running turn.
HEARD: Final = "👀"
# The error of a part that was not sent and never will be, because its turn was taken back.
WITHDRAWN: Final = "withdrawn"
# The words by which adapters promise another try in the text of an error.
_PROMISE: Final = " it is tried again"
# The receipt of a deletion, and of a step that left everything as it was.
GONE: Final = "gone"
KEPT: Final = "kept"

# Suffixes that make the message ids of what a turn sends from the turn's id.
REPLY: Final = ".reply"
BUBBLES: Final = ".bubbles"
AHEAD: Final = ".ahead"
DELETIONS: Final = ".deletions"

BACKOFF_S: Final = (1, 2, 5, 15, 60, 300)


class Streaming(StrEnum):
    """Lists how a platform can show an answer while it grows, best first. NATIVE: it takes text as
    it comes. DRAFT: a preview that leaves no message behind. EDIT: a message that is changed.
    APPEND: messages that are never changed, one after another. NONE: people see the answer when it
    is whole."""

    NATIVE = "native"
    DRAFT = "draft"
    EDIT = "edit"
    APPEND = "append"
    NONE = "none"


class Rate(msgspec.Struct, frozen=True):
    """Allows at most `count` requests in any `per_s` seconds."""

    count: int
    per_s: float


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the limits that a platform publishes. The waits that it names while we send come on
    top. The default rates are as good as unlimited."""

    account: Rate = Rate(1_000, 1)
    place: Rate = Rate(1_000, 1)
    # The least time between two previews of one bubble.
    preview_s: float = 1.0


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Describes what a place of a platform can do with a reply, as data for the planner."""

    takes_key: bool = False  # repeats under one idempotency key arrive once
    key_s: float = math.inf  # for how long a key is remembered there
    can_find: bool = False  # can be asked whether a key arrived
    can_edit: bool = False
    can_delete: bool = False  # can take away what it shows
    can_react: bool = False
    streaming: Streaming = Streaming.NONE
    ahead_min: int = 500  # the fewest characters of source that go ahead as a message
    text_max: int = 4096
    unit: TextUnit = TextUnit.CHARS
    typing_s: float = 0  # how long one typing signal lasts; 0: there is none
    choices_max: int = 0  # buttons under a message
    upload_bytes_max: int = 0  # 0: no files
    pace: Pace = Pace()


class Display(msgspec.Struct, frozen=True, kw_only=True):
    """Says how much of the work people want to see beside the answer."""

    has_stream: bool = True
    has_tools: bool = True  # which tools are at work, while they are
    has_reasoning: bool = True  # that the model thinks, while it says nothing
    has_footer: bool = False  # agent, time and tokens under each answer


def lowered(capabilities: Capabilities, unsupported: frozenset[Streaming]) -> Capabilities:
    """Return the capabilities with the next best way to stream if a server has said that it does
    not know the best one."""
    if capabilities.streaming not in unsupported:
        return capabilities
    fallback = Streaming.EDIT if capabilities.can_edit else Streaming.NONE
    streaming = Streaming.NONE if fallback in unsupported else fallback
    return msgspec.structs.replace(capabilities, streaming=streaming)


def plan_parts(
    text: str, capabilities: Capabilities, *, size: Callable[[str], int]
) -> tuple[str, ...]:
    """Return the Markdown of each part of a text, in order. `size` tells how long a text becomes in
    the platform's own form and unit."""
    if not text.strip():
        return ()
    if size(text) <= capabilities.text_max:
        return (text,)
    # Imported here: the parser takes a while to import, and most answers are short.
    from perdure.domain.markdown.split import split  # noqa: PLC0415

    return split(text, size=size, limit=capabilities.text_max)


def plan_reply(
    text: str, capabilities: Capabilities, *, size: Callable[[str], int]
) -> tuple[str, ...]:
    """Return the parts of a turn's whole text. The parts that may have gone ahead come first."""
    texts = _stretches(text, capabilities)
    return tuple(part for each in texts for part in plan_parts(each, capabilities, size=size))


def plan_ahead(
    text: str, capabilities: Capabilities, *, size: Callable[[str], int]
) -> tuple[str, ...]:
    """Return the parts that can go ahead of the rest. The plan of the reply begins with them,
    whatever text is added to this one."""
    *standing, _ = _stretches(text, capabilities)
    return tuple(part for each in standing for part in plan_parts(each, capabilities, size=size))


def _stretches(text: str, capabilities: Capabilities) -> tuple[str, ...]:
    """Split a text so that all stretches except the last stay the same when text is added. If the
    platform does not append messages, or the text is short, all of it is one stretch."""
    is_short = len(text) <= capabilities.ahead_min
    if capabilities.streaming is not Streaming.APPEND or is_short:
        return (text,)
    from perdure.domain.markdown.split import stretches  # noqa: PLC0415 - as above

    return stretches(text, least=capabilities.ahead_min)


def with_choices(
    text: str, choices: Sequence[str], capabilities: Capabilities, *, is_explained: bool = False
) -> str:
    """Return a text as it is posted: with the choices below it if there are not enough buttons for
    them, unless the text itself explains how it is answered."""
    is_offer = all(word.startswith("/") for word in choices)  # the text explains its commands
    if len(choices) <= capabilities.choices_max or is_offer or is_explained:
        return text
    return f"{text}\n\n(Answer: {' / '.join(choices)})"


def rest_of(text: str, ahead: Sequence[str]) -> str:
    """Return what is still to be sent of a text whose first parts went ahead."""
    end = 0
    for part in ahead:
        start = text.find(part, end)
        if start < 0:
            break
        end = start + len(part)
    return text[end:].strip()


def backoff_s(attempts: int) -> int:
    """Return how long to wait before the next try if the platform named no time itself."""
    return BACKOFF_S[min(max(attempts, 1), len(BACKOFF_S)) - 1]


def without_promise(error: str) -> str:
    """Return the text of an error without the promise that it is tried again, for a part that is
    not."""
    at = error.find(_PROMISE, error.rfind(";") + 1)
    if at < 0:
        return error
    return error[: at - 1] if error[:at].endswith((";", ",", ".")) else error[:at]


def too_late(error: str) -> str:
    """Return why a part is not tried any more, given the error of its last try. That error may
    promise another try; the promise is removed."""
    last = without_promise(error)
    lead = "it could not be delivered before `[delivery] expire_s`, so it is not tried any more"
    return f"{lead}; the last try said: {last}" if last else lead
