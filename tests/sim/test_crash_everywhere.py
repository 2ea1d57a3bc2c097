"""Strike the gateway at any port call, start it again, and check what the world saw.

A scenario is a few acts, each played in a life of its own (`perdure.testkit.simulator.world`). When
everything is at rest, the database and the platform must tell the same story.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.delivery import (
    AHEAD,
    REPLY,
    WITHDRAWN,
    Capabilities,
    DeliveryStep,
    Pace,
    PartState,
    Streaming,
)
from perdure.domain.ids import PartId, TurnId
from perdure.domain.journal.attachments import as_fetched, in_words, places_of
from perdure.domain.journal.events import (
    AssistantSaid,
    AttemptInterrupted,
    MediaFetched,
    MediaLost,
    MessageJoined,
    NoticePosted,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnMoved,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.records import PartView, SessionRecord
from perdure.domain.journal.session_events import CommandTaken, HeadMoved
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Busy, Interruption, Outcome
from perdure.domain.prompt.prompt import MediaBlock, ModelRequest, TextBlock
from perdure.domain.turn.recovery import CONTINUE, Policy, Resume
from perdure.domain.turn.stream import AgentEvent, AgentText
from perdure.domain.turn.turn import State
from perdure.ports.platform.adapter import Sought
from perdure.ports.turns.turns import Settled, Settlement, TurnLease
from perdure.store.operations.delivery import replies
from perdure.store.operations.turns import turns
from perdure.store.ports.turns.turns import StoredTurns
from perdure.testkit.simulator import commits
from perdure.testkit.simulator.agent import ScriptedAgent, echo
from perdure.testkit.simulator.crash import (
    Fuse,
    Nemesis,
)
from perdure.testkit.simulator.pictures import FITTED
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import KEY, Act, Life, Setup, World, rest

# The outcomes with which people get the whole answer.
_ANSWERED = (Outcome.DONE, Outcome.SUSPENDED)
FIND = Capabilities(can_find=True, can_delete=True, upload_bytes_max=10_000)
NEITHER = Capabilities(upload_bytes_max=10_000)
GROWING = Capabilities(
    can_edit=True,
    can_delete=True,
    streaming=Streaming.EDIT,
    upload_bytes_max=10_000,
    pace=Pace(preview_s=0),
)
APPENDING = Capabilities(
    can_find=True,
    can_delete=True,
    streaming=Streaming.APPEND,
    upload_bytes_max=10_000,
    ahead_min=1,
    pace=Pace(preview_s=0),
)
SMALL = msgspec.structs.replace(KEY, text_max=800)
PLATFORMS = {
    "find": FIND,
    "neither": NEITHER,
    "growing": GROWING,
    "growing with a key": msgspec.structs.replace(GROWING, takes_key=True),
    "growing and can be asked": msgspec.structs.replace(GROWING, can_find=True),
    "growing in small messages": msgspec.structs.replace(GROWING, text_max=120),
    "appending": APPENDING,
    "appending and cannot be asked": msgspec.structs.replace(APPENDING, can_find=False),
}
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]  # one process cannot lose its lease
CLOCKS = [Nemesis.SET_BACK, Nemesis.SET_ASTRAY, Nemesis.DIE_AND_SET_BACK]


def in_paragraphs(request: ModelRequest) -> Sequence[AgentEvent]:
    """Answer so that the first piece ends with a paragraph that can no longer change."""
    return [AgentText("Well.\n\nNow then.\n\n"), *echo(request)]


async def talk(life: Life) -> None:
    life.world.say("hello")
    life.world.say("tool look")
    life.world.say("how are you", place="other")
    await life.rest()


async def supersede(life: Life) -> None:
    await life.hold("long story")
    life.world.say("never mind", busy=Busy.INTERRUPT)
    await life.receive()
    await life.rest()


async def ask_for_help(life: Life) -> None:
    """Ask for help, whose answer is longer than one message of a platform with small messages."""
    life.world.say("/help")
    await life.rest()


async def steer(life: Life) -> None:
    await life.hold("tool look")
    life.world.say("rather north", busy=Busy.STEER)
    await life.receive()
    await life.rest()


async def stop(life: Life) -> None:
    await life.hold("long story")
    await life.stop("u1")
    await life.rest()


async def stop_in_words(life: Life) -> None:
    await life.hold("long story")
    life.world.say("/stop")
    await life.receive()
    await life.rest()


async def edit(life: Life) -> None:
    """Edit a running, a waiting, the newest answered, and an older answered message."""
    await life.hold("long story")
    life.world.say("and then")
    life.world.edit("u1", "long tale")
    life.world.edit("u2", "and after that")
    await life.receive()
    await life.rest()
    life.world.edit("u2", "and before that")
    life.world.edit("u1", "short tale")
    await life.rest()


async def delete(life: Life) -> None:
    """Delete a waiting message, which is dropped, and a running one, which goes on."""
    await life.hold("long story")
    life.world.say("and then")
    life.world.delete("u2")
    life.world.delete("u1")
    await life.receive()
    await life.rest()


async def undo(life: Life) -> None:
    """Undo an answer that was shown, and one that is being written."""
    life.world.say("hello")
    await life.rest()
    life.world.say("/undo")
    await life.rest()
    await life.hold("long story")
    life.world.say("/undo")
    await life.receive()
    await life.rest()


async def send_files(life: Life) -> None:
    """Send files, and a message that must wait until they were fetched."""
    life.world.say("look at these", files=["one.txt", "two.txt"])
    life.world.say("and now?")
    await life.rest()


async def send_a_picture(life: Life) -> None:
    """Send a picture that models do not take, and the same one again."""
    for update in ("u1", "u2"):
        life.world.platform.held[f"{update}/a.tif"] = b"II*\0 and so on"
        life.world.say("look at this", files=["a.tif"])
    await life.rest()


async def lose_a_file(life: Life) -> None:
    life.world.say("look at these", files=["one.txt", "two.txt"])
    life.world.platform.gone = {"u1/two.txt"}
    await life.rest()


async def stop_with_files(life: Life) -> None:
    """Stop a turn before its files were fetched, so that they are never needed."""
    life.world.say("look at this", files=["one.txt"])
    await life.receive()
    await life.stop("u1")
    life.world.say("never mind")
    await life.rest()


async def send_album(life: Life) -> None:
    life.world.say("our garden", files=["one.txt"], album="a")
    life.world.say("", files=["two.txt"], album="a")
    life.world.say("", files=["three.txt"], album="a")
    life.world.say("and now?")
    await life.rest()


async def give_a_file(life: Life) -> None:
    life.world.say("file plan.txt")
    await life.rest()


async def drain(life: Life) -> None:
    await life.hold("long story")
    await life.drain()


async def drain_with_more(life: Life) -> None:
    """Drain while a message waits behind the answer and another was handed to it. Nobody says
    anything more."""
    await life.hold("long story")
    life.world.say("rather short", busy=Busy.STEER)
    life.world.say("and then")
    await life.receive()
    await life.drain()


async def talk_on(life: Life) -> None:
    life.world.say("and now?")
    await life.rest()


async def talk_on_if_left(life: Life) -> None:
    """See that no queued turn is left waiting, and say one more thing."""
    await life.rest()
    turns = [turn for record in await life.records() for turn in record.turns]
    assert not [turn for turn in turns if turn.state == State.QUEUED]
    life.world.say("still there?")
    await life.rest()


async def fall(life: Life) -> None:
    """Kill the gateway in the middle of an answer. What waits behind it, and what was handed to it,
    must not count as guilty of the crash."""
    await life.hold("long story")
    life.world.say("rather short", busy=Busy.STEER)
    life.world.say("look at this", files=["one.txt"])
    await life.receive()
    life.kill()


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a scenario. `outcomes` are those that its turns may have; `proof` must hold when
    nothing was struck."""

    acts: tuple[Act, ...]
    outcomes: frozenset[Outcome] = frozenset({Outcome.DONE})
    proof: Callable[[Recorded], bool]
    setup: Setup = Setup()
    last: Act = rest


def _ended(outcome: Outcome) -> Callable[[Recorded], bool]:
    def proof(recorded: Recorded) -> bool:
        return isinstance(recorded.event, TurnSettled) and recorded.event.outcome is outcome

    return proof


def _was_parked(recorded: Recorded) -> bool:
    event = recorded.event
    return isinstance(event, AttemptInterrupted) and event.reason is Interruption.SHUTDOWN


def _was_asked_again(recorded: Recorded) -> bool:
    return isinstance(recorded.event, HeadMoved) and recorded.event.reason == UpdateKind.EDIT


def _was_deleted(recorded: Recorded) -> bool:
    event = recorded.event
    return isinstance(event, TurnSettled) and event.reason == "deleted by its author"


def _was_undone(recorded: Recorded) -> bool:
    return isinstance(recorded.event, HeadMoved) and recorded.event.reason == "undo"


def _was_brought(recorded: Recorded) -> bool:
    return isinstance(recorded.event, MediaFetched) and recorded.event.index == 1


def _was_made_to_fit(recorded: Recorded) -> bool:
    return isinstance(recorded.event, MediaFetched) and bool(recorded.event.shown)


def _was_lost(recorded: Recorded) -> bool:
    return isinstance(recorded.event, MediaLost)


def _was_given(recorded: Recorded) -> bool:
    return isinstance(recorded.event, AssistantSaid) and bool(recorded.event.attachments)


def _was_joined(recorded: Recorded) -> bool:
    return isinstance(recorded.event, MessageJoined)


def _was_answered(recorded: Recorded) -> bool:
    return isinstance(recorded.event, CommandTaken) and recorded.event.command == CONTINUE


def _was_helped(recorded: Recorded) -> bool:
    return isinstance(recorded.event, CommandTaken) and recorded.event.command == "help"


def _or(*outcomes: Outcome) -> frozenset[Outcome]:
    return frozenset({Outcome.DONE, *outcomes})


ASKING = Setup(recovery=Policy(resume=Resume.ASK, freshness_ms=0, attempts_max=5))
WAITING = Setup(recovery=Policy(resume=Resume.WAIT, freshness_ms=0, attempts_max=5))
STRICT = Setup(recovery=Policy(freshness_ms=0, attempts_max=1))
SCENARIOS = {
    "talk": Scenario(acts=(talk,), proof=_ended(Outcome.DONE)),
    "supersede": Scenario(
        acts=(supersede,),
        outcomes=_or(Outcome.SUPERSEDED),
        proof=_ended(Outcome.SUPERSEDED),
    ),
    "steer": Scenario(acts=(steer,), proof=lambda each: isinstance(each.event, SteerTaken)),
    "stop": Scenario(acts=(stop,), outcomes=_or(Outcome.STOPPED), proof=_ended(Outcome.STOPPED)),
    "stop in words": Scenario(
        acts=(stop_in_words,), outcomes=_or(Outcome.STOPPED), proof=_ended(Outcome.STOPPED)
    ),
    "edit": Scenario(
        acts=(edit,),
        outcomes=_or(Outcome.STOPPED, Outcome.INTERRUPTED),
        proof=_was_asked_again,
    ),
    "delete": Scenario(acts=(delete,), outcomes=_or(Outcome.STOPPED), proof=_was_deleted),
    "undo": Scenario(
        acts=(undo,),
        outcomes=_or(Outcome.STOPPED, Outcome.INTERRUPTED),
        proof=_was_undone,
    ),
    "files": Scenario(acts=(send_files,), proof=_was_brought),
    "a picture": Scenario(acts=(send_a_picture,), proof=_was_made_to_fit),
    "a lost file": Scenario(acts=(lose_a_file,), proof=_was_lost),
    "files of a stopped turn": Scenario(
        acts=(stop_with_files,), outcomes=_or(Outcome.STOPPED), proof=_ended(Outcome.STOPPED)
    ),
    "album": Scenario(acts=(send_album,), proof=_was_joined),
    "a given file": Scenario(acts=(give_a_file,), proof=_was_given),
    "drain": Scenario(acts=(drain, rest), proof=_was_parked),
    "ask": Scenario(acts=(drain, rest), proof=_was_answered, setup=ASKING),
    "give up": Scenario(
        acts=(fall, rest),
        outcomes=_or(Outcome.SUSPENDED),
        proof=lambda each: isinstance(each.event, TurnMoved),
        setup=STRICT,
    ),
    "wait": Scenario(
        acts=(drain, talk_on),
        outcomes=_or(Outcome.INTERRUPTED),
        proof=_ended(Outcome.INTERRUPTED),
        setup=WAITING,
        last=talk_on_if_left,
    ),
    "wait with more behind": Scenario(
        acts=(drain_with_more, rest),
        outcomes=_or(Outcome.INTERRUPTED),
        proof=_ended(Outcome.INTERRUPTED),
        setup=WAITING,
        last=talk_on_if_left,
    ),
}


async def play(world: World, scenario: Scenario, *fuses: Fuse) -> list[str]:
    """Play a scenario under these fuses. Returns every broken promise."""
    # What each turn had when another process settled it while this one stood still.
    final: dict[TurnId, int] = {}
    for fuse in fuses:
        fuse.meanwhile = partial(take_over, world, final)
    records = await world.play(scenario.acts, *fuses, last=scenario.last)
    found = broken(world, scenario, records)
    for record in records:
        found += _written_late(final, record)
    events = [recorded for record in records for recorded in record.events]
    if not any(fuse.has_struck for fuse in fuses) and not any(map(scenario.proof, events)):
        found.append("the scenario does not do what it is for")
    return found


async def take_over(world: World, final: dict[TurnId, int]) -> None:
    for record in await world.take_over():
        final |= _lengths(record)


def broken(world: World, scenario: Scenario, records: Sequence[SessionRecord]) -> list[str]:
    """Return every rule that store and world break together once everything is at rest."""
    found = [each for record in records for each in violations(record)]
    for record in records:
        found += _not_over(record, scenario)
        found += _still_visible(world, record)
        found += _not_as_said(world, record)
        found += _said_again(record)
    events = _without_what_moved([each for record in records for each in record.events])
    found += _not_told(records, events)
    found += _misheard(world, events)
    found += _seen_and_not_stored(world, events)
    found += _misfiled(world, events)
    for record in records:
        found += _out_of_order(world, record)
        found += _overtaken(world, record)
        found += _never_given(world, record)
    found += [f"never acknowledged: {each}" for each in world.platform.unacknowledged]
    found += [f"shown twice: {part}" for part in world.platform.repeated()]
    found += [f"asked during a wait: {each}" for each in world.platform.hasty]
    limit = world.platform.can.text_max
    found += [f"too long: {each}" for each in world.platform.visible if len(each.text) > limit]
    if len(world.tools_ran) != len(set(world.tools_ran)):
        found.append("a tool call ran twice")
    return found


def _without_what_moved(events: Sequence[Recorded]) -> list[Recorded]:
    """Leave out what a moved turn left behind: it stands complete in the session it went to."""
    left = {(r.session, r.event.turn) for r in events if isinstance(r.event, TurnMoved)}
    return [recorded for recorded in events if (recorded.session, recorded.turn) not in left]


def _not_told(records: Sequence[SessionRecord], events: Sequence[Recorded]) -> list[str]:
    """Report suspended turns that never began, or whose people were not told exactly once."""
    notices = [r.event for r in events if isinstance(r.event, NoticePosted)]
    told = Counter(each.about for each in notices if "given up" in each.text)
    turns = [turn for record in records for turn in record.turns]
    return [
        f"{turn.id} was given up after {turn.attempts} tries, and that was told {told[turn.id]}x"
        for turn in turns
        if turn.outcome == Outcome.SUSPENDED and (not turn.attempts or told[turn.id] != 1)
    ]


def _not_over(record: SessionRecord, scenario: Scenario) -> list[str]:
    over = (PartState.SENT, PartState.UNKNOWN, PartState.FAILED)
    answered = {part.turn for part in record.parts if _is_final(part)}
    found = [
        f"{part.id} is {part.state}"
        for part in record.parts
        if part.state not in over and part.error != WITHDRAWN
    ]
    for turn in record.turns:
        if turn.outcome not in scenario.outcomes:
            found.append(f"{turn.id} is {turn.state}: {turn.outcome} {turn.reason} {turn.detail}")
        if turn.outcome in _ANSWERED and turn.id not in answered:
            found.append(f"{turn.id} was never answered")
    return found


def _is_final(part: PartView) -> bool:
    return part.message in (f"{part.turn}{AHEAD}", f"{part.turn}{REPLY}")


def _not_as_said(world: World, record: SessionRecord) -> list[str]:
    """Report answers that people do not see whole and once, or with a bubble beside them. An answer
    with a part of unknown fate is left out: it is listed as such."""
    gone = {
        each.turn
        for each in record.parts
        if each.step == DeliveryStep.DELETE or each.error == WITHDRAWN
    }
    found = []
    for turn in record.turns:
        own = [part for part in record.parts if part.turn == turn.id and part.turn not in gone]
        parts = [part for part in own if part.step != DeliveryStep.UPLOAD]
        said = [part.text for part in parts if _is_final(part)]
        keys = {part.id for part in parts if part.message.startswith(turn.id)}
        seen = [shown.text for shown in world.platform.visible if shown.key in keys]
        is_unknown = any(part.state == PartState.UNKNOWN for part in parts)
        if turn.outcome in _ANSWERED and not is_unknown and said and seen != said:
            found.append(f"{turn.id} said {said}, people see {seen}")
    return found


def _said_again(record: SessionRecord) -> list[str]:
    """Report messages that say the same words in two of their parts."""
    posted = (DeliveryStep.POST, DeliveryStep.EDIT)
    said = Counter((part.message, part.text) for part in record.parts if part.step in posted)
    return [f"{message} says {text!r} twice" for (message, text), n in said.items() if n > 1]


def _still_visible(world: World, record: SessionRecord) -> list[str]:
    """Report answers of turns that were taken back and can still be seen, where the platform can
    delete."""
    if not world.platform.can.can_delete:
        return []
    moves = [r.event for r in record.events if isinstance(r.event, HeadMoved)]
    queued = [r.event for r in record.events if isinstance(r.event, TurnQueued)]
    gone = {turn for move in moves for turn in move.redo} | {each.origin for each in queued}
    visible = {shown.key for shown in world.platform.visible}
    return [
        f"{part.id} of {part.turn} is still to be seen"
        for part in record.parts
        if _is_final(part) and part.turn in gone and part.id in visible
        if part.state != PartState.UNKNOWN
    ]


def _misheard(world: World, events: Sequence[Recorded]) -> list[str]:
    """Report messages that are not stored exactly once, or that the model never read."""
    spoken = TurnQueued | MessageJoined | SteerTaken
    asked = [r.event for r in events if isinstance(r.event, spoken)]
    done = {recorded.turn for recorded in events if _ended(Outcome.DONE)(recorded)}
    taken = [r.event for r in events if isinstance(r.event, CommandTaken)]
    questions = sum(bool(r.event.choices) for r in events if isinstance(r.event, NoticePosted))
    read = {
        block.text
        for request in world.agent.requests
        for message in request.messages
        for block in message.blocks
        if isinstance(block, TextBlock)
    }
    amended = {r.event.message for r in events if isinstance(r.event, TurnAmended)}
    found = [
        f"{each} was never read"
        for each in asked
        if each.turn in done and each.message not in amended and each.text not in {*read, ""}
    ]
    found += _misread(world, events)
    words = [sent.text for sent in world.platform.sent if sent.kind == TurnKind.MESSAGE]
    commands = [text for text in words if text == CONTINUE or text.startswith("/")]
    first = [each for each in asked if not (isinstance(each, TurnQueued) and each.origin)]
    heard = sorted(each.text for each in first)
    if heard != sorted(text for text in words if text not in commands):
        found.append(f"{words} were said, {heard} were heard")
    if len(taken) != len(commands):
        found.append(f"{commands} were given, {[each.command for each in taken]} were taken")
    if CONTINUE in words and questions != words.count(CONTINUE):
        found.append(f"{questions} questions got {words.count(CONTINUE)} answers")
    return found


def _misfiled(world: World, events: Sequence[Recorded]) -> list[str]:
    """Report files that were fetched or lost twice, and files of which the model was told neither
    the content nor the loss."""
    done = {recorded.turn for recorded in events if _ended(Outcome.DONE)(recorded)}
    ended = [r.event for r in events if isinstance(r.event, MediaFetched | MediaLost)]
    found = [
        f"{each} was brought twice"
        for each, times in Counter((event.message, event.index) for event in ended).items()
        if times > 1
    ]
    blocks = [
        block
        for request in world.agent.requests
        for message in request.messages
        for block in message.blocks
        if isinstance(block, MediaBlock)
    ]
    read = {in_words(block.attachment) for block in blocks}
    seen = {block.attachment.name for block in blocks if block.data == FITTED}
    spoken = [r.event for r in events if isinstance(r.event, TurnQueued | MessageJoined)]
    for each in spoken:
        attachments = as_fetched(each, places_of(events))
        for attachment in attachments if each.turn in done else ():
            is_told = attachment.text == f"the words of {attachment.name}"
            is_told = is_told or attachment.reference in world.platform.gone
            is_seen = bool(attachment.shown) and attachment.name in seen
            if not is_seen and (not is_told or in_words(attachment) not in read):
                found.append(f"nobody was told of {attachment}")
    notices = [r.event.text for r in events if isinstance(r.event, NoticePosted)]
    lost = [event for event in ended if isinstance(event, MediaLost)]
    if len(lost) != sum("could not be read" in text for text in notices):
        found.append(f"{lost} were lost, {notices} were told")
    return found


def _never_given(world: World, record: SessionRecord) -> list[str]:
    """Report files that an agent gave in a finished turn and that were not sent, unless their fate
    is unknown."""
    done = {turn.id for turn in record.turns if turn.outcome == Outcome.DONE}
    given = [each for each in record.events if each.turn in done and _was_given(each)]
    uploads = [
        part for part in record.parts if part.step == DeliveryStep.UPLOAD and part.turn in done
    ]
    sent = {file.key for file in world.platform.files}
    certain = {part.id for part in uploads if part.state != PartState.UNKNOWN}
    if len(uploads) != len(given) or not certain <= sent:
        return [f"{given} were given, {uploads} were sent"]
    return []


def _out_of_order(world: World, record: SessionRecord) -> list[str]:
    """Report turns that began in another order than their messages came in."""
    said = [sent.text for sent in world.platform.sent if sent.kind == TurnKind.MESSAGE]
    queued = [r.event for r in record.events if isinstance(r.event, TurnQueued)]
    texts = {each.turn: each.text for each in queued if not each.origin}
    started = dict.fromkeys(r.turn for r in record.events if isinstance(r.event, TurnStarted))
    begun = [texts[turn] for turn in started if turn in texts]
    if begun != sorted(begun, key=said.index):
        return [f"{said} were said, {begun} were begun"]
    return []


def _overtaken(world: World, record: SessionRecord) -> list[str]:
    """Report parts that appeared out of the order of their line, previews included. Parts of
    unknown fate are left out: they may have come late."""
    known = [part for part in record.parts if part.state == PartState.SENT]
    places = {shown.key: at for at, shown in reversed(list(enumerate(world.platform.shown)))}
    appeared = [places[PartId(part.id)] for part in known if part.id in places]
    return [] if appeared == sorted(appeared) else [f"shown in the order {appeared}"]


def _misread(world: World, events: Sequence[Recorded]) -> list[str]:
    """Report edits that did not change their message exactly once."""
    edits = [sent.text for sent in world.platform.sent if sent.kind == UpdateKind.EDIT]
    queued = [r.event for r in events if isinstance(r.event, TurnQueued)]
    asked_again = {each.turn for each in queued if each.origin}
    amended = [
        r.event.text
        for r in events
        if isinstance(r.event, TurnAmended) and r.event.turn not in asked_again
    ]
    if sorted(amended) != sorted(edits):
        return [f"{edits} were edits, {amended} were amended"]
    return []


def _seen_and_not_stored(world: World, events: Sequence[Recorded]) -> list[str]:
    stored = {r.event.message: r.event.text for r in events if isinstance(r.event, AssistantSaid)}
    return [
        f"{message}: shown {text!r}, stored {stored.get(message)!r}"  # type: ignore[call-overload]
        for message, text in world.shown.items()
        if not stored.get(message, "").startswith(text)  # type: ignore[call-overload]
    ]


def _written_late(final: dict[TurnId, int], record: SessionRecord) -> list[str]:
    """Report turns that got more events after another process had settled them."""
    lengths = _lengths(record)
    return [
        f"{turn} had {length} events when it was settled, and has {lengths[turn]}"
        for turn, length in final.items()
        if turn in lengths and lengths[turn] != length
    ]


def _lengths(record: SessionRecord) -> dict[TurnId, int]:
    return {
        turn.id: sum(
            recorded.turn == turn.id
            for recorded in record.events
            if not isinstance(recorded.event, TurnAmended)
        )
        for turn in record.turns
        if turn.outcome is not None
    }


def on(
    simulator: Simulator, name: str, can: Capabilities = KEY, *, strikes_commits: bool = False
) -> Run:
    """Return a run of one scenario on one platform."""
    scenario = SCENARIOS[name]
    setup = msgspec.structs.replace(scenario.setup, strikes_commits=strikes_commits)

    async def run(*fuses: Fuse) -> list[str]:
        world = await simulator.world(setup=setup)
        world.platform.can = can
        if can.streaming is Streaming.APPEND:
            world.agent = ScriptedAgent(in_paragraphs)
        return await play(world, scenario, *fuses)

    return run


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", NEMESES)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_instant_breaks_a_promise(
    simulator: Simulator, name: str, nemesis: Nemesis
) -> None:
    every = 4 if nemesis is Nemesis.DIE else 16
    await simulator.strike(on(simulator, name), nemesis, every=every)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", CLOCKS)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_setting_of_the_clock_breaks_a_promise(
    simulator: Simulator, name: str, nemesis: Nemesis
) -> None:
    # The wall clock is set back by a day, or goes ahead and comes back, or the next process begins
    # with a clock that is behind.
    await simulator.strike(on(simulator, name), nemesis, every=16)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", NEMESES)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_commit_breaks_a_promise(
    simulator: Simulator, name: str, nemesis: Nemesis
) -> None:
    # The fuse is in the driver: it strikes when a transaction is complete but not committed, and
    # when it has just been committed.
    every = 4 if nemesis is Nemesis.DIE else 16
    run = on(simulator, name, strikes_commits=True)
    await simulator.strike(run, nemesis, every=every)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY])
@pytest.mark.parametrize(
    ("can", "name"),
    [
        ("find", "talk"),
        ("find", "undo"),
        ("neither", "talk"),
        ("neither", "undo"),
        ("growing", "talk"),
        ("growing in small messages", "give up"),
        ("growing with a key", "stop"),
        ("growing and can be asked", "undo"),
        ("appending", "undo"),
        ("appending and cannot be asked", "stop"),
    ],
)
async def test_no_platform_breaks_a_promise(
    simulator: Simulator, nemesis: Nemesis, can: str, name: str
) -> None:
    every = 6 if nemesis is Nemesis.DIE else 16
    await simulator.strike(on(simulator, name, PLATFORMS[can]), nemesis, every=every)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_repeats_a_piece_of_what_was_divided(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    scenario = Scenario(acts=(ask_for_help,), proof=_was_helped)

    async def run(*fuses: Fuse) -> list[str]:
        world = await simulator.world(setup=scenario.setup)
        world.platform.can = SMALL
        found = await play(world, scenario, *fuses)
        if not any(fuse.has_struck for fuse in fuses) and len(world.platform.shown) < 2:
            found.append("the answer was not divided")
        return found

    await simulator.strike(run, nemesis, every=3)


def _can_be_sure(can: Capabilities) -> bool:
    return can.takes_key or can.can_find


@pytest.mark.chaos
@pytest.mark.parametrize("nemesis", NEMESES)
@pytest.mark.parametrize(
    ("can", "name"),
    [
        (can, name)
        for can in PLATFORMS
        for name in SCENARIOS
        # A question that may not have been seen is never answered.
        if name != "ask" or _can_be_sure(PLATFORMS[can])
    ],
)
async def test_no_platform_breaks_any_promise(
    simulator: Simulator, nemesis: Nemesis, can: str, name: str
) -> None:
    await simulator.strike(on(simulator, name, PLATFORMS[can]), nemesis)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", [*NEMESES, Nemesis.PAUSE, Nemesis.DIE_AND_SET_BACK])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_tenth_instant_breaks_a_promise_on_postgres(
    simulator_on_postgres: Simulator, name: str, nemesis: Nemesis
) -> None:
    every = 10 if nemesis in (Nemesis.DIE, Nemesis.PAUSE) else 30
    await simulator_on_postgres.strike(on(simulator_on_postgres, name), nemesis, every=every)


@pytest.mark.chaos
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_two_deaths_break_a_promise(simulator: Simulator, name: str) -> None:
    await simulator.strike_twice(on(simulator, name), most=150)


class ForgetfulPlatform(ScriptedPlatform):
    """Says of every part that it did not arrive, although it may have."""

    async def find(self, sought: Sought) -> None:
        return None


async def test_the_harness_catches_a_repeated_reply(simulator: Simulator) -> None:
    # This platform lies about what arrived, so the gateway sends again. The checker must see that.
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        world.platform = ForgetfulPlatform(capabilities=FIND)
        return await play(world, SCENARIOS["talk"], fuse)

    with pytest.raises(AssertionError, match="shown twice"):
        await simulator.strike(run)


async def _settle_in_two(self: StoredTurns, lease: TurnLease, settlement: Settlement) -> Settled:
    """Settle the turn in one commit, and put its answer into the outbox in another."""
    driver, stamp = self._driver, self._mint.stamp(self._node)
    bare = msgspec.structs.replace(settlement, parts=(), files=())
    settled = await driver.write(partial(turns.settle, lease, bare, stamp))
    final = replies.FinalWords(settlement.parts, settlement.files)
    await driver.write(partial(replies.put_reply, lease.session, lease.turn, final, stamp))
    return settled


async def test_the_harness_names_a_settlement_of_two_commits(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoredTurns, "settle", _settle_in_two)
    with pytest.raises(AssertionError, match="more than one commit"):
        await simulator.strike(on(simulator, "talk"))


async def test_the_harness_strikes_between_two_commits(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The commits are not counted here, so only the state after a death can show the fault.
    monkeypatch.setattr(StoredTurns, "settle", _settle_in_two)
    monkeypatch.setattr(commits, "IN_STEPS", {"StoredTurns.settle"})
    with pytest.raises(AssertionError, match="was never answered"):
        await simulator.strike(on(simulator, "talk", strikes_commits=True))
