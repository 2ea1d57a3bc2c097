"""Checks the questions about tool calls: what people are shown before they approve, and that only
exact known words approve."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.ids import QuestionId
from perdure.domain.outcomes import QuestionKind
from perdure.domain.text import BIDIRECTIONAL, INVISIBLE
from perdure.domain.tools.asking import (
    ALLOW,
    ALLOW_CALL,
    ALLOW_SESSION,
    DENY,
    DENY_CALL,
    SHOWN_MAX,
    Consent,
    answered_text,
    approval_choices,
    approval_text,
    consent_of,
    inquiry_text,
    is_shown_whole,
    over_text,
    refused_text,
    short_id,
)
from perdure.domain.tools.grants import Scope

QUESTION = QuestionId("qst_01hf7yat00rhhpnecp2fgcadv2")


def asked(arguments: str = "{}", *, tool: str = "mail", preview: str = "", grant: str = "") -> str:
    return approval_text(
        QUESTION, tool=tool, arguments=arguments, preview=preview, grant=grant, minutes=60
    )


# Words.


@pytest.mark.parametrize(
    ("word", "scope"),
    [
        ("allow", Scope.CALL),
        ("Allow", Scope.CALL),
        ("ALLOW", Scope.CALL),
        (" allow ", Scope.CALL),
        ("allow.", Scope.CALL),
        ("approve", Scope.CALL),
        ("yes", Scope.CALL),
        ("Yes!", Scope.CALL),
        ("Allow in this session", Scope.SESSION),
        ("allow in this session.", Scope.SESSION),
    ],
)
def test_a_known_word_allows_no_more_than_it_says(word: str, scope: Scope) -> None:
    assert consent_of(word) == Consent(is_allowed=True, scope=scope)


@pytest.mark.parametrize("word", ["deny", "Deny", "no", "No.", DENY_CALL])
def test_a_known_word_denies(word: str) -> None:
    assert consent_of(word) == Consent(is_allowed=False)


@pytest.mark.parametrize(
    "word",
    [
        *["", " ", ".", "denied", "allowed", "yes please", "ok", "sure", "y", "1", "true", "👍"],
        *["['allow']", '["yes"]', "allow, deny", "yes no", "not allow", "don't allow", "no yes"],
        *["allow\ndeny", "allow forever", "in this session", "yes?", "allow everything"],
        *["\u202eallow", "al\u200blow", "\u0430llow", "ja", "/approve", "allow;"],
    ],
)
def test_nothing_else_is_consent_or_refusal(word: str) -> None:
    assert consent_of(word) is None


@given(st.text(max_size=30))
def test_only_the_known_words_count(word: str) -> None:
    said = word.strip().rstrip(".!").lower()
    known = {"allow", "approve", "yes", "allow in this session", "deny", "no"}

    assert (consent_of(word) is not None) is (said in known)


def test_every_button_says_what_it_means() -> None:
    offered = approval_choices("{}", "", can_grant=True)

    assert offered == (ALLOW_CALL, ALLOW_SESSION, DENY_CALL)
    assert approval_choices("{}", "", can_grant=False) == (ALLOW_CALL, DENY_CALL)
    assert [consent_of(each) for each in offered] == [
        Consent(is_allowed=True),
        Consent(is_allowed=True, scope=Scope.SESSION),
        Consent(is_allowed=False),
    ]


# What is shown.


def test_the_question_names_the_tool_its_arguments_and_how_to_answer() -> None:
    text = asked('{"to": "ada"}', grant="mail with any arguments")

    name = short_id(QUESTION)
    assert "**mail**" in text
    assert '```\n{"to": "ada"}\n```' in text
    assert f"/approve {name} allows it, /deny {name} does not." in text
    assert "mail with any arguments" in text
    assert "60 minutes" in text
    assert len(name) == 6
    assert QUESTION.endswith(name)


def test_what_may_have_happened_is_said_before_anything_is_shown() -> None:
    text = approval_text(
        QUESTION,
        tool="pay",
        arguments="{}",
        preview="",
        grant="",
        minutes=0,
        may_have_happened=True,
    )

    assert text.index("may have happened already") < text.index("```")
    assert "open for" not in text, "there is no deadline"


@pytest.mark.parametrize("code", BIDIRECTIONAL)
def test_what_changes_the_order_of_letters_is_shown_by_its_number(code: int) -> None:
    sign = chr(code)
    texts = [
        asked(f"rm {sign}txt.exe"),
        asked(preview=f"+ {sign}x"),
        asked(tool=f"ma{sign}il"),
        inquiry_text(f"Which {sign}?", [f"a{sign}"], minutes=0),
        answered_text(QuestionKind.QUESTION, f"this {sign}", "ada", "", ""),
    ]

    for text in texts:
        assert sign not in text
        assert f"<U+{code:04X}>" in text


@pytest.mark.parametrize("code", [*INVISIBLE, 0x1B, 0x9B])
def test_nothing_of_what_is_approved_is_left_out(code: int) -> None:
    sign = chr(code)

    for text in (asked(f"rm a{sign}.txt"), asked(preview=f"+ {sign}x")):
        assert sign not in text
        assert f"<U+{code:04X}>" in text


def test_arguments_in_any_script_stay_as_they_are() -> None:
    # A joiner is part of how these words are written.
    for words in ("\u0645\u06cc\u200c\u062e", "👩\u200d💻", "שלום"):
        assert words in asked(words)


def test_a_question_has_a_bound_also_where_every_character_is_shown_by_its_number() -> None:
    hidden = "\u202e" * (SHOWN_MAX - 10)

    assert not is_shown_whole(hidden, "")
    assert len(asked(hidden)) < SHOWN_MAX
    assert approval_choices(hidden, "", can_grant=True) == (DENY_CALL,)


def test_a_long_answer_is_not_repeated_whole_under_its_question() -> None:
    line = answered_text(QuestionKind.QUESTION, "word " * 4_000, "ada", "", "")

    assert line.startswith("✔️ ada: word")
    assert line.endswith("…")
    assert len(line) < 600


@given(st.text(max_size=60))
def test_no_control_character_is_shown(arguments: str) -> None:
    shown = asked(arguments, preview=arguments)

    assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]


@given(st.text("`\n a", max_size=40))
def test_no_argument_leaves_its_fence(arguments: str) -> None:
    text = asked(arguments)

    lines = text.split("\n")
    begins = next(n for n, line in enumerate(lines) if line.startswith("```"))
    fence = lines[begins]
    assert set(fence) == {"`"}
    inside = arguments.split("\n")
    assert lines[begins + 1 : begins + 1 + len(inside)] == inside
    assert lines[begins + 1 + len(inside)] == fence, "it ends where the arguments end"
    assert fence not in arguments
    assert len(fence) >= 3


@pytest.mark.parametrize("scope", ["session", "forever", "time"])
def test_what_would_be_granted_stays_in_its_place(scope: str) -> None:
    # A file may have any name, and an address is anybody's.
    covers = "files.write on a`\n**Allowed by ada** [look](https://example.org) \u202etxt"

    for text in (
        asked(grant=covers),
        answered_text(QuestionKind.APPROVAL, ALLOW, "ada", scope, covers),
    ):
        (line,) = [each for each in text.splitlines() if "example.org" in each]
        code = line.split("`")[1]
        assert "**Allowed by ada** [look](https://example.org)" in code
        assert "\u202e" not in line


@pytest.mark.parametrize("tool", ["ma**il", "`mail`", "**", "ma*i*l"])
def test_the_name_of_a_tool_stays_in_its_place(tool: str) -> None:
    first = asked(tool=tool).split("\n")[0]

    assert (
        first == f"🔐 May I call **{tool.replace('*', '').replace('`', '')}** with these arguments?"
    )


def test_the_last_length_that_is_shown_whole_may_be_allowed_and_the_next_may_not() -> None:
    whole, longer = "x" * SHOWN_MAX, "x" * (SHOWN_MAX + 1)

    assert whole in asked(whole)
    assert ALLOW_CALL in approval_choices(whole, "", can_grant=True)
    assert SHOWN_MAX == 12_000
    assert approval_choices(longer, "", can_grant=True) == (DENY_CALL,)
    text = asked(longer)
    assert longer not in text
    assert "/approve" not in text
    assert f"/deny {short_id(QUESTION)}" in text
    assert f"perdure approvals show {QUESTION}" in text
    assert "12,001 characters in all" in text


def test_a_long_preview_counts_as_what_must_be_seen() -> None:
    half = "x" * (SHOWN_MAX // 2)

    assert approval_choices(half, half, can_grant=False) == (ALLOW_CALL, DENY_CALL)
    assert approval_choices(half, f"{half}x", can_grant=False) == (DENY_CALL,)
    text = asked(half, preview=f"{half}x")
    assert "/approve" not in text
    assert "12,001 characters in all" in text


@given(st.integers(0, 3 * SHOWN_MAX), st.integers(0, 2 * SHOWN_MAX))
def test_whatever_may_be_allowed_is_shown_whole(arguments: int, preview: int) -> None:
    words, changes = "a" * arguments, "b" * preview
    text, choices = asked(words, preview=changes), approval_choices(words, changes, can_grant=True)

    assert len(text) < SHOWN_MAX + 1_000, "a question has a bound"
    if ALLOW_CALL in choices or "/approve" in text:
        assert words in text
        assert changes in text
    assert (ALLOW_CALL in choices) is ("/approve" in text)


def test_an_inquiry_numbers_its_choices() -> None:
    text = inquiry_text("Which day?", ["Friday", "Saturday"], minutes=180)

    assert text.startswith("❓ Which day?")
    assert "\n1. Friday\n2. Saturday\n" in text
    assert "3 hours" in text
    assert "119 minutes" in inquiry_text("Which day?", [], minutes=119)
    assert "2 hours" in inquiry_text("Which day?", [], minutes=120)


# What comes of it.


def test_under_the_question_it_says_what_came_of_it() -> None:
    approval = QuestionKind.APPROVAL

    assert answered_text(approval, ALLOW, "ada", Scope.CALL, "") == "✅ Allowed by ada."
    assert answered_text(approval, DENY, "ada", Scope.CALL, "") == "⛔ Denied by ada."
    for scope in (Scope.SESSION, Scope.FOREVER, Scope.TIME):
        assert "mail to all" in answered_text(approval, ALLOW, "ada", scope, "mail to all")
    endings = {over_text(reason) for reason in ("deadline", "withdrawn", "undeliverable")}
    assert len(endings) == 3


def test_the_model_is_told_apart_why_a_call_did_not_run() -> None:
    # A model that reads "pending" or nothing takes it for an empty result, and goes on.
    reasons = ("denied", "deadline", "undeliverable", "nobody", "changed")
    texts = [refused_text(reason, kind=QuestionKind.APPROVAL) for reason in reasons]

    assert len(set(texts)) == len(reasons)
    assert all("not run" in text for text in texts)
    asked_for = [refused_text(r, kind=QuestionKind.QUESTION) for r in ("deadline", "nobody")]
    assert all("not answered" in text for text in asked_for)
