"""Checks what requests leave out after a model's server has refused something, and what brings it
back."""

from collections.abc import Sequence

import msgspec
import pytest

from perdure.domain.ids import CallId, MediaId, MessageId, NodeId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Attachment,
    ContentLeftOut,
    LeftOut,
    MediaFetched,
    MessageJoined,
    PromptExpanded,
    Recorded,
    SteerTaken,
    ToolCall,
    ToolFinished,
    TurnAmended,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.left_out import (
    MESSAGE_LEFT_OUT,
    PICTURE_LEFT_OUT,
    RESULT_LEFT_OUT,
    omissions_in,
)
from perdure.domain.journal.model.reach import Reach
from perdure.domain.journal.session_events import Compacted
from perdure.domain.journal.transcript import entries_of
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Outcome, Refused, StopReason
from perdure.domain.prompt.history import history_of
from perdure.domain.prompt.prefix import source_of
from perdure.domain.prompt.prompt import (
    MediaBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    assert_valid,
    weave,
)
from perdure.domain.prompt.refusals import Refusal, left_out_after, what_to_do

CAT = Attachment(media=MediaId("med_cat"), mime="image/png", name="cat.png")
NOTES = Attachment(media=MediaId("med_notes"), mime="text/plain", name="a.txt", text="notes")
BY_POLICY = Refusal(agent="main", is_about_content=True, refused=Refused.MESSAGE)
A_PICTURE = Refusal(agent="main", is_about_content=True, refused=Refused.PICTURE)
UNEXPLAINED = Refusal(agent="main", is_about_content=False, status=400)


def journal(turn: str, *events: AnyEvent) -> list[Recorded]:
    """Return the events of a turn as they are recorded, ten numbers for each turn."""
    first = int(turn.removeprefix("trn_")) * 10
    session = SessionId("ses_1")
    return [
        Recorded(session=session, seq=seq, at=seq, event=event)
        for seq, event in enumerate(events, first)
    ]


def begun(
    turn: str, *files: Attachment, text: str = "hello", kind: TurnKind = TurnKind.MESSAGE
) -> tuple[AnyEvent, ...]:
    queued = TurnQueued(
        turn=TurnId(turn), message=MessageId(f"msg_{turn}"), text=text, attachments=files, kind=kind
    )
    started = TurnStarted(turn=TurnId(turn), attempt=1, parent=None, node=NodeId("nod_1"))
    return queued, started


def said(turn: str, text: str = "Yes.", *calls: str) -> AssistantSaid:
    return AssistantSaid(
        turn=TurnId(turn),
        attempt=1,
        message=MessageId(f"msg_{turn}_said{len(calls)}"),
        text=text,
        calls=tuple(ToolCall(id=CallId(call), name="t", arguments="{}") for call in calls),
    )


def returned(turn: str, call: str, result: str = "found") -> ToolFinished:
    ending = CallEnding.RETURNED
    return ToolFinished(turn=TurnId(turn), call=CallId(call), ending=ending, result=result)


def settled(
    turn: str,
    outcome: Outcome = Outcome.DONE,
    reason: StopReason = StopReason.STOP,
    *,
    agent: str = "main",
    status: int = 0,
) -> TurnSettled:
    reach = Reach(status=status)
    return TurnSettled(turn=TurnId(turn), outcome=outcome, reason=reason, agent=agent, reach=reach)


def answered(turn: str, *files: Attachment, agent: str = "main") -> list[Recorded]:
    return journal(turn, *begun(turn, *files), said(turn), settled(turn, agent=agent))


def refused(turn: str, *what: LeftOut, files: Sequence[Attachment] = ()) -> list[Recorded]:
    return journal(
        turn,
        *begun(turn, *files),
        ContentLeftOut(turn=TurnId(turn), what=what),
        settled(turn, Outcome.FAILED, StopReason.CONTENT_REFUSED),
    )


def message(turn: str, *, amended: int = 0) -> LeftOut:
    return LeftOut(turn=TurnId(turn), part=f"msg_{turn}", amended=amended)


def picture(turn: str, index: int = 0, *, amended: int = 0) -> LeftOut:
    return msgspec.structs.replace(message(turn, amended=amended), index=index)


def told(*turns: Sequence[Recorded]) -> list[str]:
    """Return the words of each message, as a model is told these turns."""
    something = PromptMessage(role=Role.USER, blocks=(TextBlock("next"),))
    history = history_of(turns)
    request, newest = weave(None, [*history, something])
    assert newest is not None
    assert_valid([*request, newest], begins=True)
    final, last = weave(None, history)
    woven = [*final, last] if last else final
    return ["|".join(filter(None, map(_words, each.blocks))) for each in woven]


def _words(block: object) -> str:
    match block:
        case TextBlock(text=text) | ResultBlock(text=text):
            return text
        case MediaBlock(attachment=attachment):
            return f"<{attachment.name} {attachment.problem or 'shown'}>"
        case _:
            return ""


def test_a_refused_message_is_told_as_a_line() -> None:
    assert told(answered("trn_1"), refused("trn_2", message("trn_2"))) == [
        "hello",
        "Yes.",
        MESSAGE_LEFT_OUT,
    ]


def test_a_refused_picture_is_told_as_a_line_and_its_message_stays() -> None:
    turns = refused("trn_1", picture("trn_1", 1), files=[NOTES, CAT])

    assert told(turns) == [f"hello|<a.txt shown>|<cat.png {PICTURE_LEFT_OUT}>"]


def test_a_picture_that_was_fetched_later_is_left_out_too() -> None:
    fetched = MediaFetched(
        turn=TurnId("trn_1"),
        message=MessageId("msg_trn_1"),
        index=0,
        media=MediaId("med_cat"),
        mime="image/png",
        name="cat.png",
        size=9,
    )
    queued = begun("trn_1", Attachment(url="http://x/cat.png"))
    turn = journal("trn_1", *queued, fetched)
    (what,) = left_out_after(A_PICTURE, turn, [])

    left = ContentLeftOut(turn=TurnId("trn_1"), what=(what,))
    assert told(journal("trn_1", *queued, fetched, left)) == [f"hello|<cat.png {PICTURE_LEFT_OUT}>"]


def test_a_refused_result_keeps_its_call() -> None:
    call = said("trn_1", "Looking.", "call_1")
    left = ContentLeftOut(turn=TurnId("trn_1"), what=(LeftOut(part="call_1"),))

    turn = journal("trn_1", *begun("trn_1"), call, returned("trn_1", "call_1"), left)
    assert told(turn) == ["hello", "Looking.", RESULT_LEFT_OUT]


def test_a_turn_that_is_left_out_as_a_whole_leaves_one_line() -> None:
    left = ContentLeftOut(turn=TurnId("trn_2"), what=(LeftOut(turn=TurnId("trn_1")),))
    call = said("trn_1", "Looking.", "call_1")
    turn = journal("trn_1", *begun("trn_1"), call, returned("trn_1", "call_1"), said("trn_1"))

    assert told(turn, journal("trn_2", *begun("trn_2"), left)) == [f"{MESSAGE_LEFT_OUT}|hello"]


def test_a_summary_can_be_left_out() -> None:
    summary = Compacted(
        upto=TurnId("trn_1"),
        message=MessageId("msg_s"),
        summary="long ago",
        turns=3,
        tokens_before=9,
        tokens_after=1,
        errand=TurnId("trn_9"),
    )
    left = ContentLeftOut(turn=TurnId("trn_2"), what=(LeftOut(part="msg_s"),))

    (words,) = told(journal("trn_1", summary), journal("trn_2", *begun("trn_2"), left))
    assert "long ago" not in words
    assert MESSAGE_LEFT_OUT in words


def test_an_edit_brings_a_message_and_its_picture_back() -> None:
    edit = TurnAmended(turn=TurnId("trn_1"), message=MessageId("msg_trn_1"), text="better")
    for what in (message("trn_1"), picture("trn_1"), LeftOut(turn=TurnId("trn_1"))):
        turn = refused("trn_1", what, files=[CAT])
        later = Recorded(session=SessionId("ses_1"), seq=99, at=99, event=edit)

        assert told([*turn, later]) == ["better|<cat.png shown>"]


def test_a_prompt_is_left_out_with_the_message_that_names_it() -> None:
    expanded = PromptExpanded(
        turn=TurnId("trn_1"), message=MessageId("msg_trn_1"), name="sea__tide", text="Tell it."
    )
    begun_so = begun("trn_1", text="/sea__tide")
    turn = journal("trn_1", *begun_so, expanded)
    what = left_out_after(BY_POLICY, turn, [])
    ended = journal("trn_1", *begun_so, expanded, ContentLeftOut(turn=TurnId("trn_1"), what=what))

    assert what == (message("trn_1"),)
    assert "Tell it." in told(turn)[0]
    assert told(ended) == [MESSAGE_LEFT_OUT]


def test_an_edit_that_was_refused_too_brings_nothing_back() -> None:
    edit = TurnAmended(turn=TurnId("trn_1"), message=MessageId("msg_trn_1"), text="worse")
    turn = journal("trn_1", *begun("trn_1"), edit)
    what = left_out_after(BY_POLICY, turn, [])

    assert told([*turn, *refused("trn_1", *what)[2:]]) == [MESSAGE_LEFT_OUT]


def test_without_the_turn_that_failed_everything_is_told_again() -> None:
    turns = [answered("trn_1", CAT), refused("trn_2", picture("trn_1"))]

    assert told(*turns)[0] == f"hello|<cat.png {PICTURE_LEFT_OUT}>"
    assert told(*turns[:1])[0] == "hello|<cat.png shown>"


def test_what_is_left_out_changes_the_name_of_the_view() -> None:
    before, after = [answered("trn_1")], [answered("trn_1"), refused("trn_2", message("trn_2"))]

    assert source_of(before).view("v") == "v"
    assert source_of(after).view("v") != "v"
    assert source_of(after).view("v") == source_of([*after, answered("trn_3")]).view("v")


class TestWhatIsLeftOut:
    """Checks the decision."""

    def test_by_policy_the_message_of_the_turn(self) -> None:
        turn = journal("trn_2", *begun("trn_2", CAT))
        assert left_out_after(BY_POLICY, turn, [answered("trn_1")]) == (message("trn_2"),)

    def test_messages_that_joined_and_steers_too(self) -> None:
        joined = MessageJoined(turn=TurnId("trn_1"), message=MessageId("msg_b"), text="b")
        steer = SteerTaken(turn=TurnId("trn_1"), message=MessageId("msg_c"), text="c")
        turn = journal("trn_1", *begun("trn_1"), joined, steer)
        parts = [each.part for each in left_out_after(BY_POLICY, turn, [])]
        assert parts == ["msg_trn_1", "msg_b", "msg_c"]

    def test_results_that_no_answer_has_followed(self) -> None:
        turn = journal(
            "trn_1",
            *begun("trn_1"),
            said("trn_1", "", "call_1"),
            returned("trn_1", "call_1"),
            said("trn_1", "", "call_2", "call_3"),
            returned("trn_1", "call_2"),
            returned("trn_1", "call_3"),
        )
        parts = [each.part for each in left_out_after(BY_POLICY, turn, [])]
        assert parts == ["msg_trn_1", "call_2", "call_3"]

    def test_the_pictures_of_the_turn_if_a_picture_was_refused(self) -> None:
        turn = journal("trn_2", *begun("trn_2", NOTES, CAT))
        assert left_out_after(A_PICTURE, turn, [answered("trn_1", CAT)]) == (picture("trn_2", 1),)

    def test_older_pictures_if_the_turn_has_none(self) -> None:
        chain = [answered("trn_1", CAT), answered("trn_2", CAT)]
        what = left_out_after(A_PICTURE, journal("trn_3", *begun("trn_3")), chain)
        assert what == (picture("trn_1"), picture("trn_2"))

    def test_no_picture_twice(self) -> None:
        chain = [answered("trn_1", CAT), refused("trn_2", picture("trn_1"))]
        what = left_out_after(A_PICTURE, journal("trn_3", *begun("trn_3")), chain)
        assert picture("trn_1") not in what

    def test_the_picture_if_the_server_speaks_of_a_file(self) -> None:
        a_file = msgspec.structs.replace(BY_POLICY, refused=None)
        turn = journal("trn_1", *begun("trn_1", NOTES, CAT))
        assert left_out_after(a_file, turn, []) == (picture("trn_1", 1),)

    def test_the_message_if_the_file_is_no_picture(self) -> None:
        a_file = msgspec.structs.replace(BY_POLICY, refused=None)
        turn = journal("trn_1", *begun("trn_1", NOTES))
        assert left_out_after(a_file, turn, []) == (message("trn_1"),)

    def test_nothing_that_was_only_described_in_words(self) -> None:
        blind = msgspec.structs.replace(UNEXPLAINED, has_vision=False)
        assert left_out_after(blind, journal("trn_1", *begun("trn_1", CAT)), []) == ()

    def test_without_a_reason_only_pictures_at_first(self) -> None:
        bare, seen = begun("trn_1"), begun("trn_1", CAT)
        assert left_out_after(UNEXPLAINED, journal("trn_1", *bare), []) == ()
        assert left_out_after(UNEXPLAINED, journal("trn_1", *seen), []) == (picture("trn_1"),)

    def test_without_a_reason_the_messages_from_the_second_refusal_on(self) -> None:
        failed = settled(
            "trn_2", Outcome.FAILED, StopReason.PROVIDER_REJECTED, status=UNEXPLAINED.status
        )
        chain = [answered("trn_1"), journal("trn_2", *begun("trn_2"), failed)]
        what = left_out_after(UNEXPLAINED, journal("trn_3", *begun("trn_3")), chain)
        assert what == (message("trn_3"), LeftOut(turn=TurnId("trn_2")))

    @pytest.mark.parametrize("status", [0, 401, 403, 404, 429, 500, 503])
    def test_nothing_after_other_failures(self, status: int) -> None:
        failed = settled("trn_1", Outcome.FAILED, StopReason.PROVIDER_REJECTED, status=status)
        turn = journal("trn_2", *begun("trn_2"))
        other = msgspec.structs.replace(UNEXPLAINED, status=status)
        assert not other.is_unexplained
        chain = [journal("trn_1", *begun("trn_1"), failed)]
        assert left_out_after(UNEXPLAINED, turn, chain) == ()

    def test_what_this_agent_never_answered_from_the_second_refusal_on(self) -> None:
        chain = [
            answered("trn_1"),
            answered("trn_2", agent="liberal"),
            refused("trn_3", message("trn_3")),
        ]
        what = left_out_after(BY_POLICY, journal("trn_4", *begun("trn_4")), chain)
        assert LeftOut(turn=TurnId("trn_2")) in what
        assert LeftOut(turn=TurnId("trn_1")) not in what

    def test_what_it_answered_stays_through_some_refusals_in_a_row(self) -> None:
        chain = [answered("trn_1")] + [refused(f"trn_{n}", message(f"trn_{n}")) for n in (2, 3)]
        what = left_out_after(BY_POLICY, journal("trn_4", *begun("trn_4")), chain)
        assert LeftOut(turn=TurnId("trn_1")) not in what

    def test_in_the_end_everything(self) -> None:
        chain = [answered("trn_1")] + [refused(f"trn_{n}", message(f"trn_{n}")) for n in (2, 3, 4)]
        what = left_out_after(BY_POLICY, journal("trn_5", *begun("trn_5")), chain)
        assert LeftOut(turn=TurnId("trn_1")) in what

    def test_nothing_of_a_turn_that_no_person_has_said(self) -> None:
        result = journal("trn_1", *begun("trn_1", kind=TurnKind.RESULT))
        assert left_out_after(BY_POLICY, result, []) == ()


def test_the_transcript_says_it_at_the_message() -> None:
    turns = [answered("trn_1", CAT), refused("trn_2", picture("trn_1"), message("trn_2"))]
    omissions = omissions_in(turns)
    shown = [entry for turn in turns for entry in entries_of(turn, omissions=omissions)]

    assert [(each.role, each.left_out) for each in shown] == [
        ("user", "pictures"),
        ("assistant", ""),
        ("user", "message"),
        ("assistant", ""),
    ]
    assert [each.text for each in shown if each.role == "user"] == ["hello", "hello"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ((), "/retry sends it again, and /agent"),
        ((message("trn_1"),), "the message will be left out; /retry sends it again"),
        ((message("trn_2"), LeftOut(turn=TurnId("trn_1"))), "the message and older ones will be"),
        ((picture("trn_1"),), "the picture will be left out; /retry sends it again"),
        ((picture("trn_1"), picture("trn_1", 1)), "the pictures will be left out; /retry sends th"),
    ],
)
def test_the_person_is_told_what_to_do(what: tuple[LeftOut, ...], words: str) -> None:
    assert words in what_to_do(what)
