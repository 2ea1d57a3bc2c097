"""Names the occasions on which hooks run, and says what a hook is told.

A hook is a program or a function of the operator's. It hears that something has happened, and
decides nothing: whatever becomes of it, no turn and no message changes.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.ids import NodeId, PartId, SessionId, TurnId
from perdure.domain.journal.events import AnyEvent, AssistantSaid, Recorded, TurnStarted
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived
from perdure.domain.journal.session_events import (
    CommandTaken,
    Compacted,
    SessionClosed,
    SessionOpened,
)
from perdure.domain.outcomes import QuestionKind
from perdure.domain.tools.asking import ALLOW, DENY

# The reasons with which a person leaves a session for an empty one.
_RESETS: Final = ("new", "reset")
_VERDICTS: Final = (ALLOW, DENY)
ASKED: Final = "asked"


class Occasion(StrEnum):
    """Names what a hook may hear of. The name of a hook's folder is one of these.

    TURN_SETTLED and DELIVERY come from rows that are written with the facts, so a hook hears of
    each at least once, also after a kill. The others are told at most once.
    """

    STARTED = "started"
    STOPPING = "stopping"
    SESSION_OPENED = "session_opened"
    SESSION_CLOSED = "session_closed"
    SESSION_RESET = "session_reset"
    SESSION_COMPACTED = "session_compacted"
    TURN_STARTED = "turn_started"
    TURN_STEP = "turn_step"
    TURN_SETTLED = "turn_settled"
    COMMAND = "command"
    DELIVERY = "delivery"
    APPROVAL = "approval"
    ADAPTER_UP = "adapter_up"
    ADAPTER_DOWN = "adapter_down"

    @property
    def is_stored(self) -> bool:
        """Tell whether this occasion is a row until its hooks have heard of it."""
        return self in STORED


STORED: Final = (Occasion.TURN_SETTLED, Occasion.DELIVERY)


class HookCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds what a hook is told, as one JSON object. `at` is in milliseconds of UTC. `conversation`
    is its name or address, as in the API. For a delivery `outcome` is the state of the part, and
    `reason` its error."""

    event: Occasion
    at: int
    node: NodeId
    conversation: str = ""
    session: SessionId | str = ""
    turn: TurnId | str = ""
    outcome: str = ""
    reason: str = ""
    part: PartId | str = ""
    adapter: str = ""


def calls_about(recorded: Recorded, node: NodeId) -> tuple[HookCall, ...]:
    """Return what hooks are told about an event of a journal. The settlement of a turn is not among
    it, because that comes from its row."""
    return tuple(
        HookCall(
            event=occasion,
            at=recorded.at,
            node=node,
            session=recorded.session,
            turn=recorded.turn or "",
            reason=reason,
        )
        for occasion, reason in _heard_in(recorded.event)
    )


def _heard_in(event: AnyEvent) -> Sequence[tuple[Occasion, str]]:
    """Return the occasions that an event stands for, each with its reason."""
    heard: Sequence[tuple[Occasion, str]] = ()
    match event:
        case SessionOpened(kind="", reason=reason):
            heard = [(Occasion.SESSION_OPENED, reason)]
        case SessionClosed(reason=reason) if reason in _RESETS:
            heard = [(Occasion.SESSION_CLOSED, reason), (Occasion.SESSION_RESET, reason)]
        case SessionClosed(reason=reason):
            heard = [(Occasion.SESSION_CLOSED, reason)]
        case Compacted():
            heard = [(Occasion.SESSION_COMPACTED, "")]
        case TurnStarted():
            heard = [(Occasion.TURN_STARTED, "")]
        case AssistantSaid():
            heard = [(Occasion.TURN_STEP, "")]
        case CommandTaken(command=command):
            heard = [(Occasion.COMMAND, command)]
        case AnswerAwaited(kind=QuestionKind.APPROVAL):
            heard = [(Occasion.APPROVAL, ASKED)]
        # What people answer to other questions is theirs, and no hook is told.
        case AnswerReceived(by=by, answer=answer, reason=why) if by is None or answer in _VERDICTS:
            heard = [(Occasion.APPROVAL, answer or why)]
        case _:
            pass
    return heard
