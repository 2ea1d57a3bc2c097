"""Commands that make another session the live one. The one that is left is closed, stays listed and
searchable, and can be resumed."""

from perdure.domain.commands import Given
from perdure.domain.commands import given as command_in
from perdure.domain.errands import TITLE_MAX, Errand, plain_line
from perdure.domain.events import (
    AnyEvent,
    Recorded,
    SessionClosed,
    SessionOpened,
    SessionResumed,
    TitleSet,
)
from perdure.domain.ids import SessionId, TurnId
from perdure.store.operations import errands, journal
from perdure.store.operations.commands.given import Taken, end_all, ids, started
from perdure.store.operations.line import make_ready
from perdure.store.operations.sessions import make_live, open_session
from perdure.store.operations.setting import Setting
from perdure.store.statement import Op, row, run

_EARLIER = """
    SELECT id FROM sessions WHERE conversation_id = $1 AND id <> $2 AND kind = ''
    ORDER BY active_at DESC, id DESC LIMIT 1"""
_NAMED = """
    SELECT id FROM sessions
    WHERE conversation_id = $1 AND kind = '' AND id <> $2 AND (id = $3 OR lower(title) = lower($3))
    ORDER BY active_at DESC LIMIT 1"""
_CLOSE = "UPDATE sessions SET state = 'closed', closed_at = $1, ready_at = NULL WHERE id = $2"
_REOPEN = """
    UPDATE sessions SET state = 'open', closed_at = NULL, strikes = 0, epoch = epoch + 1
    WHERE id = $1"""
_TITLE = "SELECT title FROM sessions WHERE id = $1"
_SET_TITLE = "UPDATE sessions SET title = $1 WHERE id = $2"
_HOLD = "UPDATE sessions SET hold_until = $1 WHERE id = $2"


def new(setting: Setting, given: Given) -> Op[Taken]:
    """What is running is stopped. An agent with a memory is asked, in the session that was closed,
    what to keep; the new one's first turn waits for that, but not for long."""
    session = SessionId(setting.stamp.mint("ses"))
    recorded, ended = yield from _leave(setting, given.name, session, head=None)
    recorded += yield from _titled(setting, session, given.arguments)
    recorded += yield from _remember(setting, session)
    about = f" about {short}" if (short := _short(given.arguments)) else ""
    reply = f"A new session{about}.{_stopped(ended)} /resume goes back."
    return Taken(reply, recorded, ended, session=session)


def branch(setting: Setting, given: Given) -> Op[Taken]:
    """The new session stands where this one does; the turns up to there are shared, not copied."""
    session = SessionId(setting.stamp.mint("ses"))
    named = yield from row(_TITLE, setting.session)
    title = given.arguments or (f"{named[0]} (branch)" if named and named[0] else "")
    recorded, ended = yield from _leave(setting, "branch", session, head=_head(setting))
    recorded += yield from _titled(setting, session, title)
    reply = f"A branch from here.{_stopped(ended)} /resume goes back."
    return Taken(reply, recorded, ended, session=session)


def resume(setting: Setting, given: Given) -> Op[Taken]:
    if given.arguments:
        found = yield from row(_NAMED, setting.conversation, setting.session, given.arguments)
    else:
        found = yield from row(_EARLIER, setting.conversation, setting.session)
    if found is None:
        named = plain_line(given.arguments)
        known = f"There is no other session {named} here." if named else ""
        return Taken(known or "There is no earlier session here.")
    target: SessionId = found[0]
    recorded, ended = yield from _close(setting, "resume", target)
    yield from run(_REOPEN, target)
    resumed = SessionResumed(by=setting.update.principal)
    recorded += yield from journal.append(setting.dialect, target, [resumed], at=setting.stamp.at)
    yield from make_live(setting.conversation, target)
    yield from make_ready(target, setting.stamp)
    titled = yield from row(_TITLE, target)
    title = f" ({titled[0]})" if titled and titled[0] else ""
    recorded += yield from errands.bring_unsaid(setting.dialect, ended, target, setting.stamp)
    reply = f"Back in session {target}{title}.{_stopped(ended)}"
    return Taken(reply, recorded, ended, session=target)


def title(setting: Setting, given: Given) -> Op[Taken]:
    if not given.arguments:
        named = yield from row(_TITLE, setting.session)
        return Taken(named[0] if named and named[0] else "This session has no title yet.")
    short = _short(given.arguments)
    if not short:
        return Taken("There is nothing in that title that could be shown.")
    recorded = yield from _titled(setting, setting.session, short)
    return Taken(f"This session is now called: {short}", recorded)


def is_idle(setting: Setting) -> bool:
    """Has nothing been said for so long that a new session is to begin? Commands, edits and
    deletions are for the session that is there."""
    place, update, limit_ms = setting.place, setting.update, setting.menu.idle_reset_ms
    if not limit_ms or place.head is None or setting.open_turns:
        return False
    is_said = not update.target and command_in(update.text) is None
    return is_said and setting.stamp.at - place.active_at > limit_ms


def rotate_idle(setting: Setting) -> Op[tuple[list[Recorded], SessionId]]:
    """Begin anew because nobody has said anything for as long as was configured."""
    session = SessionId(setting.stamp.mint("ses"))
    recorded, _ = yield from _leave(setting, "idle", session, head=None)
    return recorded, session


def _leave(
    setting: Setting, reason: str, session: SessionId, *, head: TurnId | None
) -> Op[tuple[list[Recorded], tuple[TurnId, ...]]]:
    """Close this session and open the next one, standing at `head`."""
    recorded, ended = yield from _close(setting, reason, session)
    opened = SessionOpened(
        by=setting.update.principal, reason=reason, parent=setting.session, head=head
    )
    yield from open_session(
        setting.dialect,
        session,
        setting.conversation,
        opened,
        setting.stamp,
        principal=setting.place.principal,
    )
    yield from make_live(setting.conversation, session)
    recorded += yield from errands.bring_unsaid(setting.dialect, ended, session, setting.stamp)
    return recorded, ended


def _close(
    setting: Setting, reason: str, successor: SessionId
) -> Op[tuple[list[Recorded], tuple[TurnId, ...]]]:
    recorded, ended = yield from end_all(setting, ids(setting.open_turns))
    closed = SessionClosed(by=setting.update.principal, reason=reason, successor=successor)
    recorded += yield from journal.append(
        setting.dialect, setting.session, [closed], at=setting.stamp.at
    )
    yield from run(_CLOSE, setting.stamp.at, setting.session)
    return recorded, ended


def _remember(setting: Setting, session: SessionId) -> Op[list[Recorded]]:
    place, menu = setting.place, setting.menu
    head = _head(setting)
    if head is None or not menu.offer(place.agent).has_memory:
        return []
    yield from run(_HOLD, setting.stamp.at + menu.hold_ms, session)
    order = errands.Order(
        Errand.MEMORY,
        setting.session,
        setting.conversation,
        errands.person_of(setting),
        head,
        setting.fresh.message,
        agent=place.agent,
        traits=setting.update.traits,
    )
    return (yield from errands.begin(setting.dialect, order, setting.stamp))


def _titled(setting: Setting, session: SessionId, title: str) -> Op[list[Recorded]]:
    short = _short(title)
    if not short:
        return []
    yield from run(_SET_TITLE, short, session)
    events: list[AnyEvent] = [TitleSet(title=short, by=setting.update.principal)]
    return (yield from journal.append(setting.dialect, session, events, at=setting.stamp.at))


def _short(title: str) -> str:
    return plain_line(title)[:TITLE_MAX].strip()


def _head(setting: Setting) -> TurnId | None:
    """Where the session stands once what has begun is stopped."""
    return next(iter(started(setting)), setting.place.head)


def _stopped(ended: tuple[TurnId, ...]) -> str:
    if not ended:
        return ""
    return " 1 turn was stopped." if len(ended) == 1 else f" {len(ended)} turns were stopped."
