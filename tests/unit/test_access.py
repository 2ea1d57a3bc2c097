"""Who may speak: every row of the decision table."""

from itertools import product

import pytest

from perdure.domain.access import Rules, Verdict, decide
from perdure.domain.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.updates import DELETE, EDIT, MESSAGE

NOBODY = Rules()
LISTED = Rules(allow=frozenset({"ada"}))
PAIRING = Rules(has_pairing=True)
OPEN = Rules(allow=frozenset({"*"}))
PLACE = Rules(places=frozenset({"lab"}))
ROLE = Rules(roles=frozenset({"staff"}))
BOT = Rules(bots=frozenset({"robo"}), allow=frozenset({"*"}))
HALL = Rules(allow=frozenset({"ada"}), needs_mention=False)

ADA, EVE = Sender(id="ada"), Sender(id="eve")
NAMESAKE = Sender(id="eve", name="ada")
STAFF = Sender(id="eve", roles=("staff",))
ROBO, OTHER_BOT = Sender(id="robo", is_bot=True), Sender(id="spam", is_bot=True)
PRIVATE, GROUP = PlaceKind.PRIVATE, PlaceKind.GROUP
WELCOME, STRANGER, ASIDE = Verdict.WELCOME, Verdict.STRANGER, Verdict.ASIDE


def arrival(
    sender: Sender,
    kind: PlaceKind = PRIVATE,
    *,
    place: str = "somewhere",
    is_addressed: bool = True,
    what: str = MESSAGE,
) -> Arrival:
    return Arrival(
        kind=what,
        external_id="1",
        place=place,
        place_kind=kind,
        sender=sender,
        text="hello",
        is_addressed=is_addressed,
        target="0" if what != MESSAGE else "",
    )


TABLE = [
    # Nobody may, unless someone says so.
    (NOBODY, arrival(ADA), STRANGER),
    (NOBODY, arrival(ADA, GROUP), STRANGER),
    (LISTED, arrival(ADA), WELCOME),
    (LISTED, arrival(EVE), STRANGER),
    # A name is no identity.
    (LISTED, arrival(NAMESAKE), STRANGER),
    (OPEN, arrival(EVE), WELCOME),
    (PLACE, arrival(EVE, GROUP, place="lab"), WELCOME),
    (PLACE, arrival(EVE, GROUP, place="street"), STRANGER),
    (PLACE, arrival(EVE), STRANGER),
    (ROLE, arrival(STAFF, GROUP), WELCOME),
    (ROLE, arrival(EVE, GROUP), STRANGER),
    # Pairing is asked for in private, by a message.
    (PAIRING, arrival(EVE), Verdict.PAIRING),
    (PAIRING, arrival(EVE, GROUP), STRANGER),
    (PAIRING, arrival(EVE, what=EDIT), STRANGER),
    (PAIRING, arrival(EVE, what=DELETE), STRANGER),
    # Bots, only by name, even where everybody may.
    (OPEN, arrival(ROBO), ASIDE),
    (BOT, arrival(ROBO), WELCOME),
    (BOT, arrival(OTHER_BOT), ASIDE),
    (PAIRING, arrival(OTHER_BOT), ASIDE),
    # In a group, only what is meant for us.
    (LISTED, arrival(ADA, GROUP), WELCOME),
    (LISTED, arrival(ADA, GROUP, is_addressed=False), ASIDE),
    (LISTED, arrival(EVE, GROUP, is_addressed=False), ASIDE),
    (HALL, arrival(ADA, GROUP, is_addressed=False), WELCOME),
    (HALL, arrival(EVE, GROUP, is_addressed=False), STRANGER),
    (BOT, arrival(ROBO, GROUP, is_addressed=False), ASIDE),
]


@pytest.mark.parametrize(("rules", "said", "verdict"), TABLE)
def test_the_decision_table(rules: Rules, said: Arrival, verdict: Verdict) -> None:
    assert decide(rules, said, is_paired=False, is_engaged=False) is verdict


@pytest.mark.parametrize("rules", [NOBODY, LISTED, PAIRING])
def test_whoever_was_paired_may_speak(rules: Rules) -> None:
    assert decide(rules, arrival(EVE), is_paired=True, is_engaged=False) is WELCOME
    aside = arrival(EVE, GROUP, is_addressed=False)
    assert decide(rules, aside, is_paired=True, is_engaged=False) is ASIDE
    robot = arrival(OTHER_BOT)
    assert decide(rules, robot, is_paired=True, is_engaged=False) is ASIDE


def test_in_a_thread_of_ours_nobody_need_be_mentioned() -> None:
    aside = arrival(ADA, GROUP, is_addressed=False)
    assert decide(LISTED, aside, is_paired=False, is_engaged=True) is WELCOME
    stranger = arrival(EVE, GROUP, is_addressed=False)
    assert decide(LISTED, stranger, is_paired=False, is_engaged=True) is STRANGER


def test_a_deletion_whose_author_is_not_told_counts_where_the_message_is_ours() -> None:
    gone = arrival(Sender(id=""), GROUP, is_addressed=False, what=DELETE)
    assert decide(LISTED, gone, is_paired=False, is_engaged=True) is WELCOME
    assert decide(LISTED, gone, is_paired=False, is_engaged=False) is ASIDE


def test_no_rule_lets_anyone_in_whom_it_does_not_name() -> None:
    """Over everything at once: welcome means listed, paired, in an open place, or of a role."""
    flags = [False, True]
    senders = [ADA, EVE, NAMESAKE, STAFF, ROBO, OTHER_BOT]
    every = product(
        [NOBODY, LISTED, PAIRING, OPEN, PLACE, ROLE, BOT, HALL],
        senders,
        PlaceKind,
        ["lab", "street"],
        flags,
        flags,
        flags,
    )
    for rules, sender, kind, place, is_addressed, is_paired, is_engaged in every:
        said = arrival(sender, kind, place=place, is_addressed=is_addressed)
        verdict = decide(rules, said, is_paired=is_paired, is_engaged=is_engaged)
        is_named = (
            sender.id in (rules.bots if sender.is_bot else rules.allow)
            or (not sender.is_bot and (is_paired or "*" in rules.allow or place in rules.places))
            or (not sender.is_bot and bool(rules.roles & set(sender.roles)))
        )
        assert verdict is not WELCOME or is_named, (rules, said)
