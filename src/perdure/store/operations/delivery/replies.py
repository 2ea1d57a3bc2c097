"""Writes what one turn says as parts: bubbles while the text grows, parts that go ahead, the final
words, and deletions that take all of it back.

What a turn has shown is changed or removed by further parts in the same line. So order is kept even
across crashes: if a part is on its way when its turn is taken back, it is shown, gets its receipt,
and then the deletion uses that receipt. The final words wait until a bubble's first words have a
receipt.
"""

from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import NamedTuple

from perdure.domain.address import HTTP
from perdure.domain.delivery import (
    AHEAD,
    BUBBLES,
    DELETIONS,
    REPLY,
    DeliveryStep,
    PartState,
    rest_of,
)
from perdure.domain.ids import ConversationId, MediaId, NodeId, PartId, SessionId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.transcript import joined, reply_text
from perdure.domain.sayings.saying import in_language
from perdure.ports.delivery.outbox import Bubble
from perdure.ports.turns.turns import TurnLease
from perdure.store.operations import journal
from perdure.store.operations.delivery import part_rows
from perdure.store.operations.delivery.notices import language_in
from perdure.store.operations.delivery.outbox import (
    APART,
    DeliveryLine,
    PartText,
    conversation_of,
    is_clear,
    put,
    with_answered,
)
from perdure.store.operations.delivery.part_rows import PART, PartRow, part_of
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, many, one, run

# Reads and locks the parts of a message, in order.
_OF_MESSAGE = """
    SELECT id, part, target, state, text, conversation_id, session_id FROM outbox
    WHERE message_id = $1 ORDER BY part FOR UPDATE"""
# Records that a bubble of this node was never shown.
_FORGET_BUBBLE = """
    UPDATE outbox SET state = 'failed', node_id = NULL, changed_at = $1
    WHERE message_id = $2 AND part = $3 AND state = 'attempting' AND node_id = $4"""
# Reads one part of a message.
_BUBBLE = PART + "WHERE o.message_id = $1 AND o.part = $2"
# Moves a bubble that was not shown to the end of its line, and marks it as being sent.
_OPEN_AGAIN = f"""
    UPDATE outbox SET state = 'attempting', attempts = attempts + 1, text = $1, node_id = $2,
                      changed_at = $3,
                      place_in_line = (SELECT MAX(l.place_in_line) + {APART} FROM outbox l
                                       WHERE l.conversation_id = outbox.conversation_id)
    WHERE id = $4"""
# Finds the adapter by which a turn is answered.
_ANSWERED_BY = """
    SELECT c.adapter FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id) WHERE t.id = $1"""
# Reads whether answers in a conversation are spoken.
_IS_SPOKEN = "SELECT is_spoken FROM conversations WHERE id = $1"
# States of parts that people can see, or may still see.
_MAY_SHOW = (PartState.PENDING, PartState.ATTEMPTING, PartState.SENT)


class _Placed(NamedTuple):
    """Holds a part of a message. `number` is its position; `target` is the part that it changes."""

    id: PartId
    number: int
    target: PartId | None
    state: str
    text: str
    conversation: ConversationId
    session: SessionId


class FinalWords(NamedTuple):
    """Holds what a turn says in the end: the parts of its text, its files, the commands to offer as
    buttons under the last part, and the text that is read aloud where people want that."""

    parts: Sequence[str]
    files: Sequence[MediaId]
    choices: tuple[str, ...] = ()
    spoken: str = ""


def put_reply(
    session: SessionId, turn: TurnId, final: FinalWords, stamp: Stamp, *, delay_ms: int = 0
) -> Op[None]:
    """Add the final words of a turn. Each part replaces the bubble that has shown it so far, if
    there is one. Surplus bubbles are deleted, and files come last. Parts that went ahead stay."""
    ahead = yield from went_ahead(turn)
    stands = sum(takewhile(bool, map(eq, ahead, final.parts)))
    shown = yield from _parts_of(f"{turn}{BUBBLES}")
    bubbles = {each.number: each.id for each in shown if each.state in _MAY_SHOW}
    conversation = yield from conversation_of(session, turn)
    line = DeliveryLine(conversation, session, turn, f"{turn}{REPLY}")
    words = []
    for index, text in enumerate(final.parts[stands:], len(ahead)):
        target = bubbles.pop(index, None)
        words.append(PartText(text, DeliveryStep.EDIT if target else DeliveryStep.POST, target))
    if words:
        words[-1] = words[-1]._replace(choices=final.choices)
    words += [PartText("", DeliveryStep.UPLOAD, media=media) for media in final.files]
    if final.spoken and (yield from one(int, _IS_SPOKEN, conversation)):
        # Behind everything else, because a recording takes a while.
        words.append(PartText(final.spoken, DeliveryStep.UPLOAD))
    yield from put(line, words, stamp, first=len(ahead), delay_ms=delay_ms)
    surplus = [PartText("", DeliveryStep.DELETE, bubble) for bubble in bubbles.values()]
    yield from put(line._replace(message=f"{turn}{DELETIONS}"), surplus, stamp)


def _parts_of(message: str) -> Op[list[_Placed]]:
    """Return the parts of a message, locked until the transaction ends."""
    return (yield from many(_Placed, _OF_MESSAGE, message))


def went_ahead(turn: TurnId) -> Op[list[str]]:
    """Return the texts of a turn that were sent before it was over."""
    return [each.text for each in (yield from _parts_of(f"{turn}{AHEAD}"))]


def go_ahead(lease: TurnLease, parts: Sequence[str], stamp: Stamp) -> Op[None]:
    """Add the leading parts of a running turn's reply, except those added before. The fence locks
    the session, so that nobody settles the turn before this commits."""
    yield from journal.fence(lease.session, lease.epoch)
    known = len((yield from went_ahead(lease.turn)))
    conversation = yield from conversation_of(lease.session, lease.turn)
    line = DeliveryLine(conversation, lease.session, lease.turn, f"{lease.turn}{AHEAD}")
    yield from put(line, [PartText(text) for text in parts[known:]], stamp, first=known)


def put_rest(
    session: SessionId,
    turn: TurnId,
    said: Sequence[Recorded],
    mark: str,
    stamp: Stamp,
    *,
    delay_ms: int = 0,
) -> Op[None]:
    """Add the words that remain of a turn which was ended from outside, with a mark under them.
    Does nothing if nothing was said and nothing is shown."""
    text = reply_text(said)
    if text or (yield from is_shown(turn)):
        marked = joined([text, in_language(mark, (yield from language_in(session)))])
        yield from put_whole(session, turn, marked, (), stamp, delay_ms=delay_ms)


def is_shown(turn: TurnId) -> Op[bool]:
    """Tell whether people may see something of an unfinished turn."""
    shown = yield from _parts_of(f"{turn}{BUBBLES}")
    return any(each.state in _MAY_SHOW for each in shown)


def put_whole(
    session: SessionId,
    turn: TurnId,
    text: str,
    files: Sequence[MediaId],
    stamp: Stamp,
    *,
    delay_ms: int = 0,
) -> Op[None]:
    """Add the final words of a turn as one part, behind those that went ahead. The pump divides it
    if it is too long. Does nothing over HTTP, where clients read the journal."""
    answered_by = yield from one(str, _ANSWERED_BY, turn)
    assert answered_by is not None
    if answered_by == HTTP:
        return
    ahead = yield from went_ahead(turn)
    parts = [*ahead, rest_of(text, ahead)]
    yield from put_reply(session, turn, FinalWords(parts, files), stamp, delay_ms=delay_ms)


def bubble(lease: TurnLease, index: int, text: str, stamp: Stamp) -> Op[Bubble | None]:
    """Return the turn's bubble with this number, adding it if needed. Returns None while something
    before it in the line is on its way. The fence locks the session, so that nobody settles the
    turn before this commits: no bubble appears after the final words."""
    yield from journal.fence(lease.session, lease.epoch)
    message = f"{lease.turn}{BUBBLES}"
    known = yield from _part(message, index)
    if known is None:
        if not (yield from may_show(lease)):
            return None
        conversation = yield from conversation_of(lease.session, lease.turn)
        line = DeliveryLine(conversation, lease.session, lease.turn, message)
        yield from put(line, [PartText(text, DeliveryStep.BUBBLE)], stamp, first=index)
    elif known.state in (PartState.SENT, PartState.UNKNOWN, PartState.EXPIRED):
        is_lost = known.state != PartState.SENT
        return Bubble(part=part_of(known), receipt=known.receipt, is_lost=is_lost)
    elif known.state == PartState.ATTEMPTING and known.node == stamp.node:
        # This node added it, but the answer to that call was lost.
        yield from part_rows.attempt(known.id, stamp.node, at=stamp.at)
    elif known.state == PartState.FAILED and (yield from may_show(lease)):
        # It was certainly not shown. Later parts were, so it moves behind them.
        yield from run(_OPEN_AGAIN, text, stamp.node, stamp.at, known.id)
    else:
        return None  # it waits for its line, or until it is known whether it was shown
    known = yield from _part(message, index)
    assert known is not None
    return Bubble(part=(yield from with_answered(part_of(known))))


def _part(message: str, index: int) -> Op[PartRow | None]:
    """Return the part of a message with this number, or None."""
    return (yield from one(PartRow, _BUBBLE, message, index))


def may_show(lease: TurnLease) -> Op[bool]:
    """Tell whether what the turn shows now would stand behind everything said before it."""
    return (yield from is_clear((yield from conversation_of(lease.session, lease.turn))))


def forget_bubble(turn: TurnId, index: int, node: NodeId, *, at: int) -> Op[None]:
    """Record that a bubble was never shown, if it is this node's."""
    yield from run(_FORGET_BUBBLE, at, f"{turn}{BUBBLES}", index, node)


def withdraw(turn: TurnId, stamp: Stamp) -> Op[None]:
    """Take back what a turn has sent: pending parts are given up, shown ones get a deletion. The
    rows are locked first, so that none of them returns to the line while its deletion is added."""
    parts = yield from _parts_of(f"{turn}{REPLY}")
    parts += yield from _parts_of(f"{turn}{BUBBLES}")
    parts += yield from _parts_of(f"{turn}{AHEAD}")
    known = yield from _parts_of(f"{turn}{DELETIONS}")
    covered = {each.target for each in known}
    gone = []
    for part in parts:
        if part.state == PartState.PENDING:
            yield from part_rows.withdraw(part.id, at=stamp.at)
        elif part.state in _MAY_SHOW and part.id not in covered:
            # A part that has edited a bubble shows there, and the bubble holds the receipt in any
            # case.
            shown = part.target or part.id
            if shown not in covered:
                gone.append(PartText("", DeliveryStep.DELETE, shown))
            covered.add(shown)
    if gone:
        line = DeliveryLine(parts[0].conversation, parts[0].session, turn, f"{turn}{DELETIONS}")
        yield from put(line, gone, stamp, first=len(known))
