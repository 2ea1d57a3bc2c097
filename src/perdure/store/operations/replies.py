"""What one turn says, as parts: bubbles while it grows, what goes ahead of the rest, the final
words, and taking all of it back.

What a turn has shown is changed or taken away again by parts of other kinds, which wait in the same
line: a part that is on its way when its turn is taken back is shown, gets its receipt, and is then
deleted by it; the final words wait for a bubble's first ones.
"""

from collections.abc import Sequence
from itertools import takewhile
from operator import eq

from perdure.domain.address import HTTP
from perdure.domain.delivery import (
    AHEAD,
    BUBBLES,
    DELETIONS,
    REPLY,
    WITHDRAWN,
    PartState,
    Step,
    rest_of,
)
from perdure.domain.events import Recorded
from perdure.domain.ids import MediaId, NodeId, SessionId, TurnId
from perdure.domain.transcript import joined, reply_text
from perdure.ports.outbox import Bubble
from perdure.ports.turns import Lease
from perdure.store.operations import journal
from perdure.store.operations.outbox import (
    ATTEMPT,
    PART,
    WITHDRAW,
    Line,
    Words,
    conversation_of,
    part_of,
    put,
    with_answered,
)
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row, rows, run

_OF_MESSAGE = """
    SELECT id, part, target, state, text, conversation_id, session_id FROM outbox
    WHERE message_id = $1 ORDER BY part FOR UPDATE"""
_FORGET_BUBBLE = """
    UPDATE outbox SET state = 'failed', node_id = NULL, changed_at = $1
    WHERE message_id = $2 AND part = $3 AND state = 'attempting' AND node_id = $4"""
_ANSWERED_BY = """
    SELECT c.adapter FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id) WHERE t.id = $1"""
# What may be, or become, visible to people.
_MAY_SHOW = (PartState.PENDING, PartState.ATTEMPTING, PartState.SENT)


def put_reply(
    session: SessionId,
    turn: TurnId,
    parts: Sequence[str],
    files: Sequence[MediaId],
    stamp: Stamp,
    *,
    delay_ms: int = 0,
) -> Op[None]:
    """The final words of a turn: each takes the place of the bubble that showed it so far, if there
    is one; bubbles that are left over go away, files come last. What went ahead stands."""
    ahead = yield from went_ahead(turn)
    stands = sum(takewhile(bool, map(eq, ahead, parts)))
    shown = yield from rows(_OF_MESSAGE, f"{turn}{BUBBLES}")
    bubbles = {part: bubble for bubble, part, _, state, *_ in shown if state in _MAY_SHOW}
    conversation = yield from conversation_of(session, turn)
    line = Line(conversation, session, turn, f"{turn}{REPLY}")
    words = []
    for index, text in enumerate(parts[stands:], len(ahead)):
        target = bubbles.pop(index, None)
        words.append(Words(text, Step.EDIT if target else Step.POST, target))
    words += [Words("", Step.UPLOAD, media=media) for media in files]
    yield from put(line, words, stamp, first=len(ahead), delay_ms=delay_ms)
    surplus = [Words("", Step.DELETE, bubble) for bubble in bubbles.values()]
    yield from put(line._replace(message=f"{turn}{DELETIONS}"), surplus, stamp)


def went_ahead(turn: TurnId) -> Op[list[str]]:
    return [text for *_, text, _, _ in (yield from rows(_OF_MESSAGE, f"{turn}{AHEAD}"))]


def go_ahead(lease: Lease, parts: Sequence[str], stamp: Stamp) -> Op[None]:
    """From the fence on nobody can settle the turn before this commits."""
    yield from journal.fence(lease.session, lease.epoch)
    known = len((yield from went_ahead(lease.turn)))
    conversation = yield from conversation_of(lease.session, lease.turn)
    line = Line(conversation, lease.session, lease.turn, f"{lease.turn}{AHEAD}")
    yield from put(line, [Words(text) for text in parts[known:]], stamp, first=known)


def leave(
    session: SessionId,
    turn: TurnId,
    said: Sequence[Recorded],
    mark: str,
    stamp: Stamp,
    *,
    delay_ms: int = 0,
) -> Op[None]:
    """Put down the words that stay of a turn which somebody else than its runner has ended, with a
    mark under them. Where nothing was said and nothing is shown, there is nothing to mark."""
    text = reply_text(said)
    if text or (yield from is_shown(turn)):
        marked = joined([text, mark])
        yield from put_whole(session, turn, marked, (), stamp, delay_ms=delay_ms)


def is_shown(turn: TurnId) -> Op[bool]:
    """Tell whether people may see something of a turn that is not over."""
    shown = yield from rows(_OF_MESSAGE, f"{turn}{BUBBLES}")
    return any(state in _MAY_SHOW for _, _, _, state, *_ in shown)


def put_whole(
    session: SessionId,
    turn: TurnId,
    text: str,
    files: Sequence[MediaId],
    stamp: Stamp,
    *,
    delay_ms: int = 0,
) -> Op[None]:
    """Put down the final words of a turn as one part, behind what went ahead: only the pump knows
    what fits. Over HTTP people read the journal."""
    answered_by = yield from row(_ANSWERED_BY, turn)
    assert answered_by is not None
    if answered_by[0] == HTTP:
        return
    ahead = yield from went_ahead(turn)
    parts = [*ahead, rest_of(text, ahead)]
    yield from put_reply(session, turn, parts, files, stamp, delay_ms=delay_ms)


def bubble(lease: Lease, index: int, text: str, stamp: Stamp) -> Op[Bubble]:
    """The turn's bubble of that number, put down if it is not there. From the fence on nobody can
    settle the turn before this commits: no bubble appears after the final words."""
    yield from journal.fence(lease.session, lease.epoch)
    message = f"{lease.turn}{BUBBLES}"
    known = yield from row(PART + "WHERE o.message_id = $1 AND o.part = $2", message, index)
    if known is None:
        conversation = yield from conversation_of(lease.session, lease.turn)
        line = Line(conversation, lease.session, lease.turn, message)
        yield from put(line, [Words(text, Step.BUBBLE)], stamp, first=index)
        known = yield from row(PART + "WHERE o.message_id = $1 AND o.part = $2", message, index)
        assert known is not None
        part = yield from with_answered(part_of(known))
        return Bubble(part=part)
    state, receipt = known[10], known[11]
    is_ours = state == PartState.ATTEMPTING and known[12] == stamp.node
    if state == PartState.FAILED or is_ours:
        # It was certainly not shown, or we have put it down and the answer was lost.
        yield from run(ATTEMPT, stamp.node, stamp.at, known[0])
        return Bubble(part=(yield from with_answered(part_of(known))))
    return Bubble(part=part_of(known), receipt=receipt, is_lost=state != PartState.SENT)


def forget_bubble(turn: TurnId, index: int, node: NodeId, *, at: int) -> Op[None]:
    yield from run(_FORGET_BUBBLE, at, f"{turn}{BUBBLES}", index, node)


def withdraw(turn: TurnId, stamp: Stamp) -> Op[None]:
    """Take back what a turn has sent, where the platform can; what is still to be sent is not. The
    rows are locked first: none of them can come back to the line while its deletion is queued."""
    parts = yield from rows(_OF_MESSAGE, f"{turn}{REPLY}")
    parts += yield from rows(_OF_MESSAGE, f"{turn}{BUBBLES}")
    parts += yield from rows(_OF_MESSAGE, f"{turn}{AHEAD}")
    known = yield from rows(_OF_MESSAGE, f"{turn}{DELETIONS}")
    covered = {target for _, _, target, *_ in known}
    gone = []
    for part, _, target, state, *_ in parts:
        if state == PartState.PENDING:
            yield from run(WITHDRAW, WITHDRAWN, stamp.at, part)
        elif state in _MAY_SHOW and part not in covered:
            # What has edited a bubble shows there, and the bubble has the receipt in any case.
            shown = target or part
            if shown not in covered:
                gone.append(Words("", Step.DELETE, shown))
            covered.add(shown)
    if gone:
        *_, conversation, session = parts[0]
        line = Line(conversation, session, turn, f"{turn}{DELETIONS}")
        yield from put(line, gone, stamp, first=len(known))
