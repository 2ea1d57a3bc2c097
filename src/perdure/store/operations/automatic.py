"""Errands that nobody asked for: a title after the first exchange, a summary when it gets long.

Each is for the session's own person. Where several people talk it is for the one whose turn led to
it, who may speak there now: whoever opened the place may be gone.
"""

from typing import Final

from perdure.domain.errands import Errand
from perdure.domain.events import NO_TRAITS, Recorded, SenderTraits, TurnQueued
from perdure.domain.ids import MessageId, PrincipalId, SessionId, TurnId
from perdure.store.dialect import Dialect
from perdure.store.operations import compaction, errands, journal
from perdure.store.operations.scopes import SHARED
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row

_SESSION = """
    SELECT conversation_id, title, head_turn, compact_after FROM sessions
    WHERE id = $1 AND kind = '' AND state = 'open' FOR UPDATE"""

_PERSON = f"""
    SELECT CASE WHEN {SHARED} THEN t.principal_id ELSE s.principal_id END
    FROM turns t JOIN sessions s ON s.id = $1 JOIN conversations c ON c.id = s.conversation_id
    WHERE t.id = $2"""
_TITLES_SOUGHT = "SELECT count(*) FROM sessions WHERE parent_id = $1 AND kind = 'title'"
# A model that finds no title is not asked for ever.
TITLE_TRIES: Final = 3


def entitle(
    dialect: Dialect, session: SessionId, at: TurnId, agent: str, stamp: Stamp
) -> Op[list[Recorded]]:
    found = yield from row(_SESSION, session)
    if found is None or found[1]:
        return []
    tried = yield from row(_TITLES_SOUGHT, session)
    assert tried is not None
    if tried[0] >= TITLE_TRIES or (yield from errands.is_running(session, Errand.TITLE)):
        return []
    conversation, *_ = found
    message = MessageId(stamp.mint("msg"))
    principal, traits = yield from _person(session, at)
    order = errands.Order(
        Errand.TITLE, session, conversation, principal, at, message, agent=agent, traits=traits
    )
    return (yield from errands.begin(dialect, order, stamp))


def compact(
    dialect: Dialect, session: SessionId, agent: str, stamp: Stamp, *, keep_tokens: int
) -> Op[list[Recorded]]:
    found = yield from row(_SESSION, session)
    if found is None:
        return []
    conversation, _, head, not_before = found
    if head is None or not_before > stamp.at:
        return []
    upto = yield from compaction.choose(head, keep_tokens=keep_tokens)
    if upto is None or (yield from errands.is_running(session, Errand.SUMMARY)):
        return []
    message = MessageId(stamp.mint("msg"))
    principal, traits = yield from _person(session, head)
    order = errands.Order(
        Errand.SUMMARY, session, conversation, principal, upto, message, agent=agent, traits=traits
    )
    return (yield from errands.begin(dialect, order, stamp))


def _person(session: SessionId, turn: TurnId) -> Op[tuple[PrincipalId, SenderTraits]]:
    """For whom an errand is run that this turn has led to."""
    found = yield from row(_PERSON, session, turn)
    assert found is not None
    queued = (yield from journal.of_turn(turn))[0].event
    traits = queued.traits if isinstance(queued, TurnQueued) else NO_TRAITS
    return PrincipalId(found[0]), traits
