"""Orders errands that nobody asked for: a title after the first exchange, and a summary when the
conversation gets long.

Each is run for the session's own person. In a shared place it is run for the person whose turn led
to it: the one who opened the place may be gone.
"""

from typing import Final, NamedTuple

from perdure.domain.ids import ConversationId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import NO_TRAITS, Recorded, SenderTraits, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.prompt.compaction import back_off_ms
from perdure.domain.waits import is_ahead
from perdure.store.operations import journal
from perdure.store.operations.sessions import compaction
from perdure.store.operations.sessions.scopes import SHARED
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import errands
from perdure.store.statement import Op, one

# Locks an open session that is not an errand's own.
_SESSION = """
    SELECT conversation_id, title, head_turn, compact_after, compact_failures FROM sessions
    WHERE id = $1 AND kind = '' AND state = 'open' FOR UPDATE"""
# Finds for whom to run an errand that a turn has led to.
_PERSON = f"""
    SELECT CASE WHEN {SHARED} THEN t.principal_id ELSE s.principal_id END
    FROM turns t JOIN sessions s ON s.id = $1 JOIN conversations c ON c.id = s.conversation_id
    WHERE t.id = $2"""
# Counts how often a title was ordered.
_TITLES_SOUGHT = f"SELECT count(*) FROM sessions WHERE parent_id = $1 AND kind = '{TurnKind.TITLE}'"
# After this many tries a model that finds no title is not asked again.
TITLE_TRIES: Final = 3


class _Held(NamedTuple):
    conversation: ConversationId
    title: str
    head: TurnId | None
    compact_after: int
    compact_failures: int


def entitle(session: SessionId, at: TurnId, agent: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Order a title, if the session has none and it was not tried too often."""
    held = yield from _lock(session)
    if held is None or held.title:
        return []
    tried = yield from one(int, _TITLES_SOUGHT, session)
    assert tried is not None, "a count is always one row"
    if tried >= TITLE_TRIES or (yield from errands.is_running(session, TurnKind.TITLE)):
        return []
    message = MessageId(stamp.mint("msg"))
    principal, traits = yield from _person(session, at)
    order = errands.Order(
        TurnKind.TITLE,
        session,
        held.conversation,
        principal,
        at,
        message,
        agent=agent,
        traits=traits,
    )
    return (yield from errands.begin(order, stamp))


def compact(
    session: SessionId, agent: str, stamp: Stamp, *, keep_tokens: int, stand_in: str = ""
) -> Op[list[Recorded]]:
    """Order a summary of the older turns, if there are enough of them."""
    held = yield from _lock(session)
    if held is None or held.head is None or _is_waited_for(held, stamp.at):
        return []
    upto = yield from compaction.choose(held.head, keep_tokens=keep_tokens)
    if upto is None or (yield from errands.is_running(session, TurnKind.SUMMARY)):
        return []
    message = MessageId(stamp.mint("msg"))
    principal, traits = yield from _person(session, held.head)
    order = errands.Order(
        TurnKind.SUMMARY,
        session,
        held.conversation,
        principal,
        upto,
        message,
        agent=agent,
        stand_in=stand_in,
        traits=traits,
    )
    return (yield from errands.begin(order, stamp))


def _lock(session: SessionId) -> Op[_Held | None]:
    """Lock a session that errands may be run for. Returns None if it is not open or an errand's
    own."""
    return (yield from one(_Held, _SESSION, session))


def _is_waited_for(held: _Held, at: int) -> bool:
    """Tell whether it is too early to try a summary again. The start of the wait is computed from
    its end; if even the start lies in the future, the clock was set back and the wait is over."""
    if held.compact_after <= at:
        return False
    return not is_ahead(held.compact_after - back_off_ms(held.compact_failures), at)


def _person(session: SessionId, turn: TurnId) -> Op[tuple[PrincipalId, SenderTraits]]:
    """Return for whom to run an errand that this turn has led to, and their traits."""
    principal = yield from one(PrincipalId, _PERSON, session, turn)
    assert principal is not None
    queued = (yield from journal.of_turn(turn))[0].event
    traits = queued.traits if isinstance(queued, TurnQueued) else NO_TRAITS
    return principal, traits
