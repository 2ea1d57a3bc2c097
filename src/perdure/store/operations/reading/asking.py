"""Reads what is stored of a turn's last request, in one snapshot."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import ConversationId, PrincipalId, TurnId
from perdure.domain.journal.events import Recorded, TurnQueued, TurnStarted
from perdure.domain.journal.session_events import Compacted
from perdure.domain.prompt.prefix import Basis, read_basis
from perdure.domain.turn.rebuilding import StoredRequest, digests_of
from perdure.domain.turn.turn import State
from perdure.store.operations import journal, texts
from perdure.store.operations.reading import chains
from perdure.store.statement import Op, one

# Of longer requests, only the journal is shown: all of a request is in memory at once, three times.
ASKED_BYTES_MAX: Final = 32_000_000
# Reads what a turn's row says of its request, and who may own the texts of it.
_TURN = """
    SELECT t.prefix, t.state, t.principal_id, s.conversation_id
    FROM turns t JOIN sessions s ON s.id = t.session_id WHERE t.id = $1"""


class _Turn(NamedTuple):
    prefix: str
    state: str
    principal: PrincipalId
    conversation: ConversationId


def asked(turn: TurnId) -> Op[StoredRequest]:
    """Return what is stored of the last request of a turn. Raises `NotFound` with the reason if
    nothing is, and `Rejected` if it is too long to be shown."""
    found = yield from one(_Turn, _TURN, turn)
    if found is None:
        raise NotFound(f"there is no turn {turn}")
    if not found.prefix:
        raise NotFound(_why_none(turn, State(found.state)))
    basis = read_basis(found.prefix)
    if not basis.upto:
        raise NotFound(
            f"the request of turn {turn} cannot be made again: it was settled by a Perdure before "
            "version 0.19, which kept no texts"
        )
    size = yield from journal.size_of_turn(turn)
    _insist_on_room(turn, size)
    events = yield from journal.of_turn(turn)
    owners = (found.principal, found.conversation)
    queued = next(each.event for each in events if isinstance(each.event, TurnQueued))
    return StoredRequest(
        basis=basis,
        chain=(yield from _chain(basis, events, size)),
        turn=events,
        texts=(yield from texts.of(digests_of(basis, queued).values(), owners)),
    )


def _why_none(turn: TurnId, state: State) -> str:
    """Return why nothing is stored of a turn's request."""
    if state is not State.SETTLED:
        return f"turn {turn} is not over yet; its request is stored when it is"
    return (
        f"no request is stored of turn {turn}: no model was asked, or it was ended from outside "
        "before the model had said anything"
    )


def _insist_on_room(turn: TurnId, size: int) -> None:
    """Raise `Rejected` if a request made from so many bytes of the journal is too long."""
    if size > ASKED_BYTES_MAX:
        raise Rejected(
            f"the request of turn {turn} was made from {size:,} bytes, and no more than "
            f"{ASKED_BYTES_MAX:,} are shown at once; read the journal of its session page by page",
            code="request_too_long",
        )


def _chain(basis: Basis, turn: Sequence[Recorded], size: int) -> Op[list[list[Recorded]]]:
    """Return the turns before this one, from the summary that was in force then. `size` is that of
    the turn itself."""
    starts = [r.event for r in turn if isinstance(r.event, TurnStarted) and r.seq <= basis.upto]
    parent = starts[-1].parent
    if parent is None:
        return []
    summary: list[Recorded] = []
    until = None
    if basis.source.summary is not None:
        summary = yield from journal.of_message(basis.source.summary)
        (compacted,) = (each.event for each in summary)
        assert isinstance(compacted, Compacted)
        until = compacted.upto
    size += yield from chains.size_of_whole(parent, until=until)
    _insist_on_room(starts[-1].turn, size)
    told = yield from chains.whole_chain(parent, until=until)
    return [summary, *told] if summary else told
