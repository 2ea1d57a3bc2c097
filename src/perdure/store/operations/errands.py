"""Errands: opened beside a conversation, and brought back when their turn is over.

Bringing back is part of the transaction that settles the errand's turn, however it is settled, so
a result is never lost and never comes twice. The errand's session is locked first, then the
conversation and the session it serves.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.access import is_access_ended
from perdure.domain.address import is_shared
from perdure.domain.attachments import as_fetched, given_in, places_of
from perdure.domain.endings import SILENT, Audience, told
from perdure.domain.errands import RESULT, UNASKED, Errand, clean_title, errand_of
from perdure.domain.events import (
    NO_TRAITS,
    AssistantSaid,
    Attachment,
    Recorded,
    SenderTraits,
    SessionOpened,
    TitleSet,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.ids import ConversationId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.stickers import clean_words
from perdure.domain.transcript import reply_text
from perdure.store.dialect import Dialect
from perdure.store.operations import compaction, journal, stickers
from perdure.store.operations.line import queue_turn
from perdure.store.operations.notices import notice
from perdure.store.operations.sessions import make_live, open_session, open_successor
from perdure.store.operations.setting import Setting, Stamp
from perdure.store.statement import Op, row, run

_SERVED = """
    SELECT parent_id, conversation_id, principal_id FROM sessions WHERE id = $1"""
_LIVE = "SELECT session_id FROM conversations WHERE id = $1 FOR NO KEY UPDATE"
_STATE = "SELECT state FROM sessions WHERE id = $1 FOR UPDATE"
_TITLE = "SELECT title FROM sessions WHERE id = $1 FOR UPDATE"
_SET_TITLE = "UPDATE sessions SET title = $1 WHERE id = $2"
# One at a time is sent, so it is among the newest; there may have been thousands.
_RUNNING = """
    SELECT t.id FROM (
        SELECT s.id FROM sessions s WHERE s.parent_id = $1 AND s.kind = $2 AND s.kind <> ''
        ORDER BY s.opened_at DESC LIMIT 8) newest
    CROSS JOIN turns t WHERE t.session_id = newest.id AND t.outcome IS NULL LIMIT 1"""
_RELEASE = """
    UPDATE sessions SET hold_until = NULL, ready_at = CASE WHEN ready_at > $1 THEN $1 ELSE ready_at
                                                      END
    WHERE id = $2 AND parent_id = $3"""


class Order(NamedTuple):
    """An errand to be run for `session`, looking back from the turn `at`."""

    errand: Errand
    session: SessionId
    conversation: ConversationId
    principal: PrincipalId
    at: TurnId | None
    message: MessageId
    text: str = ""
    agent: str = ""
    persona: str = ""
    attachments: tuple[Attachment, ...] = ()
    reason: str = "automatic"
    traits: SenderTraits = NO_TRAITS


class Back(NamedTuple):
    """An errand that is over, and whom it served."""

    turn: TurnId
    queued: TurnQueued
    settled: TurnSettled
    text: str
    session: SessionId
    served: SessionId
    conversation: ConversationId
    principal: PrincipalId
    events: Sequence[Recorded]

    @property
    def is_done(self) -> bool:
        return self.settled.outcome is Outcome.DONE

    @property
    def is_untold(self) -> bool:
        """Its person may not speak any more: they are told as little as strangers are."""
        return is_access_ended(self.settled.reason)


def begin(dialect: Dialect, order: Order, stamp: Stamp) -> Op[list[Recorded]]:
    """Open the errand's session and queue its turn. What it appended, its turn's event last."""
    session, turn = SessionId(stamp.mint("ses")), TurnId(stamp.mint("trn"))
    opened = SessionOpened(
        by=order.principal,
        reason=order.reason,
        parent=order.session,
        head=order.at,
        kind=order.errand,
    )
    principal = order.principal
    yield from open_session(
        dialect, session, order.conversation, opened, stamp, principal=principal
    )
    queued = TurnQueued(
        turn=turn,
        message=order.message,
        text=order.text,
        kind=order.errand,
        agent=order.agent,
        attachments=order.attachments,
        persona=order.persona,
        by=order.principal,
        traits=order.traits,
    )
    return (yield from queue_turn(dialect, session, queued, stamp))


def person_of(setting: Setting) -> PrincipalId:
    """For whom an errand about a whole session is run: the session's own person. Where several
    people talk it is the one who asked, for whoever opened the place may be gone."""
    update = setting.update
    if is_shared(update.address, update.place_kind):
        return update.principal
    return setting.place.principal


def is_running(session: SessionId, errand: Errand) -> Op[bool]:
    """Whether such an errand is already on its way for this session."""
    return (yield from row(_RUNNING, session, errand)) is not None


def ended(
    dialect: Dialect, turn: TurnId, events: Sequence[Recorded], stamp: Stamp
) -> Op[list[Recorded]]:
    """Bring back what a turn was sent for, if it was an errand. `events` are all of its own, or
    the last of them."""
    if not isinstance(events[0].event, TurnQueued):
        events = yield from journal.of_turn(turn)
    queued = events[0].event
    errand = errand_of(queued.kind) if isinstance(queued, TurnQueued) else None
    if errand is None:
        return []
    own = [recorded for recorded in events if recorded.turn == turn]
    settled = own[-1].event
    found = yield from row(_SERVED, events[0].session)
    assert found is not None
    assert isinstance(queued, TurnQueued)
    assert isinstance(settled, TurnSettled)
    served, conversation, principal = found
    text = reply_text(own)
    session = events[0].session
    back = Back(turn, queued, settled, text, session, served, conversation, principal, own)
    return (yield from _BRING_BACK[errand](dialect, back, stamp))


def _title(dialect: Dialect, back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """A title that a person gave meanwhile stays."""
    title = clean_title(back.text) if back.is_done else ""
    known = yield from row(_TITLE, back.served)
    if not title or known is None or known[0]:
        return []
    yield from run(_SET_TITLE, title, back.served)
    return (yield from journal.append(dialect, back.served, [TitleSet(title=title)], at=stamp.at))


def _background(dialect: Dialect, back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """The result is a turn of the live session, in its line like any other: it is said in order, on
    every surface, and the model knows of it afterwards."""
    if back.is_untold:
        return []
    live, opened = yield from _live(dialect, back, stamp)
    line = back.queued.text.strip().splitlines()[0][:80]
    said = back.text if back.is_done else f"{back.text}\n\n(It {_failure(back.settled)})".strip()
    is_short = back.is_done and back.settled.reason != StopReason.STOP
    event = TurnQueued(
        turn=back.turn,
        message=back.queued.message,
        text=back.queued.text,
        kind=RESULT,
        agent=back.settled.agent,
        attachments=as_fetched(back.queued, places_of(back.events)),
        files=given_in(back.events),
        origin=back.turn,
        by=back.principal,
        traits=back.queued.traits,
        answer=f"In the background: {line}\n\n{said or SILENT}",
        finish=back.settled.reason if is_short else "",
    )
    return opened + (yield from bring(dialect, live, event, stamp))


def _live(dialect: Dialect, back: Back, stamp: Stamp) -> Op[tuple[SessionId, list[Recorded]]]:
    """The session in which the result can be said: a new one where the live one is suspended."""
    found = yield from row(_LIVE, back.conversation)
    assert found is not None
    live: SessionId = found[0]
    state = yield from row(_STATE, live)
    assert state is not None
    if state[0] == "open":
        return live, []
    by = back.principal
    opened = yield from open_successor(dialect, live, back.conversation, stamp, by=by)
    yield from make_live(back.conversation, opened.session)
    return opened.session, [opened]


def bring(
    dialect: Dialect, session: SessionId, result: TurnQueued, stamp: Stamp
) -> Op[list[Recorded]]:
    """Put a result into the line of this session, as a turn of its own."""
    event = msgspec.structs.replace(
        result, turn=TurnId(stamp.mint("trn")), message=MessageId(stamp.mint("msg"))
    )
    return (yield from queue_turn(dialect, session, event, stamp))


def bring_unsaid(
    dialect: Dialect, turns: Sequence[TurnId], session: SessionId, stamp: Stamp
) -> Op[list[Recorded]]:
    """Those of these turns that have ended and were results, or sent from elsewhere, and that
    nobody has heard yet, are said in this session: they are for the conversation, not for one
    session."""
    recorded: list[Recorded] = []
    for turn in turns:
        events = yield from journal.of_turn(turn)
        first = events[0].event
        is_said = any(isinstance(each.event, AssistantSaid) for each in events)
        if isinstance(first, TurnQueued) and first.kind in UNASKED and not is_said:
            recorded += yield from bring(dialect, session, first, stamp)
    return recorded


def _failure(settled: TurnSettled) -> str:
    """Say how an errand ended, for everybody in the conversation that it comes back to."""
    if settled.outcome is Outcome.SUSPENDED:
        return f"was interrupted too often and is given up ({settled.turn})"
    why = told(settled.outcome, settled.reason, settled.detail, Audience.PEOPLE)
    return f"ended as {settled.outcome}: {why or settled.reason} ({settled.turn})"


def _memory(dialect: Dialect, back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """The session that waits for it may begin now; if it failed, the people there are told."""
    live = yield from row(_LIVE, back.conversation)
    assert live is not None
    yield from run(_RELEASE, stamp.at, live[0], back.served)
    if back.is_done or back.is_untold:
        return []
    text = f"The memories of the last session could not be saved: it {_failure(back.settled)}."
    return (yield from notice(dialect, live[0], None, text, stamp))


def _summary(dialect: Dialect, back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    live = yield from row(_LIVE, back.conversation)
    assert live is not None
    opened = (yield from journal.since(back.session, 0, limit=1))[0].event
    assert isinstance(opened, SessionOpened)
    upto = opened.head
    assert upto is not None
    summary = compaction.Summary(
        errand=back.turn,
        session=back.served,
        upto=upto,
        text=back.text if back.is_done else "",
        failure="" if back.is_done else _failure(back.settled),
        cost=back.settled.cost,
    )
    recorded = yield from compaction.apply(dialect, summary, stamp)
    if opened.reason == "automatic" or back.is_untold:
        return recorded
    text = compaction.told(recorded)
    return recorded + (yield from notice(dialect, live[0], None, text, stamp))


def _sticker(dialect: Dialect, back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """The words are for whoever sends the sticker next; those who wait for them look again."""
    yield from stickers.described(back.turn, clean_words(back.text) if back.is_done else "", stamp)
    return []


_BRING_BACK: Final[Mapping[Errand, Callable[[Dialect, Back, Stamp], Op[list[Recorded]]]]] = {
    Errand.TITLE: _title,
    Errand.BACKGROUND: _background,
    Errand.MEMORY: _memory,
    Errand.SUMMARY: _summary,
    Errand.STICKER: _sticker,
}
