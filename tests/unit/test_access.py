"""Checks who may speak: every row of the decision table."""

from itertools import product

import pytest

from perdure.domain.address import HTTP
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.journal.events import SenderTraits
from perdure.domain.kinds import UpdateKind
from perdure.domain.people.access import (
    ACCESS_ENDED,
    AccessRules,
    AccessVerdict,
    Speaker,
    access_refusal,
    decide,
    is_access_ended,
)

NOBODY = AccessRules()
LISTED = AccessRules(allow=frozenset({"ada"}))
PAIRING = AccessRules(has_pairing=True)
OPEN = AccessRules(allow=frozenset({"*"}))
PLACE = AccessRules(places=frozenset({"lab"}))
ROLE = AccessRules(roles=frozenset({"staff"}))
BOT = AccessRules(bots=frozenset({"robo"}), allow=frozenset({"*"}))
HALL = AccessRules(allow=frozenset({"ada"}), needs_mention=False)

ADA, EVE = Sender(id="ada"), Sender(id="eve")
NAMESAKE = Sender(id="eve", name="ada")
STAFF = Sender(id="eve", roles=("staff",))
ROBO, OTHER_BOT = Sender(id="robo", is_bot=True), Sender(id="spam", is_bot=True)
PRIVATE, GROUP = PlaceKind.PRIVATE, PlaceKind.GROUP
WELCOME, STRANGER, ASIDE = AccessVerdict.WELCOME, AccessVerdict.STRANGER, AccessVerdict.ASIDE


def arrival(
    sender: Sender,
    kind: PlaceKind = PRIVATE,
    *,
    place: str = "somewhere",
    is_addressed: bool = True,
    what: UpdateKind = UpdateKind.MESSAGE,
) -> Arrival:
    return Arrival(
        kind=what,
        external_id="1",
        place=place,
        place_kind=kind,
        sender=sender,
        text="hello",
        is_addressed=is_addressed,
        target="0" if what != UpdateKind.MESSAGE else "",
    )


TABLE = [
    # Nobody may speak without a rule that allows it.
    (NOBODY, arrival(ADA), STRANGER),
    (NOBODY, arrival(ADA, GROUP), STRANGER),
    (LISTED, arrival(ADA), WELCOME),
    (LISTED, arrival(EVE), STRANGER),
    # A display name does not identify anybody.
    (LISTED, arrival(NAMESAKE), STRANGER),
    (OPEN, arrival(EVE), WELCOME),
    (PLACE, arrival(EVE, GROUP, place="lab"), WELCOME),
    (PLACE, arrival(EVE, GROUP, place="street"), STRANGER),
    (PLACE, arrival(EVE), STRANGER),
    (ROLE, arrival(STAFF, GROUP), WELCOME),
    (ROLE, arrival(EVE, GROUP), STRANGER),
    # A person asks for pairing by a private message only.
    (PAIRING, arrival(EVE), AccessVerdict.PAIRING),
    (PAIRING, arrival(EVE, GROUP), STRANGER),
    (PAIRING, arrival(EVE, what=UpdateKind.EDIT), STRANGER),
    (PAIRING, arrival(EVE, what=UpdateKind.DELETE), STRANGER),
    # Bots must be listed by name, even where everybody may speak.
    (OPEN, arrival(ROBO), ASIDE),
    (BOT, arrival(ROBO), WELCOME),
    (BOT, arrival(OTHER_BOT), ASIDE),
    (PAIRING, arrival(OTHER_BOT), ASIDE),
    # In a group, only messages that are addressed to the bot are taken.
    (LISTED, arrival(ADA, GROUP), WELCOME),
    (LISTED, arrival(ADA, GROUP, is_addressed=False), ASIDE),
    (LISTED, arrival(EVE, GROUP, is_addressed=False), ASIDE),
    (HALL, arrival(ADA, GROUP, is_addressed=False), WELCOME),
    (HALL, arrival(EVE, GROUP, is_addressed=False), STRANGER),
    (BOT, arrival(ROBO, GROUP, is_addressed=False), ASIDE),
]


@pytest.mark.parametrize(("rules", "said", "verdict"), TABLE)
def test_each_arrival_gets_the_verdict_of_the_table(
    rules: AccessRules, said: Arrival, verdict: AccessVerdict
) -> None:
    assert decide(rules, said, is_paired=False, is_engaged=False) is verdict


@pytest.mark.parametrize("rules", [NOBODY, LISTED, PAIRING])
def test_a_paired_person_may_speak(rules: AccessRules) -> None:
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
    gone = arrival(Sender(id=""), GROUP, is_addressed=False, what=UpdateKind.DELETE)
    assert decide(LISTED, gone, is_paired=False, is_engaged=True) is WELCOME
    assert decide(LISTED, gone, is_paired=False, is_engaged=False) is ASIDE


def test_no_rule_lets_anyone_in_whom_it_does_not_name() -> None:
    # Tries all combinations: welcome means listed, paired, in an open place, or with a listed role.
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


CLOSED = AccessRules(allow=frozenset({"*", "ada"}), places=frozenset({"lab"}), is_closed=True)


@pytest.mark.parametrize("sender", [ADA, EVE, OTHER_BOT])
def test_on_a_closed_platform_everybody_is_a_stranger_and_nobody_gets_a_code(
    sender: Sender,
) -> None:
    closed = AccessRules(allow=frozenset({"ada"}), has_pairing=True, is_closed=True)

    assert decide(closed, arrival(sender), is_paired=True, is_engaged=True) is STRANGER
    gone = arrival(Sender(id=""), what=UpdateKind.DELETE)
    assert decide(closed, gone, is_paired=False, is_engaged=True) is STRANGER


def speaker(
    sender: Sender,
    *,
    adapter: str = "chat",
    place: str = "somewhere",
    has_token: bool = False,
    is_paired: bool = False,
) -> Speaker:
    return Speaker(
        name=f"chat:{sender.id}",
        adapter=adapter,
        place=place,
        has_token=has_token,
        is_paired=is_paired,
        traits=SenderTraits(roles=sender.roles, is_bot=sender.is_bot),
    )


ON_A_PLATFORM = [
    (NOBODY, speaker(ADA), False),
    (LISTED, speaker(ADA), True),
    (LISTED, speaker(EVE), False),
    (OPEN, speaker(EVE), True),
    (OPEN, speaker(ROBO), False),
    (BOT, speaker(ROBO), True),
    (BOT, speaker(OTHER_BOT, is_paired=True), False),
    (PLACE, speaker(EVE, place="lab"), True),
    (PLACE, speaker(EVE, place="street"), False),
    (ROLE, speaker(STAFF), True),
    (ROLE, speaker(EVE), False),
    (PAIRING, speaker(EVE), False),
    (PAIRING, speaker(EVE, is_paired=True), True),
    (NOBODY, speaker(EVE, is_paired=True), True),
    (CLOSED, speaker(ADA, place="lab", is_paired=True), False),
    # On a platform a token does not let anybody in.
    (NOBODY, speaker(ADA, has_token=True), False),
]
WITH_A_TOKEN = [
    # Over HTTP only a token counts, whatever the name looks like.
    (OPEN, speaker(ADA, adapter=HTTP, is_paired=True), False),
    (NOBODY, speaker(ADA, adapter=HTTP, has_token=True), True),
    # A person of another platform, or of none, who speaks here is an operator over HTTP.
    (OPEN, speaker(ADA, adapter="other", is_paired=True), False),
    (CLOSED, speaker(ADA, adapter="other", has_token=True), True),
    (LISTED, Speaker(name="ada", adapter="chat", place="", has_token=False, is_paired=True), False),
    (LISTED, Speaker(name="ada", adapter="chat", place="", has_token=True, is_paired=False), True),
]


@pytest.mark.parametrize(("rules", "who", "may_begin"), ON_A_PLATFORM + WITH_A_TOKEN)
def test_each_turn_begins_only_where_the_table_allows_it(
    rules: AccessRules, who: Speaker, may_begin: bool
) -> None:
    why_not = access_refusal(rules, who)
    assert (why_not == "") is may_begin
    assert is_access_ended(why_not) is not may_begin


def test_a_refusal_says_why() -> None:
    assert (
        access_refusal(NOBODY, speaker(ADA))
        == f"{ACCESS_ENDED}: ada may not speak on chat any more"
    )
    assert (
        access_refusal(CLOSED, speaker(ADA)) == f"{ACCESS_ENDED}: nobody is served on chat any more"
    )
    by_token = access_refusal(OPEN, speaker(ADA, adapter=HTTP))
    assert by_token == f"{ACCESS_ENDED}: no token of chat:ada is valid any more"


def test_a_turn_may_begin_exactly_where_its_message_is_welcome() -> None:
    # The same decision is made when the message comes and again when its turn begins. Tries all
    # combinations of configuration, sender and place.
    every = product(
        [NOBODY, LISTED, PAIRING, OPEN, PLACE, ROLE, BOT, HALL, CLOSED],
        [ADA, EVE, NAMESAKE, STAFF, ROBO, OTHER_BOT],
        PlaceKind,
        ["lab", "street"],
        [False, True],
    )
    for rules, sender, kind, place, is_paired in every:
        said = arrival(sender, kind, place=place)
        is_welcome = decide(rules, said, is_paired=is_paired, is_engaged=False) is WELCOME
        again = access_refusal(rules, speaker(sender, place=place, is_paired=is_paired))
        assert (again == "") is is_welcome, (rules, said)
