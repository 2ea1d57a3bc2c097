"""Commands, inside the transaction that accepts them."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from perdure.domain.commands import Given, help_text, unknown_text
from perdure.domain.events import CommandTaken, Recorded, SessionClosed, SessionResumed
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.standing import OpenTurn, Standing
from perdure.domain.turn import State
from perdure.domain.updates import Accepted, Effect
from perdure.store.operations import journal
from perdure.store.operations.endings import MAKE_READY, end_turn, locked
from perdure.store.operations.outbox import put_unless_read
from perdure.store.operations.sessions import make_live
from perdure.store.operations.setting import Setting
from perdure.store.operations.turns import STOPPED
from perdure.store.statement import Op, Row, row, run

_WHO = "SELECT name, role FROM principals WHERE id = $1"
_EARLIER = """
    SELECT id FROM sessions WHERE conversation_id = $1 AND id <> $2
    ORDER BY active_at DESC, id DESC LIMIT 1"""
_NAMED = "SELECT id FROM sessions WHERE conversation_id = $1 AND id = $2"
_HEAD = "SELECT head_turn FROM sessions WHERE id = $1"
_CLOSE = "UPDATE sessions SET state = 'closed', closed_at = $1, ready_at = NULL WHERE id = $2"
_REOPEN = """
    UPDATE sessions SET state = 'open', closed_at = NULL, strikes = 0, epoch = epoch + 1
    WHERE id = $1"""


class Taken(NamedTuple):
    """What a command did: the answer, what it appended, turns it ended, where it stands now."""

    reply: str
    recorded: list[Recorded]
    ended: tuple[TurnId, ...] = ()
    session: SessionId | None = None
    effect: Effect = Effect.COMMANDED


def take(setting: Setting, given: Given) -> Op[Accepted]:
    """Do what was asked and write down that it was."""
    who = yield from row(_WHO, setting.update.principal)
    assert who is not None
    name, role = who
    is_operator = role == "operator"
    if given.command is None:
        taken = Taken(unknown_text(given.name), [])
    elif given.command.is_for_operators and not is_operator:
        taken = Taken(f"/{given.name} is for operators.", [])
    elif given.name == "help":
        taken = Taken(help_text(is_operator=is_operator), [])
    elif given.name == "whoami":
        taken = Taken(f"You are {name} ({role}).", [])
    else:
        taken = yield from _HANDLERS[given.name](setting, given.arguments)
    session = taken.session or setting.session
    event = CommandTaken(
        command=given.name,
        arguments=given.arguments,
        by=setting.update.principal,
        message=setting.fresh.message,
        reply=taken.reply,
    )
    at = setting.stamp.at
    recorded = yield from journal.append(setting.dialect, session, [event], at=at)
    yield from put_unless_read(session, None, setting.fresh.message, taken.reply, setting.stamp)
    return Accepted(
        conversation=setting.conversation,
        session=session,
        turn=None,
        message=setting.fresh.message,
        effect=taken.effect,
        ended=taken.ended,
        command=given.name,
        reply=taken.reply,
        recorded=(*taken.recorded, *recorded),
    )


def _stop(setting: Setting, arguments: str) -> Op[Taken]:
    """The turn at work, else the interrupted one, else the oldest that waits; others stay."""
    rank = {State.RUNNING: 0, State.WAITING: 0, State.INTERRUPTED: 1, State.QUEUED: 2}
    turns = sorted(setting.open_turns, key=lambda turn: rank[State(turn[1])])
    if not turns:
        return Taken("Nothing is running here.", [])
    chosen = turns if arguments.lower() == "all" else turns[:1]
    recorded = yield from _end(setting, chosen)
    left = len(turns) - len(chosen)
    waits = f" {left} more {'message waits' if left == 1 else 'messages wait'}." if left else ""
    what = "Stopped." if len(chosen) == 1 else f"Stopped {len(chosen)} turns."
    return Taken(what + waits, recorded, tuple(turn[0] for turn in chosen))


def _end(setting: Setting, turns: Sequence[Row]) -> Op[list[Recorded]]:
    recorded: list[Recorded] = []
    for turn in turns:
        found = yield from locked(turn[0])
        if found is not None and found.state != State.SETTLED:
            recorded += yield from end_turn(setting.dialect, turn[0], found, STOPPED, setting.stamp)
    return recorded


def _resume(setting: Setting, arguments: str) -> Op[Taken]:
    """Make another session of this conversation the live one. What runs here is stopped first."""
    if arguments:
        found = yield from row(_NAMED, setting.conversation, arguments)
    else:
        found = yield from row(_EARLIER, setting.conversation, setting.session)
    if found is None or found[0] == setting.session:
        known = f"There is no other session {arguments} here." if arguments else ""
        return Taken(known or "There is no earlier session here.", [])
    target: SessionId = found[0]
    recorded = yield from _end(setting, setting.open_turns)
    stamp, dialect = setting.stamp, setting.dialect
    closed = SessionClosed(by=setting.update.principal, reason="resume", successor=target)
    recorded += yield from journal.append(dialect, setting.session, [closed], at=stamp.at)
    yield from run(_CLOSE, stamp.at, setting.session)
    yield from run(_REOPEN, target)
    resumed = SessionResumed(by=setting.update.principal)
    recorded += yield from journal.append(dialect, target, [resumed], at=stamp.at)
    yield from make_live(setting.conversation, target)
    yield from run(MAKE_READY, stamp.at, target)
    ended = tuple(turn[0] for turn in setting.open_turns)
    return Taken(f"Back in session {target}.", recorded, ended, target)


def _status(setting: Setting, arguments: str) -> Op[Taken]:
    head = yield from row(_HEAD, setting.session)
    turns = tuple(
        OpenTurn(id=turn, state=State(state), attempts=attempts)
        for turn, state, attempts, _ in setting.open_turns
    )
    standing = Standing(session=setting.session, head=head[0] if head else None, open_turns=turns)
    reply = f"{standing.state}, {standing.queued} waiting; session {setting.session}"
    return Taken(reply, [])


def _restart(setting: Setting, arguments: str) -> Op[Taken]:
    """The process does the rest once this is committed."""
    yield from ()
    reply = "Restarting: what runs is finished first. You will be told here."
    return Taken(reply, [], effect=Effect.RESTARTING)


_HANDLERS: Final[dict[str, Callable[[Setting, str], Op[Taken]]]] = {
    "stop": _stop,
    "resume": _resume,
    "status": _status,
    "restart": _restart,
}
