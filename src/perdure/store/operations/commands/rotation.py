"""Handles commands that make another session the live one, and the reset after idle time.

The session that is left is closed, stays listed and searchable, and can be resumed. Closing,
opening and moving are one transaction, so after a crash a conversation has exactly one live
session.
"""

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.inbound.commands import Given, turn_and_words
from perdure.domain.journal.events import AnyEvent, Recorded
from perdure.domain.journal.session_events import (
    SessionClosed,
    SessionOpened,
    SessionResumed,
    TitleSet,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.sayings.saying import in_one_line, worded
from perdure.domain.turn.errands import TITLE_MAX, plain_line
from perdure.store.operations import journal
from perdure.store.operations.commands.asking import listed_at
from perdure.store.operations.commands.command_result import CommandResult, end_all, ids, started
from perdure.store.operations.sessions.sessions import make_live, open_session
from perdure.store.operations.turn_context import NO_PERSONA, TurnContext
from perdure.store.operations.turns import errands
from perdure.store.operations.turns.session_queue import make_ready
from perdure.store.statement import Op, exists, one, run

# Finds the session that was left last. The number of the move tells that, whatever the clock said.
_LEFT_LAST = """
    SELECT s.id FROM moves m JOIN sessions s ON s.id = m.left_id
    WHERE m.conversation_id = $1 AND s.id <> $2 AND s.conversation_id = $1 AND s.kind = ''
    ORDER BY m.generation DESC LIMIT 1"""
# Finds it in a conversation that was last moved before moves were recorded.
_EARLIER = """
    SELECT id FROM sessions WHERE conversation_id = $1 AND id <> $2 AND kind = ''
    ORDER BY active_at DESC, id DESC LIMIT 1"""
# Finds another session by its id or its title.
_NAMED = """
    SELECT id FROM sessions
    WHERE conversation_id = $1 AND kind = '' AND id <> $2 AND (id = $3 OR lower(title) = lower($3))
    ORDER BY active_at DESC LIMIT 1"""
# Tells whether a turn of this conversation has begun and is over.
_IS_HERE = """
    SELECT 1 FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE t.id = $1 AND s.conversation_id = $2 AND t.outcome IS NOT NULL AND t.attempts > 0"""
# Closes a session.
_CLOSE = "UPDATE sessions SET state = 'closed', closed_at = $1, ready_at = NULL WHERE id = $2"
# Opens a session again. The new epoch makes any old lease on it stale.
_REOPEN = """
    UPDATE sessions SET state = 'open', closed_at = NULL, strikes = 0, epoch = epoch + 1
    WHERE id = $1"""
# Finds the title of a session.
_TITLE = "SELECT title FROM sessions WHERE id = $1"
# Gives a session its title.
_SET_TITLE = "UPDATE sessions SET title = $1 WHERE id = $2"
# Lets a session wait for the errand of the session before it.
_HOLD = "UPDATE sessions SET hold_until = $1, held_at = $2 WHERE id = $3"


def new(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Open a new session and stop what runs. An agent with memory is asked what to keep of the
    closed session; the first turn of the new session waits for that, but not for long."""
    session = SessionId(context.stamp.mint("ses"))
    recorded, ended = yield from _leave(context, given.name, session, head=None)
    recorded += yield from _titled(context, session, given.arguments)
    recorded += yield from _remember(context, session)
    short = _short(given.arguments)
    opened = (
        worded("A new session about {title}.", title=short) if short else worded("A new session.")
    )
    back = worded("/resume goes back.")
    reply = in_one_line(opened, _stopped(ended), *_kept(context), back)
    return CommandResult(reply, recorded, ended, session=session)


def branch(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Open a session that begins at the head of this one, or at a named turn of this conversation.
    The turns up to there are shared, not copied."""
    meant, words = turn_and_words(given.arguments)
    if meant and not (yield from exists(_IS_HERE, meant, context.conversation)):
        return CommandResult(worded("There is no turn {turn} here that is over.", turn=meant))
    session = SessionId(context.stamp.mint("ses"))
    named = yield from _title_of(context.session)
    title = words or (f"{named} (branch)" if named else "")
    recorded, ended = yield from _leave(context, "branch", session, head=meant or _head(context))
    recorded += yield from _titled(context, session, title)
    opened = worded("A branch from that turn.") if meant else worded("A branch from here.")
    reply = in_one_line(opened, _stopped(ended), worded("/resume goes back."))
    return CommandResult(reply, recorded, ended, session=session)


def resume(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Make an earlier session the live one again: the named one, or the one that was left last."""
    target = yield from (_meant(context, given.arguments) if given.arguments else _earlier(context))
    if target == context.session:
        return CommandResult(worded("That session is the one you are in."))
    if target is None:
        named = plain_line(given.arguments)
        if named:
            return CommandResult(worded("There is no other session {name} here.", name=named))
        return CommandResult(worded("There is no earlier session here."))
    recorded, ended = yield from _close(context, "resume", target)
    yield from run(_REOPEN, target)
    resumed = SessionResumed(by=context.update.principal)
    recorded += yield from journal.append(target, [resumed], at=context.stamp.at)
    yield from make_live(context.conversation, target)
    yield from make_ready(target, context.stamp)
    titled = yield from _title_of(target)
    title = f" ({titled})" if titled else ""
    recorded += yield from errands.bring_unsaid(ended, target, context.stamp)
    back = worded("Back in session {session}{title}.", session=target, title=title)
    reply = in_one_line(back, _stopped(ended))
    return CommandResult(reply, recorded, ended, session=target)


def _meant(context: TurnContext, words: str) -> Op[SessionId | None]:
    """Return the session with this id or title, or the one with this number in the list that
    `/sessions` shows. Returns None if there is none."""
    here = (context.conversation, context.session)
    named = yield from one(SessionId, _NAMED, *here, words)
    is_number = words.isascii() and words.isdigit() and len(words) < 4
    if named is not None or not is_number:
        return named
    return (yield from listed_at(context, int(words)))


def _earlier(context: TurnContext) -> Op[SessionId | None]:
    """Return the session that was live here before this one, or None."""
    here = (context.conversation, context.session)
    left_last = yield from one(SessionId, _LEFT_LAST, *here)
    return left_last or (yield from one(SessionId, _EARLIER, *here))


def _title_of(session: SessionId) -> Op[str]:
    """Return the title of a session, or an empty string."""
    return (yield from one(str, _TITLE, session)) or ""


def title(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Set the session's title; without words, show it."""
    if not given.arguments:
        named = yield from _title_of(context.session)
        return CommandResult(named or worded("This session has no title yet."))
    short = _short(given.arguments)
    if not short:
        return CommandResult(worded("There is nothing in that title that could be shown."))
    recorded = yield from _titled(context, context.session, short)
    return CommandResult(worded("This session is now called: {title}", title=short), recorded)


def is_idle(context: TurnContext) -> bool:
    """Tell whether the session was idle so long that a new one must begin. Commands, edits,
    deletions and results of tool calls are meant for the session that is there."""
    place, update, limit_ms = context.place, context.update, context.menu.idle_reset_ms
    if not limit_ms or place.head is None or context.open_turns:
        return False
    is_about_it = bool(update.target or update.results)
    is_said = not is_about_it and context.agent.command_in(update.text) is None
    return is_said and context.stamp.at - place.active_at > limit_ms


def rotate_idle(context: TurnContext) -> Op[tuple[list[Recorded], SessionId]]:
    """Open a new session because the last one was idle for the configured time."""
    session = SessionId(context.stamp.mint("ses"))
    recorded, _ = yield from _leave(context, "idle", session, head=None)
    return recorded, session


def _leave(
    context: TurnContext, reason: str, session: SessionId, *, head: TurnId | None
) -> Op[tuple[list[Recorded], tuple[TurnId, ...]]]:
    """Close this session and open the next one at `head`. Results that the closed session did not
    say are brought to the next one."""
    recorded, ended = yield from _close(context, reason, session)
    opened = SessionOpened(
        by=context.update.principal, reason=reason, parent=context.session, head=head
    )
    yield from open_session(
        session, context.conversation, opened, context.stamp, principal=context.place.principal
    )
    yield from make_live(context.conversation, session)
    recorded += yield from errands.bring_unsaid(ended, session, context.stamp)
    return recorded, ended


def _close(
    context: TurnContext, reason: str, successor: SessionId
) -> Op[tuple[list[Recorded], tuple[TurnId, ...]]]:
    """End all unfinished turns of this session and close it."""
    recorded, ended = yield from end_all(context, ids(context.open_turns))
    closed = SessionClosed(by=context.update.principal, reason=reason, successor=successor)
    recorded += yield from journal.append(context.session, [closed], at=context.stamp.at)
    yield from run(_CLOSE, context.stamp.at, context.session)
    return recorded, ended


def _remember(context: TurnContext, session: SessionId) -> Op[list[Recorded]]:
    """Order an errand that keeps memories of the closed session, and hold the new session for
    it."""
    place, menu = context.place, context.menu
    head = _head(context)
    if head is None or not menu.offer(place.answering).has_memory:
        return []
    at = context.stamp.at
    yield from run(_HOLD, at + menu.hold_ms, at, session)
    order = errands.Order(
        TurnKind.MEMORY,
        context.session,
        context.conversation,
        errands.person_of(context),
        head,
        context.fresh.message,
        agent=place.answering,
        traits=context.update.traits,
    )
    return (yield from errands.begin(order, context.stamp))


def _titled(context: TurnContext, session: SessionId, title: str) -> Op[list[Recorded]]:
    """Set a session's title, if there is anything to show in it."""
    short = _short(title)
    if not short:
        return []
    yield from run(_SET_TITLE, short, session)
    events: list[AnyEvent] = [TitleSet(title=short, by=context.update.principal)]
    return (yield from journal.append(session, events, at=context.stamp.at))


def _short(title: str) -> str:
    """Return a title as one line of limited length."""
    return plain_line(title)[:TITLE_MAX].strip()


def _head(context: TurnContext) -> TurnId | None:
    """Return the session's head after the started turn was stopped."""
    return next(iter(started(context)), context.place.head)


def _kept(context: TurnContext) -> list[str]:
    """Return in words what was chosen for the conversation and stays as it is."""
    place, menu = context.place, context.menu
    kept = []
    if place.agent and menu.answering(place.agent) != menu.answering(place.place_agent):
        answers = menu.answering(place.agent)
        kept.append(worded("{name} still answers, as /agent chose.", name=answers))
    if place.persona:
        name = place.speaking_as or NO_PERSONA
        kept.append(worded("Persona stays {name}, as /persona chose.", name=name))
    if place.effort:
        kept.append(worded("Thinking stays {how}, as /think set it.", how=place.effort))
    return kept


def _stopped(ended: tuple[TurnId, ...]) -> str:
    """Return how many turns were stopped, in words."""
    if not ended:
        return ""
    if len(ended) == 1:
        return worded("1 turn was stopped.")
    return worded("{count} turns were stopped.", count=len(ended))
