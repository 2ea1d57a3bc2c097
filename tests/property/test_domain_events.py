"""Checks that journal bodies survive a round trip, and that old bodies can be read for ever."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.domain.content.forwards import Passage
from perdure.domain.content.stickers import Sticker
from perdure.domain.errors import Corrupt
from perdure.domain.journal.codec import KIND_OF, KINDS, decode, encode
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Attachment,
    AttemptInterrupted,
    ContentLeftOut,
    InterruptionAcknowledged,
    LeftOut,
    MediaFetched,
    MediaLost,
    MessageJoined,
    NoticePosted,
    PromptExpanded,
    SteerAccepted,
    SteerTaken,
    StickerDescribed,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnAmended,
    TurnMoved,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.model.options import Options
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.question_events import (
    AnswerAwaited,
    AnswerReceived,
    EffectMarked,
    GrantOffer,
    WaitEnded,
    WorkDelegated,
    WorkReturned,
)
from perdure.domain.journal.session_events import (
    CommandTaken,
    Compacted,
    CompactionDropped,
    CompactionFailed,
    HeadMoved,
    RoomSought,
    SessionClosed,
    SessionOpened,
    SessionResumed,
    TitleSet,
    WindowExceeded,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import (
    CallEnding,
    Interruption,
    NodeRequest,
    Outcome,
    QuestionKind,
    Repeat,
)
from perdure.domain.text import storable

GOLDEN = Path(__file__).parent.parent / "golden" / "events_v1.jsonl"

text = st.text(max_size=40).map(storable)
ids = st.text("abcdefghjkmnpqrstvwxyz0123456789_", min_size=1, max_size=12)
numbers = st.integers(0, 2**53)
calls = st.builds(
    ToolCall,
    id=ids,
    name=text,
    arguments=text,
    repeat=st.sampled_from(Repeat),
    is_callers=st.booleans(),
)
attachments = st.builds(
    Attachment,
    media=st.none() | ids,
    url=st.none() | text,
    mime=text,
    name=text,
    reference=text,
    size=numbers,
    is_voice=st.booleans(),
    text=text,
    problem=text,
    seconds=numbers,
    sticker=st.none() | st.builds(Sticker, id=text, emoji=text, set_name=text, name=text),
)
some_attachments = st.lists(attachments, max_size=3).map(tuple)
passages = st.lists(st.builds(Passage, numbers, numbers), max_size=2).map(tuple)
options = st.builds(
    Options,
    temperature=st.none() | st.floats(0, 2),
    max_tokens=st.none() | numbers,
    stop=st.lists(text, max_size=2).map(tuple),
    response_format=text,
    parallel_tool_calls=st.none() | st.booleans(),
)
usages = st.builds(
    Usage,
    input_tokens=numbers,
    output_tokens=numbers,
    cache_read_tokens=numbers,
    cache_write_tokens=numbers,
    model_calls=numbers,
)
offers = st.builds(GrantOffer, agent=text, act=text, definition=text, pattern=text, words=text)
EVENTS: dict[type[AnyEvent], st.SearchStrategy[AnyEvent]] = {
    SessionOpened: st.builds(
        SessionOpened,
        by=ids,
        reason=text,
        parent=st.none() | ids,
        head=st.none() | ids,
        kind=text,
    ),
    SessionClosed: st.builds(SessionClosed, by=ids, reason=text, successor=ids),
    SessionResumed: st.builds(SessionResumed, by=ids),
    TurnQueued: st.builds(
        TurnQueued,
        turn=ids,
        message=ids,
        text=text,
        kind=st.sampled_from(TurnKind),
        agent=text,
        attachments=some_attachments,
        instructions=text,
        context=text,
        tools=text,
        options=options,
        persona=text,
        origin=st.none() | ids,
        answer=text,
        passed_on=passages,
    ),
    TurnStarted: st.builds(
        TurnStarted, turn=ids, attempt=numbers, parent=st.none() | ids, node=ids
    ),
    PromptExpanded: st.builds(PromptExpanded, turn=ids, message=ids, name=text, text=text),
    AssistantSaid: st.builds(
        AssistantSaid,
        turn=ids,
        attempt=numbers,
        message=ids,
        text=text,
        calls=st.lists(calls, max_size=3).map(tuple),
        is_interrupted=st.booleans(),
        attachments=some_attachments,
        origin=text,
    ),
    ToolStarted: st.builds(ToolStarted, turn=ids, call=ids, why=text),
    ToolFinished: st.builds(
        ToolFinished,
        turn=ids,
        call=ids,
        ending=st.sampled_from(CallEnding),
        result=text,
        attachments=some_attachments,
        whole=st.none() | ids,
        size=numbers,
    ),
    AttemptInterrupted: st.builds(
        AttemptInterrupted,
        turn=ids,
        attempt=numbers,
        reason=st.sampled_from(Interruption),
        tail=text,
        alive_at=numbers,
        asked=st.sampled_from(NodeRequest),
    ),
    InterruptionAcknowledged: st.builds(
        InterruptionAcknowledged, turn=ids, interruption=numbers, tail=text
    ),
    SteerAccepted: st.builds(
        SteerAccepted,
        turn=ids,
        message=ids,
        text=text,
        attachments=some_attachments,
        passed_on=passages,
    ),
    SteerTaken: st.builds(
        SteerTaken,
        turn=ids,
        message=ids,
        text=text,
        attachments=some_attachments,
        passed_on=passages,
    ),
    TurnAmended: st.builds(TurnAmended, turn=ids, message=ids, text=text, passed_on=passages),
    NoticePosted: st.builds(
        NoticePosted,
        message=ids,
        text=text,
        about=st.none() | ids,
        choices=st.lists(text, max_size=3).map(tuple),
        question=st.none() | ids,
    ),
    TurnRequeued: st.builds(TurnRequeued, turn=ids, reason=st.sampled_from(Interruption)),
    TurnMoved: st.builds(TurnMoved, turn=ids, to=ids),
    TurnSettled: st.builds(
        TurnSettled,
        turn=ids,
        outcome=st.sampled_from(Outcome),
        reason=text,
        detail=text,
        agent=text,
        usage=usages,
        cost=numbers,
        prefix_break=text,
    ),
    CommandTaken: st.builds(
        CommandTaken,
        command=text,
        arguments=text,
        by=ids,
        message=ids,
        reply=text,
        turn=st.none() | ids,
    ),
    HeadMoved: st.builds(
        HeadMoved,
        by=ids,
        reason=text,
        head=st.none() | ids,
        redo=st.lists(ids, max_size=3).map(tuple),
    ),
    TitleSet: st.builds(TitleSet, title=text, by=st.none() | ids),
    Compacted: st.builds(
        Compacted,
        upto=ids,
        message=ids,
        summary=text,
        turns=numbers,
        tokens_before=numbers,
        tokens_after=numbers,
        errand=ids,
        cost=numbers,
    ),
    CompactionFailed: st.builds(CompactionFailed, errand=ids, reason=text),
    CompactionDropped: st.builds(CompactionDropped, by=ids, upto=ids, compaction=ids),
    MessageJoined: st.builds(
        MessageJoined,
        turn=ids,
        message=ids,
        text=text,
        attachments=some_attachments,
        passed_on=passages,
    ),
    MediaFetched: st.builds(
        MediaFetched,
        turn=ids,
        message=ids,
        index=numbers,
        media=ids,
        mime=text,
        name=text,
        size=numbers,
        text=text,
        problem=text,
        seconds=numbers,
    ),
    StickerDescribed: st.builds(StickerDescribed, turn=ids, message=ids, index=numbers, words=text),
    AnswerAwaited: st.builds(
        AnswerAwaited,
        turn=ids,
        attempt=numbers,
        question=ids,
        text=text,
        choices=st.lists(text, max_size=3).map(tuple),
        call=st.none() | ids,
        deadline=numbers,
        kind=st.sampled_from(QuestionKind),
        tool=text,
        arguments=text,
        digest=text,
        offer=st.none() | offers,
        is_once=st.booleans(),
        usage=usages,
        cost=numbers,
    ),
    AnswerReceived: st.builds(
        AnswerReceived,
        turn=ids,
        question=ids,
        answer=text,
        by=st.none() | ids,
        scope=text,
        reason=text,
    ),
    WaitEnded: st.builds(WaitEnded, turn=ids),
    WorkDelegated: st.builds(
        WorkDelegated,
        turn=ids,
        attempt=numbers,
        call=ids,
        errand=ids,
        agent=text,
        deadline=numbers,
        why=text,
        usage=usages,
        cost=numbers,
    ),
    WorkReturned: st.builds(WorkReturned, turn=ids, call=ids, errand=ids, reason=text),
    EffectMarked: st.builds(
        EffectMarked, turn=ids, call=ids, tool=text, has_happened=st.booleans(), by=ids
    ),
    MediaLost: st.builds(MediaLost, turn=ids, message=ids, index=numbers, reason=text),
    ContentLeftOut: st.builds(
        ContentLeftOut,
        turn=ids,
        what=st.lists(
            st.builds(LeftOut, turn=st.none() | ids, part=text, index=st.none() | numbers)
        ).map(tuple),
    ),
    WindowExceeded: st.builds(
        WindowExceeded,
        turn=ids,
        agent=text,
        model=text,
        tokens=numbers,
        window=numbers,
        is_summary=st.booleans(),
    ),
    RoomSought: st.builds(
        RoomSought, turn=ids, compaction=st.none() | ids, problem=text, detail=text
    ),
}


def test_every_kind_has_a_name_and_is_tried() -> None:
    assert set(KINDS.values()) == set(get_args(AnyEvent)) == set(EVENTS) == set(KIND_OF)


@pytest.mark.parametrize("written", EVENTS, ids=lambda each: each.__name__)
@settings(max_examples=5)
@given(data=st.data())
def test_what_is_encoded_is_decoded(written: type[AnyEvent], data: st.DataObject) -> None:
    event = data.draw(EVENTS[written])
    kind, body = encode(event)

    assert decode(kind, body) == event
    assert msgspec.json.decode(body, type=dict[str, object])["v"] == 1


class Golden(msgspec.Struct):
    """Holds a body as it was once written, and what it must still mean."""

    kind: str
    body: dict[str, object]
    means: dict[str, object]


def golden() -> list[Golden]:
    lines = GOLDEN.read_text("utf-8").splitlines()
    return [msgspec.json.decode(line, type=Golden) for line in lines]


@pytest.mark.parametrize("line", golden(), ids=lambda line: line.kind)
def test_a_body_written_once_means_the_same_for_ever(line: Golden) -> None:
    event = decode(line.kind, msgspec.json.encode(line.body).decode())

    assert type(event) is KINDS[line.kind]
    assert holds(msgspec.to_builtins(event), line.means)


def holds(value: object, expected: object) -> bool:
    """Tell whether a value has everything that is expected of it. Added fields are ignored."""
    match value, expected:
        case dict(), dict():
            return all(name in value and holds(value[name], expected[name]) for name in expected)
        case (list() | tuple(), list() | tuple()):
            return len(value) == len(expected) and all(map(holds, value, expected))
        case _:
            return value == expected


def test_every_kind_has_a_golden_body() -> None:
    assert {line.kind for line in golden()} == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "body", "advice"),
    [
        ("turn_sang", "{}", "upgrade"),
        ("tool_started", '{"v":2,"turn":"t","call":"c"}', "upgrade"),
        ("tool_started", '{"v":1,"turn":"t"}', "restore"),
        ("tool_started", '{"v":1,"turn":7,"call":"c"}', "restore"),
        ("tool_started", "not json", "restore"),
        ("tool_started", "[]", "restore"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(kind: str, body: str, advice: str) -> None:
    with pytest.raises(Corrupt, match=advice):
        decode(kind, body)


@given(st.one_of(list(EVENTS.values())))
def test_a_field_added_later_does_not_hide_the_rest(event: AnyEvent) -> None:
    kind, body = encode(event)
    grown = body.removesuffix("}") + ',"added_later":{"x":1}}'

    assert decode(kind, grown) == event
