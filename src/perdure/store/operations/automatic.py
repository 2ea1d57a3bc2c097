"""Errands that nobody asked for: a title after the first exchange, a summary when it gets long."""

from typing import Final

from perdure.domain.errands import Errand
from perdure.domain.events import Recorded
from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.store.dialect import Dialect
from perdure.store.operations import compaction, errands
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row

_SESSION = """
    SELECT conversation_id, principal_id, title, head_turn, compact_after FROM sessions
    WHERE id = $1 AND kind = '' AND state = 'open' FOR UPDATE"""

_TITLES_SOUGHT = "SELECT count(*) FROM sessions WHERE parent_id = $1 AND kind = 'title'"
# A model that finds no title is not asked for ever.
TITLE_TRIES: Final = 3


def entitle(
    dialect: Dialect, session: SessionId, at: TurnId, agent: str, stamp: Stamp
) -> Op[list[Recorded]]:
    found = yield from row(_SESSION, session)
    if found is None or found[2]:
        return []
    tried = yield from row(_TITLES_SOUGHT, session)
    assert tried is not None
    if tried[0] >= TITLE_TRIES or (yield from errands.is_running(session, Errand.TITLE)):
        return []
    conversation, principal, *_ = found
    message = MessageId(stamp.mint("msg"))
    order = errands.Order(Errand.TITLE, session, conversation, principal, at, message, agent=agent)
    return (yield from errands.begin(dialect, order, stamp))


def compact(
    dialect: Dialect, session: SessionId, agent: str, stamp: Stamp, *, keep_tokens: int
) -> Op[list[Recorded]]:
    found = yield from row(_SESSION, session)
    if found is None:
        return []
    conversation, principal, _, head, not_before = found
    if head is None or not_before > stamp.at:
        return []
    upto = yield from compaction.choose(head, keep_tokens=keep_tokens)
    if upto is None or (yield from errands.is_running(session, Errand.SUMMARY)):
        return []
    message = MessageId(stamp.mint("msg"))
    order = errands.Order(
        Errand.SUMMARY, session, conversation, principal, upto, message, agent=agent
    )
    return (yield from errands.begin(dialect, order, stamp))
