"""Opens errands beside a conversation, and brings their results back when they are over. Answers
that belong into another conversation are sent on in the same way.

The result is brought back in the transaction that settles the errand's turn, however it ends. So
after a crash the errand is either unfinished, or finished with its result brought back once. The
errand's session is locked first, then the conversation and the session it serves.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.address import is_shared
from perdure.domain.content.silence import is_silent
from perdure.domain.content.stickers import clean_words
from perdure.domain.ids import ConversationId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.attachments import as_fetched, given_in, places_of
from perdure.domain.journal.events import (
    NO_TRAITS,
    AssistantSaid,
    Attachment,
    Recorded,
    SenderTraits,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.session_events import SessionOpened, TitleSet
from perdure.domain.journal.transcript import reply_text
from perdure.domain.kinds import UNASKED, TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.people.access import is_access_ended
from perdure.domain.sayings.saying import worded
from perdure.domain.schedule.boot import BOOT
from perdure.domain.turn.endings import SILENT, Audience, visible_reason
from perdure.domain.turn.errands import clean_title
from perdure.domain.turn.recovery import SUSPENDED
from perdure.store.operations import journal, stickers
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.delivery import operators
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.jobs import ending
from perdure.store.operations.sessions import compaction, places, recency
from perdure.store.operations.sessions.sessions import make_live, open_session, open_successor
from perdure.store.operations.turn_context import Stamp, TurnContext
from perdure.store.operations.turns import returning
from perdure.store.operations.turns.session_queue import queue_turn
from perdure.store.statement import Op, exists, one, run

# Finds which session and person an errand's session serves.
_SERVED = """
    SELECT parent_id, conversation_id, principal_id FROM sessions WHERE id = $1"""
# Locks a conversation and finds its live session.
_LIVE = "SELECT session_id FROM conversations WHERE id = $1 FOR NO KEY UPDATE"
# Locks a session to see whether it is open.
_STATE = "SELECT state FROM sessions WHERE id = $1 FOR UPDATE"
# Locks a session to see whether it has a title.
_TITLE = "SELECT title FROM sessions WHERE id = $1 FOR UPDATE"
# Gives a session its title.
_SET_TITLE = "UPDATE sessions SET title = $1 WHERE id = $2"
# Finds an unfinished errand of this kind. Only one is sent at a time, so it is among the newest;
# there may have been thousands.
_RUNNING = """
    SELECT t.id FROM (
        SELECT s.id FROM sessions s WHERE s.parent_id = $1 AND s.kind = $2 AND s.kind <> ''
        ORDER BY s.opened_at DESC LIMIT 8) newest
    CROSS JOIN turns t WHERE t.session_id = newest.id AND t.outcome IS NULL LIMIT 1"""
# Releases a session that waits for the errand of the session before it.
_RELEASE = """
    UPDATE sessions SET hold_until = NULL, wait_until = NULL WHERE id = $1 AND parent_id = $2"""

# Finds the address of a conversation, and who owns it.
_WHERE = f"SELECT {ADDRESS} FROM conversations c WHERE c.id = $1"
_OWNER = "SELECT principal_id FROM conversations WHERE id = $1"
# Finds the platform of a session's conversation.
_ADAPTER = """
    SELECT c.adapter FROM sessions s JOIN conversations c ON c.id = s.conversation_id
    WHERE s.id = $1"""


# Outcomes of a run of a job that people are told of, besides its result.
_TOLD_OF_RUNS: Final = (Outcome.FAILED, Outcome.REFUSED, Outcome.SUSPENDED, Outcome.INTERRUPTED)


class _Served(NamedTuple):
    session: SessionId
    conversation: ConversationId
    principal: PrincipalId


class Order(NamedTuple):
    """Describes an errand for `session`, which looks back from the turn `at`. `within` is a session
    of its own that it has had before, and `answer` a text that it says without asking a model. An
    agent has ordered it in the turn `ordered_by`, as `turn`; `depth` agents are above it."""

    errand: TurnKind
    session: SessionId
    conversation: ConversationId
    principal: PrincipalId
    at: TurnId | None
    message: MessageId
    text: str = ""
    agent: str = ""
    stand_in: str = ""
    persona: str = ""
    effort: str = ""
    attachments: tuple[Attachment, ...] = ()
    reason: str = "automatic"
    traits: SenderTraits = NO_TRAITS
    within: SessionId | None = None
    answer: str = ""
    turn: TurnId | None = None
    ordered_by: TurnId | None = None
    depth: int = 0


class Back(NamedTuple):
    """Holds a finished errand, and whom it served."""

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
        """Tell whether the errand succeeded."""
        return self.settled.outcome is Outcome.DONE

    @property
    def is_untold(self) -> bool:
        """Tell whether its person lost access. They are told nothing then, like strangers."""
        return is_access_ended(self.settled.reason)


def begin(order: Order, stamp: Stamp) -> Op[list[Recorded]]:
    """Open the errand's session and queue its turn. Returns the events it appended; the last one
    names the turn."""
    session = order.within or SessionId(stamp.mint("ses"))
    turn = order.turn or TurnId(stamp.mint("trn"))
    if order.within is None:
        yield from _open(order, session, stamp)
    queued = TurnQueued(
        turn=turn,
        message=order.message,
        text=order.text,
        kind=order.errand,
        agent=order.agent,
        stand_in=order.stand_in,
        attachments=order.attachments,
        persona=order.persona,
        effort=order.effort,
        by=order.principal,
        traits=order.traits,
        answer=order.answer,
        ordered_by=order.ordered_by,
        depth=order.depth,
    )
    return (yield from queue_turn(session, queued, stamp))


def _open(order: Order, session: SessionId, stamp: Stamp) -> Op[None]:
    opened = SessionOpened(
        by=order.principal,
        reason=order.reason,
        parent=order.session,
        head=order.at,
        kind=order.errand,
    )
    principal = order.principal
    yield from open_session(session, order.conversation, opened, stamp, principal=principal)


def person_of(context: TurnContext) -> PrincipalId:
    """Return for whom an errand about a whole session is run: the session's own person; in a shared
    place the person who asked, because the one who opened the place may be gone."""
    update = context.update
    if is_shared(update.address, update.place_kind):
        return update.principal
    return context.place.principal


def is_running(session: SessionId, errand: TurnKind) -> Op[bool]:
    """Tell whether such an errand is already under way for this session."""
    return (yield from exists(_RUNNING, session, errand))


def ended(turn: TurnId, events: Sequence[Recorded], stamp: Stamp) -> Op[list[Recorded]]:
    """Bring back the result of a turn that was an errand, or send on the answer of one that asked
    for it; do nothing for other turns. `events` are
    all events of the turn, or only its last."""
    if not isinstance(events[0].event, TurnQueued):
        events = yield from journal.of_turn(turn)
    queued = events[0].event
    assert isinstance(queued, TurnQueued)
    errand = queued.kind
    if not errand.is_errand and queued.deliver_to is None:
        return []
    own = [recorded for recorded in events if recorded.turn == turn]
    settled = own[-1].event
    session = events[0].session
    if not errand.is_errand:
        return (yield from _sent_on(queued, own, stamp, session=session))
    served = yield from one(_Served, _SERVED, session)
    assert served is not None
    assert isinstance(settled, TurnSettled)
    back = Back(turn, queued, settled, reply_text(own), session, *served, own)
    return (yield from _BRING_BACK[errand](back, stamp))


def _sent_on(
    queued: TurnQueued, own: Sequence[Recorded], stamp: Stamp, *, session: SessionId
) -> Op[list[Recorded]]:
    """Queue the answer of a turn in the conversation where its message wanted it, or that there is
    none. A turn that somebody has stopped or replaced has none. It is said in the name of the one
    who sent the message, so it is not said any more once they may not send."""
    settled, text, files = own[-1].event, reply_text(own), given_in(own)
    assert isinstance(settled, TurnSettled)
    is_done = settled.outcome is Outcome.DONE
    is_untold = settled.outcome not in _TOLD_OF_RUNS or is_access_ended(settled.reason)
    said = text if is_done else f"{text}\n\n(It {failure(settled)})".strip()
    if (is_untold if not is_done else not (said or files)) or is_silent(text):
        return []
    where = yield from one(address_of, _WHERE, queued.deliver_to)
    owner = yield from one(PrincipalId, _OWNER, queued.deliver_to)
    adapter = yield from one(str, _ADAPTER, session)
    assert where is not None
    assert owner is not None
    arriving = Update(address=where, external_id="", kind=UpdateKind.SENT, principal=owner, text="")
    place = yield from places.resolve(arriving, stamp)
    result = TurnQueued(
        turn=TurnId(""),
        message=MessageId(""),
        text="",
        kind=TurnKind.SENT,
        answer=said,
        files=files,
        by=queued.by,
        via=place.via,
        sent_from=adapter or "",
    )
    recorded = yield from bring(place.session, result, stamp)
    if place.is_successor:
        recorded += yield from notice(place.session, None, SUSPENDED, stamp)
    shown_in = place.via or place.conversation
    yield from recency.touch_conversation(shown_in, at=stamp.at, is_listed=True)
    return [*place.opened, *recorded]


def _title(back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """Set the session's title, unless a person has set one meanwhile."""
    title = clean_title(back.text) if back.is_done else ""
    known = yield from one(str, _TITLE, back.served)
    if not title or known is None or known:
        return []
    yield from run(_SET_TITLE, title, back.served)
    return (yield from journal.append(back.served, [TitleSet(title=title)], at=stamp.at))


def _background(back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """Queue the result as a turn of the live session, in line like any other: so it is said in
    order, on every surface, and the model knows it afterwards."""
    if back.is_untold:
        return []
    live, opened = yield from live_session(back.conversation, stamp, by=back.principal)
    line = back.queued.text.strip().splitlines()[0][:80]
    said = back.text if back.is_done else f"{back.text}\n\n(It {failure(back.settled)})".strip()
    answer = f"In the background: {line}\n\n{said or SILENT}"
    return opened + (yield from bring(live, _result(back, answer), stamp))


def _result(back: Back, answer: str) -> TurnQueued:
    """Return the turn that says an errand's result. Its ids are made when it is brought."""
    is_short = back.is_done and back.settled.reason != StopReason.STOP
    return TurnQueued(
        turn=back.turn,
        message=back.queued.message,
        text=back.queued.text,
        kind=TurnKind.RESULT,
        agent=back.settled.agent,
        attachments=as_fetched(back.queued, places_of(back.events)),
        files=given_in(back.events),
        origin=back.turn,
        by=back.principal,
        traits=back.queued.traits,
        answer=answer,
        finish=back.settled.reason if is_short else "",
    )


def _scheduled(back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """Queue what a run of a job has found as a turn of the live session, or tell that the run has
    failed; say nothing if there is nothing to say."""
    recorded: list[Recorded] = []
    result: TurnId | None = None
    said = back.text or (str(SILENT) if given_in(back.events) else "")
    is_quiet = back.is_done and (not said or is_silent(back.text))
    if back.is_done and not is_quiet:
        live, recorded = yield from live_session(back.conversation, stamp, by=back.principal)
        answer = _result(back, said)
        if (yield from ending.job_of(back.turn)) == BOOT:
            # Nobody has asked in the conversation, so its history holds the answer alone.
            answer = msgspec.structs.replace(answer, kind=TurnKind.SENT, text="", attachments=())
        brought = yield from bring(live, answer, stamp)
        queued = brought[0].event
        assert isinstance(queued, TurnQueued)
        result = queued.turn
        recorded += brought
    elif back.settled.outcome in _TOLD_OF_RUNS and not back.is_untold:
        name = yield from ending.name_of(back.turn)
        words = worded(
            "The job {name!r} has run and {failure}.", name=name, failure=failure(back.settled)
        )
        recorded += yield from _tell_here(back, words, stamp)
    after = yield from ending.run_is_over(
        back.turn, back.settled, result=result, is_silent=is_quiet, stamp=stamp
    )
    if after is not None and after.is_paused_now:
        words = worded("The job {name!r} is paused: {why}.", name=after.job.name, why=after.job.why)
        if back.is_untold:
            recorded += yield from operators.tell(words, stamp, but=back.conversation)
        else:
            recorded += yield from _tell_here(back, words, stamp)
    return recorded


def _tell_here(back: Back, words: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell the people of an errand's conversation something."""
    live, recorded = yield from live_session(back.conversation, stamp, by=back.principal)
    return recorded + (yield from notice(live, None, words, stamp))


def live_session(
    conversation: ConversationId, stamp: Stamp, *, by: PrincipalId
) -> Op[tuple[SessionId, list[Recorded]]]:
    """Lock a conversation, and return the session in which something can be said: a new one if the
    live one is suspended."""
    live = yield from _lock_live(conversation)
    if (yield from one(str, _STATE, live)) == "open":
        return live, []
    opened = yield from open_successor(live, conversation, stamp, by=by)
    yield from make_live(conversation, opened.session)
    return opened.session, [opened]


def _lock_live(conversation: ConversationId) -> Op[SessionId]:
    """Lock a conversation and return its live session."""
    live = yield from one(SessionId, _LIVE, conversation)
    assert live is not None
    return live


def bring(session: SessionId, result: TurnQueued, stamp: Stamp) -> Op[list[Recorded]]:
    """Queue a result in this session, as a new turn with a new message id."""
    event = msgspec.structs.replace(
        result, turn=TurnId(stamp.mint("trn")), message=MessageId(stamp.mint("msg"))
    )
    return (yield from queue_turn(session, event, stamp))


def bring_unsaid(turns: Sequence[TurnId], session: SessionId, stamp: Stamp) -> Op[list[Recorded]]:
    """Queue again those of these ended turns that were results, or sent from elsewhere, and were
    never said: they are meant for the conversation, not for one session."""
    recorded: list[Recorded] = []
    for turn in turns:
        events = yield from journal.of_turn(turn)
        first = events[0].event
        is_said = any(isinstance(each.event, AssistantSaid) for each in events)
        if isinstance(first, TurnQueued) and first.kind in UNASKED and not is_said:
            recorded += yield from bring(session, first, stamp)
    return recorded


def failure(settled: TurnSettled) -> str:
    """Return how an errand ended, in words for everybody in the conversation."""
    if settled.outcome is Outcome.SUSPENDED:
        return f"was interrupted too often and is given up ({settled.turn})"
    why = visible_reason(settled.outcome, settled.reason, settled.detail, Audience.PEOPLE)
    return f"ended as {settled.outcome}: {why or settled.reason} ({settled.turn})"


def _memory(back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """Release the session that waits for this errand. If the errand failed, tell the people
    there."""
    live = yield from _lock_live(back.conversation)
    yield from run(_RELEASE, live, back.served)
    if back.is_done or back.is_untold:
        return []
    text = f"The memories of the last session could not be saved: it {failure(back.settled)}."
    return (yield from notice(live, None, text, stamp))


def _summary(back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """Let the summary replace the turns it was made from, and tell the person who asked for it."""
    live = yield from _lock_live(back.conversation)
    opened = (yield from journal.one(back.session, 1)).event
    assert isinstance(opened, SessionOpened)
    upto = opened.head
    assert upto is not None
    summary = compaction.WrittenSummary(
        errand=back.turn,
        session=back.served,
        upto=upto,
        text=back.text if back.is_done else "",
        failure="" if back.is_done else failure(back.settled),
        cost=back.settled.cost,
    )
    recorded = yield from compaction.apply(summary, stamp)
    if opened.reason == "automatic" or back.is_untold:
        return recorded
    text = compaction.told(recorded)
    return recorded + (yield from notice(live, None, text, stamp))


def _sticker(back: Back, _stamp: Stamp) -> Op[list[Recorded]]:
    """Store the description for everybody who sends this sticker, and wake the turns that wait for
    it."""
    yield from stickers.described(back.turn, clean_words(back.text) if back.is_done else "")
    return []


def _delegated(back: Back, stamp: Stamp) -> Op[list[Recorded]]:
    """Let the turn that waits for this errand go on. It reads what came of it in the errand's
    journal."""
    return (yield from returning.errand_is_over(back.turn, stamp))


_BRING_BACK: Final[Mapping[TurnKind, Callable[[Back, Stamp], Op[list[Recorded]]]]] = {
    TurnKind.TITLE: _title,
    TurnKind.BACKGROUND: _background,
    TurnKind.MEMORY: _memory,
    TurnKind.SUMMARY: _summary,
    TurnKind.STICKER: _sticker,
    TurnKind.SCHEDULED: _scheduled,
    TurnKind.DELEGATED: _delegated,
}
