"""Tests what a platform refuses: a place that is gone, a formatting that it does not take, or a
call that comes too early. It also tests how a platform is asked whether a part has arrived, and a
group that moves."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.delivery import Streaming
from perdure.domain.errors import Ambiguous, NotFound, Transient
from perdure.domain.ids import PartId
from perdure.domain.kinds import UpdateKind
from perdure.ports.platform.adapter import (
    Delete,
    Edit,
    Post,
    Preview,
    React,
    Receipt,
    Sought,
    ThreadGone,
    Unrenderable,
    Upload,
)
from perdure.testkit.contract.adapter_case import AdapterCase, PlatformCall
from perdure.testkit.contract.adapter_suite_showing import (
    DOCUMENT,
    TORTURE,
    capabilities,
    change,
    needs,
    new_key,
    post,
    squeezed,
)
from perdure.testkit.contract.group_case import NotHere

WAIT_S: Final = 7
MARKED: Final = "**bold**, _slanted_ and `1 < 2`"
HOUR_MS: Final = 3_600_000
_BUBBLES: Final = (Streaming.EDIT, Streaming.NATIVE)
Ask = Callable[[], Awaitable[object]]


class Refusing:
    """Tests refusals after which the text can be shown elsewhere, or without formatting."""

    @pytest.mark.parametrize("call", [PlatformCall.POST, PlatformCall.UPLOAD, PlatformCall.PREVIEW])
    async def test_a_thread_that_is_gone_is_named_and_shows_nothing(
        self, case: AdapterCase, call: PlatformCall
    ) -> None:
        lost = await case.lose_thread()
        place = msgspec.structs.replace(lost, thread="")
        before = await case.shown(place)
        with pytest.raises(ThreadGone):
            await (await asking(case, call, lost))()
        assert await case.shown(place) == before

    async def test_what_has_lost_its_thread_is_shown_in_the_place_itself(
        self, case: AdapterCase
    ) -> None:
        lost = await case.lose_thread()
        place = msgspec.structs.replace(lost, thread="")
        before = await case.shown(place)
        effect = Post(key=new_key(), address=lost, text="an answer")
        with pytest.raises(ThreadGone):
            await case.platform.perform(effect)
        await case.platform.perform(msgspec.structs.replace(effect, address=place))
        assert await case.shown(place) == [*before, "an answer"]

    async def test_a_post_that_cannot_be_rendered_is_shown_letter_by_letter(
        self, case: AdapterCase
    ) -> None:
        case.refuse_rendering()
        effect = Post(key=new_key(), address=await case.private(), text=MARKED)
        with pytest.raises(Unrenderable):
            await case.platform.perform(effect)
        assert await case.shown() == []
        await case.platform.perform(msgspec.structs.replace(effect, is_plain=True))
        (shown,) = await case.shown()
        assert case.legible(shown) == MARKED

    async def test_an_edit_that_cannot_be_rendered_is_shown_letter_by_letter(
        self, case: AdapterCase
    ) -> None:
        needs(case, (await capabilities(case)).can_edit, "edits")
        shown = await post(case, "before")
        case.refuse_rendering()
        with pytest.raises(Unrenderable):
            await change(case, shown, MARKED)
        assert await case.shown() == ["before"]
        edit = Edit(
            key=new_key(),
            address=await case.private(),
            receipt=shown.external_id,
            text=MARKED,
            is_plain=True,
        )
        assert await case.platform.perform(edit) == shown
        (now,) = await case.shown()
        assert case.legible(now) == MARKED

    async def test_a_plain_text_loses_no_letter(self, case: AdapterCase) -> None:
        address = await case.private()
        await case.platform.perform(
            Post(key=new_key(), address=address, text=TORTURE, is_plain=True)
        )
        (shown,) = await case.shown()
        assert squeezed(case.legible(shown)) == squeezed(TORTURE)


class NamedWaits:
    """Tests that an adapter reports a wait that the platform names, whatever was asked. Keeping the
    wait is the caller's work."""

    @pytest.mark.parametrize(
        "call", [each for each in PlatformCall if each is not PlatformCall.CONNECT]
    )
    async def test_a_wait_is_told_with_its_seconds(
        self, case: AdapterCase, call: PlatformCall
    ) -> None:
        ask = await asking(case, call)
        case.wait_next(call, WAIT_S)
        with pytest.raises(Transient) as told:
            await ask()
        assert told.value.retry_after_s == WAIT_S

    @pytest.mark.parametrize("call", [PlatformCall.PREVIEW, PlatformCall.GROW])
    async def test_a_wait_for_a_preview_in_a_group_is_told(
        self, case: AdapterCase, call: PlatformCall
    ) -> None:
        ask = await asking(case, call, await case.group())
        case.wait_next(call, WAIT_S)
        with pytest.raises(Transient) as told:
            await ask()
        assert told.value.retry_after_s == WAIT_S

    async def test_a_connect_that_has_to_wait_says_how_long(self, case: AdapterCase) -> None:
        successor = case.anew()
        case.wait_next(PlatformCall.CONNECT, WAIT_S)
        try:
            with pytest.raises(Transient) as told:
                await successor.connect()
        finally:
            await successor.close()
        assert told.value.retry_after_s == WAIT_S


async def asking(case: AdapterCase, call: PlatformCall, address: Address | None = None) -> Ask:
    """Prepare everything for `call`, and return the function that makes it. It is made in private,
    unless there is an address."""
    address = address or await case.private()
    can = case.platform.capabilities(address)
    match call:
        case PlatformCall.POST:
            return lambda: post(case, "hello", address)
        case PlatformCall.EDIT:
            needs(case, can.can_edit, "edits")
            shown = await post(case, "before", address)
            return lambda: case.platform.perform(
                Edit(key=new_key(), address=address, receipt=shown.external_id, text="after")
            )
        case PlatformCall.DELETE:
            needs(case, can.can_delete, "deletions")
            shown = await post(case, "before", address)
            return lambda: case.platform.perform(Delete(address=address, receipt=shown.external_id))
        case PlatformCall.UPLOAD:
            needs(case, can.upload_bytes_max, "files")
            return lambda: case.platform.perform(
                Upload(
                    key=new_key(), address=address, name="a.txt", mime="text/plain", data=DOCUMENT
                )
            )
        case _:
            return await _asking_more(case, call, address)


async def _asking_more(case: AdapterCase, call: PlatformCall, address: Address) -> Ask:
    """Prepare the calls that `asking` leaves over."""
    can = case.platform.capabilities(address)
    match call:
        case PlatformCall.REACT:
            needs(case, can.can_react, "reactions")
            async with case.hearing() as heard:
                said = await case.say("well done")
                await heard.named(said)
            return lambda: case.platform.perform(
                React(address=address, external_id=said, emoji="👍")
            )
        case PlatformCall.PREVIEW | PlatformCall.GROW:
            return await _asking_preview(case, address, is_open=call is PlatformCall.GROW)
        case PlatformCall.TYPING:
            needs(case, can.typing_s, "sign that it is typing")
            return lambda: case.platform.typing(address)
        case PlatformCall.FIND:
            needs(case, can.can_find, "way to look for a part")
            await post(case, "something else", address)
            return lambda: case.platform.find(sought(case, new_key(), address))
        case _:
            raise NotHere(f"{call} is made by no one caller")


async def _asking_preview(case: AdapterCase, address: Address, *, is_open: bool) -> Ask:
    """Prepare a first preview, or with `is_open` the growth of one that is already shown."""
    streaming = case.platform.capabilities(address).streaming
    needs(case, streaming in (*_BUBBLES, Streaming.DRAFT), "previews")
    first = Preview(key=new_key(), address=address, text="One ", streaming=streaming)
    if not is_open:
        return lambda: case.platform.preview(first)
    needs(case, streaming in _BUBBLES, "bubbles that grow")
    receipt = await case.platform.preview(first)
    more = msgspec.structs.replace(first, text="One two ", receipt=receipt, shown="One ")
    return lambda: case.platform.preview(more)


def sought(
    case: AdapterCase,
    key: PartId,
    address: Address,
    text: str = "is it there?",
    *,
    owned: frozenset[str] = frozenset(),
    after_ms: int = 0,
) -> Sought:
    """Return a part whose answer was lost. It was sent just now, or `after_ms` later."""
    tried_at = case.clock.now_ms() + after_ms
    return Sought(key=key, address=address, text=text, tried_at=tried_at, owned=owned)


async def looked_up(case: AdapterCase, lost: Sought) -> Receipt | None:
    """Return what the platform finds, or None where it cannot tell."""
    try:
        return await case.platform.find(lost)
    except Ambiguous:
        return None


class Looking:
    """Tests the search for a part whose answer was lost: only what is provably that part is
    found."""

    @pytest.fixture
    async def address(self, case: AdapterCase) -> Address:
        """Return the private place, if the platform can look for a part by its key."""
        needs(case, (await capabilities(case)).can_find, "way to look for a part")
        case.keeps_keys()
        return await case.private()

    async def test_it_can_be_asked_whether_a_part_arrived(
        self, case: AdapterCase, address: Address
    ) -> None:
        effect = Post(key=new_key(), address=address, text="is it there?")
        receipt = await case.platform.perform(effect)
        assert await case.platform.find(sought(case, effect.key, address)) == receipt
        assert await case.platform.find(sought(case, new_key(), address, "never sent")) is None

    async def test_what_another_part_owns_is_not_found(
        self, case: AdapterCase, address: Address
    ) -> None:
        other = await post(case, "is it there?")
        lost = sought(case, new_key(), address, owned=frozenset({other.external_id}))
        assert await looked_up(case, lost) is None

    async def test_what_somebody_else_has_written_is_not_found(
        self, case: AdapterCase, address: Address
    ) -> None:
        await post(case, "something else")
        await case.say("is it there?")
        assert await looked_up(case, sought(case, new_key(), address)) is None

    @pytest.mark.parametrize("after_ms", [-HOUR_MS, HOUR_MS])
    async def test_what_was_written_at_another_time_is_not_found(
        self, case: AdapterCase, address: Address, after_ms: int
    ) -> None:
        await post(case, "is it there?")
        lost = sought(case, new_key(), address, after_ms=after_ms)
        assert await looked_up(case, lost) is None

    async def test_a_platform_that_is_out_of_order_is_asked_again(
        self, case: AdapterCase, address: Address
    ) -> None:
        effect = Post(key=new_key(), address=address, text="is it there?")
        receipt = await case.platform.perform(effect)
        case.fail_next(PlatformCall.FIND)
        with pytest.raises(Transient):
            await case.platform.find(sought(case, effect.key, address))
        assert await case.platform.find(sought(case, effect.key, address)) == receipt


class Moving:
    """Tests a group that becomes another one while the gateway knows it by its old address."""

    @pytest.mark.parametrize("process", ["the same process", "the next one"])
    async def test_an_edit_follows(self, case: AdapterCase, process: str) -> None:
        old, shown = await case.group(), await post(case, "before", await case.group())
        new = await case.migrate(keeps_messages=True)
        if process == "the next one":
            await case.restart(case.anew())
        for text in ("after", "after all"):
            edit = Edit(key=new_key(), address=old, receipt=shown.external_id, text=text)
            done = await case.platform.perform(edit)
            assert (done.external_id, done.moved_to) == (shown.external_id, new.place)
            assert await case.shown(new) == [text]

    async def test_what_did_not_come_along_is_told_and_posted_anew(self, case: AdapterCase) -> None:
        old, shown = await case.group(), await post(case, "before", await case.group())
        new = await case.migrate(keeps_messages=False)
        with pytest.raises(NotFound):
            await case.platform.perform(
                Edit(key=new_key(), address=old, receipt=shown.external_id, text="after")
            )
        await post(case, "after", old)
        assert await case.shown(new) == ["after"]

    async def test_a_receipt_tells_where_the_group_is_now(self, case: AdapterCase) -> None:
        old = await case.group()
        assert (await case.platform.perform(a_post(old, "before"))).moved_to == ""
        new = await case.migrate(keeps_messages=True)
        assert (await case.platform.perform(a_post(old, "after"))).moved_to == new.place
        assert (await case.platform.perform(a_post(new, "there"))).moved_to == ""

    async def test_the_move_is_told_with_both_ids(self, case: AdapterCase) -> None:
        old = await case.group()
        async with case.hearing() as heard:
            new = await case.migrate(keeps_messages=True)
            told = await heard.wait(lambda a: a.kind == UpdateKind.MOVED, "the move")
        assert (told.place, told.moved_to) == (old.place, new.place)


def a_post(address: Address, text: str) -> Post:
    return Post(key=new_key(), address=address, text=text)
