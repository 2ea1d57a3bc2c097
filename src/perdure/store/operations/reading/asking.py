"""Reads what is stored of a turn's last request, in one snapshot."""

from collections.abc import Sequence
from typing import NamedTuple

from perdure.domain.errors import NotFound
from perdure.domain.ids import ConversationId, PrincipalId, TurnId
from perdure.domain.journal.events import Recorded, TurnQueued, TurnStarted
from perdure.domain.journal.session_events import Compacted
from perdure.domain.prompt.prefix import Basis, read_basis
from perdure.domain.turn.rebuilding import StoredRequest, digests_of
from perdure.domain.turn.turn import State
from perdure.store.operations import journal, texts
from perdure.store.operations.reading import chains
from perdure.store.statement import Op, one

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
    nothing is."""
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
    events = yield from journal.of_turn(turn)
    owners = (found.principal, found.conversation)
    queued = next(each.event for each in events if isinstance(each.event, TurnQueued))
    return StoredRequest(
        basis=basis,
        chain=(yield from _chain(basis, events)),
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


def _chain(basis: Basis, turn: Sequence[Recorded]) -> Op[list[list[Recorded]]]:
    """Return the turns before this one, from the summary that was in force then."""
    starts = [r.event for r in turn if isinstance(r.event, TurnStarted) and r.seq <= basis.upto]
    parent = starts[-1].parent
    if parent is None:
        return []
    if basis.source.summary is None:
        return (yield from chains.whole_chain(parent, until=None))
    (summary,) = yield from journal.of_message(basis.source.summary)
    assert isinstance(summary.event, Compacted)
    told = yield from chains.whole_chain(parent, until=summary.event.upto)
    return [[summary], *told]
