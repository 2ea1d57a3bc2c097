"""Checks what must hold of everything that is stored about a session, in one pure function.

The crash simulator, the chaos runs and `perdure verify` call it. It trusts nothing: it compares the
rows with what the journal says they should be, and the journal with the state machines of the
domain.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from perdure.domain.checking.delegation_rules import delegations_follow_the_journal
from perdure.domain.checking.question_rules import (
    calls_wait_for_their_approval,
    effects_follow_the_journal,
    questions_follow_the_journal,
)
from perdure.domain.delivery import AHEAD, REPLY, DeliveryStep, PartState
from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId, MessageId, SessionId, TurnId
from perdure.domain.journal.attachments import unread_count
from perdure.domain.journal.events import (
    AssistantSaid,
    AttemptInterrupted,
    InterruptionAcknowledged,
    PromptExpanded,
    Recorded,
    ToolFinished,
    TurnAmended,
    TurnEvent,
    TurnMoved,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.records import SessionRecord, TurnView
from perdure.domain.journal.session_events import (
    CommandTaken,
    Compacted,
    CompactionDropped,
    SessionOpened,
    SessionResumed,
    TitleSet,
)
from perdure.domain.journal.transcript import reply_text
from perdure.domain.kinds import UNASKED
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.history import history_of, open_after
from perdure.domain.prompt.prompt import assert_valid, messages_of, weave
from perdure.domain.turn.recovery import told_by
from perdure.domain.turn.standing import SessionStanding, after
from perdure.domain.turn.turn import State, Turn, evolve, opened

_FINISHES = frozenset(reason for reason in StopReason if reason.is_finish)
_AT_WORK = (State.RUNNING, State.WAITING)


def violations(record: SessionRecord) -> list[str]:
    """Return every broken rule of one session, in words. The list is empty if the session is
    sound."""
    by_turn = _by_turn(record.events)
    found = [
        *_journal_is_gapless(record),
        *_only_waiting_turns_moved(record),
        *_rows_follow_the_journal(record, by_turn),
        *_files_follow_the_journal(record, by_turn),
        *_session_follows_the_journal(record, by_turn),
        *_calls_are_answered(by_turn),
        *questions_follow_the_journal(record, by_turn),
        *delegations_follow_the_journal(record, by_turn),
        *calls_wait_for_their_approval(by_turn),
        *effects_follow_the_journal(record, by_turn),
        *_endings_are_honest(by_turn),
        *_prompts_come_once(by_turn),
        *_interruptions_are_told_once(record),
        *_rows_know_what_was_told(record, by_turn),
        *_partials_belong_to_work(record),
        *_replies_are_whole(record, by_turn),
        *_nothing_overtakes(record),
        *_updates_have_turns(record),
        *_title_follows_the_journal(record),
        *_summaries_are_in_force(record),
        *_history_is_valid(record, by_turn),
    ]
    return [f"{record.session.id}: {each}" for each in found]


def _by_turn(events: Sequence[Recorded]) -> dict[TurnId, list[Recorded]]:
    """Return the events of each turn, except of turns that moved to another session. They are
    checked there."""
    moved = _moved(events)
    turns: dict[TurnId, list[Recorded]] = {}
    for recorded in events:
        if recorded.turn is not None and recorded.turn not in moved:
            turns.setdefault(recorded.turn, []).append(recorded)
    return turns


def _moved(events: Sequence[Recorded]) -> set[TurnId]:
    """Return the turns that moved from this session to another."""
    return {recorded.event.turn for recorded in events if isinstance(recorded.event, TurnMoved)}


def _only_waiting_turns_moved(record: SessionRecord) -> Iterator[str]:
    begun = {r.event.turn for r in record.events if isinstance(r.event, TurnStarted | TurnSettled)}
    for turn in _moved(record.events) & begun:
        yield f"{turn} went on elsewhere though it had begun here"


def _journal_is_gapless(record: SessionRecord) -> Iterator[str]:
    seqs = [recorded.seq for recorded in record.events]
    if seqs != list(range(1, len(seqs) + 1)):
        yield "the journal's numbers have a gap"
    if len(seqs) != record.session.events:
        yield f"the journal holds {len(seqs)} events, the session says {record.session.events}"


def _rows_follow_the_journal(
    record: SessionRecord, by_turn: dict[TurnId, list[Recorded]]
) -> Iterator[str]:
    rows = {turn.id: turn for turn in record.turns}
    for turn_id in rows.keys() ^ by_turn.keys():
        yield f"{turn_id} is in the journal or among the rows, not in both"
    for turn_id in rows.keys() & by_turn.keys():
        try:
            folded = _folded(by_turn[turn_id])
        except Corrupt as error:
            yield error.message
            continue
        if _differs(rows[turn_id], folded):
            yield f"{turn_id}: the row says {rows[turn_id]}, the journal {folded}"
    if sum(turn.state in _AT_WORK for turn in record.turns) > 1:
        yield "two turns are at work at once"


def _folded(events: Sequence[Recorded]) -> Turn:
    first = events[0].event
    if not isinstance(first, TurnQueued):
        raise Corrupt(f"{events[0].turn} begins with {type(first).__name__}")
    turn = opened(first)
    for recorded in events[1:]:
        event = recorded.event
        if isinstance(event, TurnQueued):
            raise Corrupt(f"{turn.id} was queued twice")
        if isinstance(event, TurnEvent):
            turn = evolve(turn, event)
        elif turn.state is State.SETTLED and not isinstance(event, TurnAmended):
            raise Corrupt(f"{turn.id}: {type(event).__name__} after it was settled")
    return turn


def _differs(row: TurnView, turn: Turn) -> bool:
    return (row.state, row.outcome, row.attempts, row.parent) != (
        turn.state,
        turn.outcome,
        turn.attempts,
        turn.parent,
    )


def _files_follow_the_journal(
    record: SessionRecord, by_turn: dict[TurnId, list[Recorded]]
) -> Iterator[str]:
    """Check how many files each turn waits for. A turn that has begun or ended waits for none,
    because nobody fetches files for it any more."""
    open_rows = dict(record.fetches)
    for turn in record.turns:
        waits = turn.outcome is None and not turn.attempts
        to_come = unread_count(by_turn.get(turn.id, [])) if waits else 0
        counted = (turn.fetching, open_rows.get(turn.id, 0))
        if counted != (to_come, to_come):
            yield f"{turn.id} waits for {to_come} files, the rows say {counted}"


def _session_follows_the_journal(
    record: SessionRecord, by_turn: dict[TurnId, list[Recorded]]
) -> Iterator[str]:
    standing = SessionStanding(session=record.session.id)
    strikes = 0
    for recorded in record.events:
        standing = after(standing, recorded.event)
        match recorded.event:
            case AttemptInterrupted(reason=reason):
                strikes += reason.counts_towards_limit
            case TurnSettled(outcome=Outcome.DONE) | SessionResumed():
                strikes = 0
            case _:
                pass
    if standing.head != record.head:
        yield f"the head is {record.head}, by the journal {standing.head}"
    if strikes != record.strikes:
        yield f"{record.strikes} strikes are counted, by the journal {strikes}"
    waits = bool(standing.queued)
    first = next((turn for turn in record.turns if turn.state == State.QUEUED), None)
    blocked = any(_blocks(turn, first.id if first else None, by_turn) for turn in record.turns)
    has_files = first is None or not unread_count(by_turn.get(first.id, []))
    should_be_ready = waits and not blocked and has_files and record.session.state == "open"
    if should_be_ready != (record.ready_at is not None):
        yield f"ready is {record.ready_at is not None}, by the journal {should_be_ready}"


def _blocks(turn: TurnView, first: TurnId | None, by_turn: dict[TurnId, list[Recorded]]) -> bool:
    """Tell whether a turn keeps the first in line from being claimed. An interrupted turn may wait
    for its people for ever. So a turn whose text is said as it is (`UNASKED`) does not wait for
    it."""
    if turn.state == State.INTERRUPTED:
        return _is_unasked(by_turn.get(turn.id)) or not _is_unasked(by_turn.get(first or turn.id))
    return turn.state in _AT_WORK


def _is_unasked(events: Sequence[Recorded] | None) -> bool:
    """Tell whether these are the events of a turn whose text is said without asking a model."""
    queued = events[0].event if events else None
    return isinstance(queued, TurnQueued) and queued.kind in UNASKED


def _calls_are_answered(by_turn: dict[TurnId, list[Recorded]]) -> Iterator[str]:
    for turn_id, events in by_turn.items():
        asked: Counter[CallId] = Counter()
        answered: Counter[CallId] = Counter()
        for recorded in events:
            event = recorded.event
            if isinstance(event, AssistantSaid):
                if event.calls:
                    asked.update(call.id for call in event.calls)
            elif isinstance(event, ToolFinished) and not event.is_callers:
                answered[event.call] += 1
        if not asked and not answered:
            continue
        if any(count > 1 for count in answered.values()) or answered - asked:
            yield f"{turn_id}: a call was answered twice, or never made"
        unanswered = asked - answered - _may_be_open(events)
        if unanswered:
            yield f"{turn_id}: calls {sorted(unanswered)} were never answered"


def _may_be_open(events: Sequence[Recorded]) -> Counter[CallId]:
    """Return the calls of a turn that may be without a result: all calls while it is not over, and
    then those that its caller answers, if it ended with them. Old journals do not say whose tools
    were called; there it was always the caller's."""
    settled = _settled(events)
    if settled is not None and settled.reason != StopReason.TOOL_CALLS:
        return Counter()
    said = (r.event for r in events if isinstance(r.event, AssistantSaid))
    calls = [call for each in said for call in each.calls]
    theirs = [call.id for call in calls if call.is_callers]
    is_told_apart = settled is not None and theirs
    return Counter(theirs if is_told_apart else [call.id for call in calls])


def _settled(events: Sequence[Recorded]) -> TurnSettled | None:
    return next((r.event for r in events if isinstance(r.event, TurnSettled)), None)


def _endings_are_honest(by_turn: dict[TurnId, list[Recorded]]) -> Iterator[str]:
    for turn_id, events in by_turn.items():
        settled = _settled(events)
        if settled and settled.outcome is Outcome.DONE and settled.reason not in _FINISHES:
            yield f"{turn_id}: done without the provider's finish marker ({settled.reason})"
        said = [r.event.message for r in events if isinstance(r.event, AssistantSaid)]
        if len(set(said)) < len(said):
            yield f"{turn_id}: a message was written twice"


def _prompts_come_once(by_turn: dict[TurnId, list[Recorded]]) -> Iterator[str]:
    """Check that a turn has the text of one prompt at most, that its own message names the prompt,
    and that the model had said nothing before."""
    for turn_id, events in by_turn.items():
        facts = [recorded.event for recorded in events]
        expanded = [each for each in facts if isinstance(each, PromptExpanded)]
        if not expanded:
            continue
        first = facts[0]
        if len(expanded) > 1 or expanded[0].message != getattr(first, "message", None):
            yield f"{turn_id}: a prompt was expanded twice, or for another message"
        if any(isinstance(each, AssistantSaid) for each in facts[: facts.index(expanded[0])]):
            yield f"{turn_id}: a prompt was expanded after the model had answered"


def _interruptions_are_told_once(record: SessionRecord) -> Iterator[str]:
    """Check that this session acknowledges each interruption at most once, and none of its own that
    did not happen. An errand must not be told what happened in other sessions."""
    own = record.session.id
    happened = {r.key for r in record.events if isinstance(r.event, AttemptInterrupted)}
    for (session, seq), times in Counter(_told(record.events)).items():
        if times > 1:
            yield f"interruption {seq} of {session} was acknowledged {times} times"
        if session == own and (session, seq) not in happened:
            yield f"interruption {seq} was acknowledged and never happened"
        if session != own and record.session.kind:
            yield f"an errand was told of interruption {seq} of {session}"


def _told(events: Sequence[Recorded]) -> list[tuple[SessionId, int]]:
    """Return the keys of the interruptions that are acknowledged. Old acknowledgements are left
    out: they name no session, and in a branch they may speak of another journal."""
    told = [r for r in events if isinstance(r.event, InterruptionAcknowledged) and r.event.session]
    return [told_by(each) for each in told]


def _rows_know_what_was_told(
    record: SessionRecord, by_turn: dict[TurnId, list[Recorded]]
) -> Iterator[str]:
    """Check what each turn's row says of its newest interruption that the model was told of. It may
    be newer than those acknowledged here, because another session may have told the model."""
    rows = dict(record.told)
    acknowledged = set(_told(record.events))
    for turn_id, events in by_turn.items():
        happened = [r for r in events if isinstance(r.event, AttemptInterrupted)]
        told = max((r.seq for r in happened if r.key in acknowledged), default=0)
        row = rows.get(turn_id, 0)
        if row < told or row not in {0, *(r.seq for r in happened)}:
            yield f"{turn_id}: the model was told up to {told}, the row says {row}"


def _partials_belong_to_work(record: SessionRecord) -> Iterator[str]:
    at_work = {turn.id for turn in record.turns if turn.state in _AT_WORK}
    for turn in record.partials:
        if turn not in at_work:
            yield f"{turn} left unfinished text behind"


def _replies_are_whole(
    record: SessionRecord, by_turn: dict[TurnId, list[Recorded]]
) -> Iterator[str]:
    """Check that no part of a reply is missing, and that its parts tell the whole text. The parts
    that went ahead come first. Parts may also hold words that are not in the text: the frames that
    were put around its pieces, and how the turn ended."""
    parts: dict[TurnId, list[str]] = {}
    for name in (AHEAD, REPLY):
        for part in record.parts:
            if part.turn is None or part.message != f"{part.turn}{name}":
                continue  # a notice, or the answer to a command
            texts = parts.setdefault(part.turn, [])
            if part.part != len(texts):
                yield f"{part.turn}: part {len(texts)} of the reply is missing"
            texts.append(part.text)
    replied = {part.turn for part in record.parts if part.message == f"{part.turn}{REPLY}"}
    for turn, texts in parts.items():
        events = by_turn.get(turn, [])
        settled = _settled(events)
        # If the turn was cut, the parts that went ahead may be all that people ever see.
        is_final = turn in replied or (settled is not None and settled.outcome is Outcome.DONE)
        if is_final and not _are_told(reply_text(events), "".join(texts)):
            yield f"{turn}: the reply's parts do not tell its text"


def _are_told(words: str, told: str) -> bool:
    """Tell whether all letters and digits of `words` are in `told`, in the same order."""
    if words in told:  # nearly always true, and found out a hundred times faster
        return True
    rest = iter(told)
    return all(letter in rest for letter in words if letter.isalnum())


def _nothing_overtakes(record: SessionRecord) -> Iterator[str]:
    """Check that nothing is shown in a conversation while a part before it is on its way. Two kinds
    of parts are exempt: marks, which are no words, and parts that a person had sent again, which
    are late by nature."""
    first: dict[str, str] = {}
    for part in record.parts:
        if part.step == DeliveryStep.REACT or part.is_replayed:
            continue
        is_open = part.state in (PartState.PENDING, PartState.ATTEMPTING)
        if part.address in first and part.state in (PartState.ATTEMPTING, PartState.SENT):
            yield f"{part.id} is {part.state} before {first[part.address]}, which stands first"
        elif is_open:
            first.setdefault(part.address, part.id)


def _updates_have_turns(record: SessionRecord) -> Iterator[str]:
    """Check that the turn of each update is in this session, unless the update is a command: its
    turn may be an errand's. Check that each message came with one update; a turn may have several
    (steers, an answer to a question)."""
    known = {turn.id for turn in record.turns}
    commands = {r.event.message for r in record.events if isinstance(r.event, CommandTaken)}
    messages = Counter(message for _, _, message in record.updates)
    for update, turn, message in record.updates:
        if turn is not None and turn not in known and message not in commands:
            yield f"{update} belongs to {turn}, which is not here"
        if messages[message] > 1:
            yield f"{message} came with {messages[message]} updates"


def _title_follows_the_journal(record: SessionRecord) -> Iterator[str]:
    titles = [r.event.title for r in record.events if isinstance(r.event, TitleSet)]
    title = titles[-1] if titles else ""
    if title != record.session.title:
        yield f"the title is {record.session.title!r}, by the journal {title!r}"


def _summaries_are_in_force(record: SessionRecord) -> Iterator[str]:
    dropped = {r.event.compaction for r in record.events if isinstance(r.event, CompactionDropped)}
    for summary in record.summaries:
        made = summary.made.event if summary.made else None
        if not isinstance(made, Compacted) or made.upto != summary.turn:
            yield f"{summary.turn}: its summary {summary.id} was made for another turn, or never"
        if summary.id in dropped:
            yield f"{summary.turn}: its summary {summary.id} was dropped"
    if record.summaries_under_way > 1:
        yield f"{record.summaries_under_way} summaries are being written at once"


def _history_is_valid(
    record: SessionRecord, by_turn: dict[TurnId, list[Recorded]]
) -> Iterator[str]:
    """Check that strict providers would accept the next request, whatever its message says. Errands
    are not checked, because nothing follows an errand."""
    opened = record.events[0].event if record.events else None
    if isinstance(opened, SessionOpened) and opened.kind:
        return
    parents = {turn.id: turn.parent for turn in record.turns}
    chain: list[list[Recorded]] = []
    turn = record.head
    while turn is not None and turn in by_turn and len(chain) <= len(parents):
        chain.append(by_turn[turn])
        turn = parents[turn]
    history = history_of(chain[::-1])
    if not history:
        return
    turn_id = TurnId("next")
    queued = TurnQueued(turn=turn_id, message=MessageId("next"), text="next")
    next_turn = [Recorded(session=record.session.id, seq=0, at=0, event=queued)]
    something = messages_of(next_turn, before=open_after(chain[::-1]))
    final, newest = weave(None, [*history, *something])
    try:
        # A call without a conversation has brought the messages with which its request begins.
        begins = not any(_brings_context(turn) for turn in chain)
        assert_valid([*final, *([newest] if newest else [])], begins=begins)
    except Corrupt as error:
        yield f"the history is not valid: {error.message}"


def _brings_context(events: Sequence[Recorded]) -> bool:
    """Tell whether a turn began with messages from outside."""
    queued = events[0].event if events else None
    return isinstance(queued, TurnQueued) and bool(queued.context)
