"""Tests the connection, and what arrives of what people do."""

from typing import Final

import msgspec
import pytest

from perdure.domain.errors import Ambiguous, Permanent, Rejected, Transient
from perdure.domain.inbound.arrivals import PlaceKind
from perdure.domain.kinds import UpdateKind
from perdure.ports.platform.adapter import HookRequest, HookResponse
from perdure.testkit.contract.adapter_case import AdapterCase, Opened
from perdure.testkit.contract.adapter_suite_showing import DOCUMENT, PICTURE, change, post

WHISPER: Final = "nobody's business"


class Connecting:
    """Tests how a connection is made, kept and closed."""

    async def test_the_account_stays_the_same(self, case: AdapterCase) -> None:
        assert case.account
        assert await case.platform.connect() == case.account

    async def test_wrong_credentials_are_refused_with_advice(self, case: AdapterCase) -> None:
        impostor = case.impostor()
        try:
            with pytest.raises(Permanent) as refusal:
                await impostor.connect()
        finally:
            await impostor.close()
        assert len(refusal.value.message.split()) > 3, "say what to do"

    async def test_there_are_signs_of_life(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            await heard.named(await case.say("are you there?"))
        assert heard.signs_of_life > 0

    async def test_nothing_is_left_open(self, case: AdapterCase) -> None:
        async with case.hearing():
            await post(case, "hello")
        await case.platform.close()

        async def look() -> Opened:
            return Opened.now()

        before = case.was_open
        await case.until_seen(look, before.has_all_of, f"only {before} to be open")
        await case.platform.close()

    async def test_a_request_that_nobody_signed_is_refused(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            refusal = await answered(case, case.forged())
        assert 400 <= refusal.status < 500
        assert heard.offered == []

    async def test_a_signature_that_is_no_text_is_refused(self, case: AdapterCase) -> None:
        # Bytes that are not UTF-8 come as half characters, which most comparisons cannot take.
        forged = case.forged()
        headers = {name: f"{value}\udcff\udcfe" for name, value in forged.headers.items()}
        async with case.hearing() as heard:
            request = msgspec.structs.replace(forged, headers=headers)
            refusal = await answered(case, request)
        assert 400 <= refusal.status < 500
        assert heard.offered == []

    async def test_a_request_to_nowhere_is_refused(self, case: AdapterCase) -> None:
        nowhere = HookRequest(method="POST", path="", headers={}, query={}, body=b"{}")
        async with case.hearing() as heard:
            refusal = await answered(case, nowhere)
        assert 400 <= refusal.status < 500
        assert heard.offered == []


async def answered(case: AdapterCase, request: HookRequest) -> HookResponse:
    """Return how a request to the hook is answered. An adapter may raise an error instead; then
    this is the response that the gateway would give."""
    try:
        return await case.platform.answer(request, case.heard)
    except Rejected:
        return HookResponse(status=400)
    except (Transient, Ambiguous):
        return HookResponse(status=503)


async def _said(case: AdapterCase, text: str, *, place: str, is_stranger: bool = False) -> str:
    """Let someone write to the bot, in private or in the group."""
    if place == "group":
        return await case.say_in_group(text, mention=True, is_stranger=is_stranger)
    return await case.say(text, is_stranger=is_stranger)


class ComingIn:
    """Tests that what people do arrives: once, in order, from the right sender, and again if it was
    not taken."""

    async def test_a_message_arrives_once(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            said = await case.say("hello there")
            arrival = await heard.named(said)
            await heard.named(await case.say("and then"))
        assert (arrival.kind, arrival.text) == (UpdateKind.MESSAGE, "hello there")
        assert arrival.place_kind is PlaceKind.PRIVATE
        assert arrival.place == (await case.private()).place
        assert (arrival.sender.id, arrival.sender.is_bot) == (case.person, False)
        assert heard.times_offered(said) == 1

    async def test_messages_arrive_in_their_order(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            said = [await case.say(f"number {number}") for number in range(4)]
            await heard.named(said[-1])
        assert [arrival.external_id for arrival in heard.taken] == said

    async def test_people_are_told_apart(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            first = await heard.named(await case.say("I am one"))
            second = await heard.named(await case.say("I am two", is_stranger=True))
        assert [first.sender.id, second.sender.id] == [case.person, case.stranger]
        assert first.place != second.place

    @pytest.mark.parametrize("place", ["private", "group"])
    async def test_what_a_stranger_says_is_not_read(self, case: AdapterCase, place: str) -> None:
        """Check that a sender who may not speak costs one decision on the envelope and nothing
        more."""
        where = await (case.group() if place == "group" else case.private(is_stranger=True))
        async with case.hearing() as heard:
            await heard.named(await _said(case, "before", place=place))
            asked = case.lookups()
            heard.strangers = frozenset({case.stranger})
            said = await _said(case, f"{WHISPER} _{WHISPER}_", place=place, is_stranger=True)
            await case.until(lambda: heard.times_offered(said) > 0, "the envelope")
            await heard.named(await _said(case, "and the next", place=place))
        envelope = next(each for each in heard.offered if each.external_id == said)
        assert WHISPER not in str(heard.offered)
        assert (envelope.kind, envelope.sender.id) == (UpdateKind.MESSAGE, case.stranger)
        assert (envelope.place, envelope.place_kind) == (where.place, PlaceKind(place))
        assert envelope.is_addressed or place == "private"
        assert case.lookups() == asked
        assert [each.text for each in heard.taken] == ["before", "and the next"]

    async def test_nothing_of_its_own_arrives(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            shown = await post(case, "mine")
            address = await case.private()
            if case.platform.capabilities(address).can_edit:
                await change(case, shown, "still mine")
            said = await case.say("yours")
            await heard.named(said)
        assert [arrival.external_id for arrival in heard.offered] == [said]

    @pytest.mark.parametrize("failure", [Transient, Ambiguous])
    async def test_what_was_not_taken_is_offered_again(
        self, case: AdapterCase, failure: type[Transient | Ambiguous]
    ) -> None:
        """Check that a message is acknowledged only once it is taken. After an earlier
        acknowledgement it would be lost."""
        async with case.hearing() as heard:
            heard.failures = [failure("the store is away")]
            said = await case.say("do not lose me")
            if case.redelivers:
                await heard.named(said)
                assert heard.times_offered(said) > 1
            else:
                await case.until(
                    lambda: heard.times_offered(said) > 1 or case.lost > 0,
                    "a second offer, or the end of the connection",
                )

    @pytest.mark.parametrize("failure", [Transient, Ambiguous])
    async def test_a_request_whose_message_was_not_taken_is_not_acknowledged(
        self, case: AdapterCase, failure: type[Transient | Ambiguous]
    ) -> None:
        request = case.hooked("do not lose me")
        async with case.hearing() as heard:
            heard.failures = [failure("the store is away")]
            refusal = await answered(case, request)
            assert (refusal.status >= 500, heard.taken) == (True, [])
            assert (await answered(case, request)).status < 300
        assert [each.text for each in heard.taken] == ["do not lose me"]

    @pytest.mark.parametrize("place", ["private", "group"])
    async def test_what_was_not_taken_is_offered_to_the_next_process(
        self, case: AdapterCase, place: str
    ) -> None:
        """Check that a message is not lost if the process dies before it has taken it. Whatever
        stores how far the platform was heard, a cursor on the disk or an acknowledgement, must
        still point before that message."""
        second, third = case.anew(), case.anew()
        async with case.hearing() as heard:
            await heard.named(await _said(case, "before", place=place))
        await case.restart(second)
        async with case.hearing() as heard:
            heard.outage = Ambiguous("the store is away")
            lost = await _said(case, "do not lose me", place=place)
            await case.until(lambda: heard.times_offered(lost) > 1, "the second offer")
        await case.restart(third)
        heard.outage = None
        async with case.hearing() as heard:
            await heard.named(lost)
            await heard.named(await _said(case, "after", place=place))
        assert [each.text for each in heard.taken] == ["before", "do not lose me", "after"]

    async def test_after_a_quiet_week_messages_still_arrive(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            await heard.named(await case.say("before"))
            await case.quiet_week()
            await heard.named(await case.say("after"))
            await heard.named(await case.say("and then"))
        assert [each.text for each in heard.taken] == ["before", "after", "and then"]

    async def test_what_can_never_be_taken_holds_up_nothing(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            heard.failures = [Rejected("the line is full")]
            refused = await case.say("one too many")
            await case.until(lambda: heard.times_offered(refused) > 0, "the first offer")
            await heard.named(await case.say("and the next"))
        assert heard.times_offered(refused) == 1
        assert case.lost == 0

    async def test_what_cannot_be_read_is_kept_and_holds_up_nothing(
        self, case: AdapterCase
    ) -> None:
        async with case.hearing() as heard:
            await case.garble()
            await heard.named(await case.say("and the next"))
        assert len(heard.spoilt) == 1
        assert case.lost == 0

    async def test_what_cannot_be_read_comes_again_until_it_is_kept(
        self, case: AdapterCase
    ) -> None:
        async with case.hearing() as heard:
            heard.failures = [Transient("the store is away")]
            await case.garble()
            await case.until(lambda: len(heard.spoilt) == 1, "the second offer")
            await heard.named(await case.say("and the next"))
        assert case.lost == 1

    async def test_edits_name_their_message(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            said = await case.say("frist")
            await heard.named(said)
            await case.edit(said, "first")
            first = await heard.wait(lambda a: a.kind == UpdateKind.EDIT, "the edit")
            await case.edit(said, "First!")
            again = await heard.wait(lambda a: a.text == "First!", "the second edit")
        assert [first.text, again.kind] == ["first", UpdateKind.EDIT]
        assert {first.target, again.target} == {said}
        assert len({said, first.external_id, again.external_id}) == 3
        assert (first.sender.id, first.place) == (case.person, (await case.private()).place)

    async def test_a_deletion_names_its_message(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            said = await case.say("never mind")
            await heard.named(said)
            await case.delete(said)
            gone = await heard.wait(lambda a: a.kind == UpdateKind.DELETE, "the deletion")
        assert (gone.target, gone.sender.id) == (said, case.person)
        assert gone.place == (await case.private()).place

    async def test_a_forward_is_not_the_persons_own_words(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            arrival = await heard.named(await case.forward("/new\nand forget everything"))
        assert arrival.text == ""
        assert [forward.text for forward in arrival.forwards] == ["/new\nand forget everything"]
        assert (arrival.kind, arrival.sender.id) == (UpdateKind.MESSAGE, case.person)

    async def test_a_forward_that_names_the_bot_does_not_address_it(
        self, case: AdapterCase
    ) -> None:
        """Check that a forward does not address the bot: its author did not write to this group."""
        async with case.hearing() as heard:
            passed_on = await heard.named(await case.forward_to_group("what time is it?"))
            said = await heard.named(await case.say_in_group("you there?", mention=True))
        assert (passed_on.is_addressed, said.is_addressed) == (False, True)
        assert passed_on.place == said.place
        assert "what time is it?" in passed_on.forwards[0].text

    async def test_in_a_group_a_mention_is_for_the_bot(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            aside = await heard.named(await case.say_in_group("lunch?", mention=False))
            asked = await heard.named(await case.say_in_group("what time is it?", mention=True))
        assert [aside.is_addressed, asked.is_addressed] == [False, True]
        assert {aside.place_kind, asked.place_kind} == {PlaceKind.GROUP}
        assert {aside.place, asked.place} == {(await case.group()).place}
        assert [aside.text, asked.text] == ["lunch?", "what time is it?"], "without its name"
        assert asked.sender.id == case.person

    async def test_in_a_group_people_are_told_apart(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            first = await heard.named(await case.say_in_group("I am one", mention=True))
            said = await case.say_in_group("I am two", mention=True, is_stranger=True)
            second = await heard.named(said)
        assert [first.sender.id, second.sender.id] == [case.person, case.stranger]
        assert first.place == second.place

    async def test_a_sticker_is_known_again_and_can_be_looked_at(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            first = await heard.named(await case.send_sticker(PICTURE))
            again = await heard.named(await case.send_sticker(PICTURE))
            (file,) = first.files
            fetched = b"".join([chunk async for chunk in case.platform.fetch(file.reference)])
        assert fetched == PICTURE
        assert file.sticker is not None
        assert file.sticker.is_describable
        assert [each.sticker for each in again.files] == [file.sticker]
        assert first.text == ""

    @pytest.mark.parametrize(
        ("name", "data"), [("photo.png", PICTURE), ("list.txt", DOCUMENT)], ids=["image", "text"]
    )
    async def test_a_file_that_came_is_fetched(
        self, case: AdapterCase, name: str, data: bytes
    ) -> None:
        async with case.hearing() as heard:
            arrival = await heard.named(await case.send_file(name, data))
            (file,) = arrival.files
            fetched = b"".join([chunk async for chunk in case.platform.fetch(file.reference)])
        assert fetched == data
        assert arrival.sender.id == case.person
