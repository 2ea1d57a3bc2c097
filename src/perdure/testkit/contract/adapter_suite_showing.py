"""Tests what a bot shows: posts, edits, files, buttons and growing answers. It also holds the
helpers that the other parts of the suite share."""

from itertools import count
from typing import Final

import pytest

from perdure.domain.address import Address
from perdure.domain.content.speech import SPEECH_MIME, SPEECH_NAME
from perdure.domain.delivery import Capabilities, Streaming, lowered, plan_parts
from perdure.domain.errors import NotFound
from perdure.domain.ids import PartId
from perdure.domain.kinds import UpdateKind
from perdure.ports.platform.adapter import (
    Delete,
    Edit,
    Post,
    Preview,
    React,
    Receipt,
    Unsupported,
    Upload,
)
from perdure.testkit.contract.adapter_case import AdapterCase
from perdure.testkit.contract.group_case import NotHere
from perdure.testkit.processes.file_server import a_second_of_ogg

# It begins with the signature of a PNG, for platforms that check that a picture is one.
PICTURE: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
DOCUMENT: Final = "Zeile für Zeile\n".encode() * 300
GROUP_WORDS: Final = "<!channel> <!here> @everyone @here @room @channel <@U1> <@&1> <@1> @all"
TORTURE: Final = """# Heading with `code` and *emphasis*

**bold *nested* ~~struck~~** __under__ \\*escaped\\* 2 * 3 * 4 snake_case_word <b>no tag</b> & < >

> quote
> > deeper, with a [link](https://example.org/a_(b)?c=d&e=f) and an unclosed **mark

1. one
   - [ ] nested
2. two

| left | right |
|:--|--:|
| a \\| b | 👩‍👩‍👧‍👦 |
| שלום | é |

```python
print("``` in here", '<@U1>')
```

~~~
never closed: *a* _b_ `c`
"""

_KEYS: Final = count(1)
_EDIT_OR_NATIVE: Final = (Streaming.EDIT, Streaming.NATIVE)


def new_key() -> PartId:
    """Return a key that no other part has."""
    return PartId(f"stp_{next(_KEYS):020}")


async def post(case: AdapterCase, text: str, address: Address | None = None) -> Receipt:
    """Show a text at an address, or in private, and return its receipt."""
    address = address or await case.private()
    return await case.platform.perform(Post(key=new_key(), address=address, text=text))


async def capabilities(case: AdapterCase) -> Capabilities:
    """Return what the platform can do in private."""
    return case.platform.capabilities(await case.private())


def needs(case: AdapterCase, has: object, what: str) -> None:
    """Skip the test unless the platform has what it needs."""
    if not has:
        raise NotHere(f"{case.platform.name}: has no {what}")


def squeezed(text: str) -> str:
    """Return a text without white space, which a platform may change where a text was cut."""
    return "".join(text.split())


async def change(case: AdapterCase, shown: Receipt, text: str, **more: str) -> Receipt:
    """Edit a message of the bot in private, and return the receipt of the edit."""
    edit = Edit(
        key=new_key(),
        address=await case.private(),
        receipt=shown.external_id,
        text=text,
        shown=more.get("shown", ""),
    )
    return await case.platform.perform(edit)


class GoingOut:
    """Tests what the bot shows."""

    async def test_a_post_is_shown(self, case: AdapterCase) -> None:
        first, second = await post(case, "hello"), await post(case, "again")
        assert first.external_id
        assert first.external_id != second.external_id
        assert await case.shown() == ["hello", "again"]

    async def test_an_answer_names_what_it_answers(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            said = await case.say("a question")
            await heard.named(said)
        await case.platform.perform(
            Post(key=new_key(), address=await case.private(), text="an answer", reply_to=said)
        )
        assert await case.shown() == ["an answer"]

    async def test_an_answer_to_what_is_gone_is_shown_all_the_same(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            said = await case.say("a question")
            await heard.named(said)
            await case.delete(said)
        await case.platform.perform(
            Post(key=new_key(), address=await case.private(), text="an answer", reply_to=said)
        )
        assert await case.shown() == ["an answer"]

    async def test_a_group_is_answered_in_its_place(self, case: AdapterCase) -> None:
        address = await case.group()
        await post(case, "for all", address)
        assert await case.shown(address) == ["for all"]

    @pytest.mark.parametrize("letter", ["x", "𝄞", "<"])
    async def test_a_text_may_be_as_long_as_the_limit(self, case: AdapterCase, letter: str) -> None:
        can, size = await capabilities(case), case.platform.size
        longest = fitting(case, letter, can.text_max)
        assert size(longest) <= can.text_max < size(longest + letter)
        await post(case, longest[:-1])
        await post(case, longest)
        pieces = plan_parts(longest + letter, can, size=size)
        assert len(pieces) > 1
        for piece in pieces:
            assert size(piece) <= can.text_max
            await post(case, piece)
        shown = await case.shown()
        assert squeezed(shown[1]) == longest
        assert squeezed("".join(shown[2:])) == longest + letter

    async def test_a_text_that_is_hard_to_render_is_taken(self, case: AdapterCase) -> None:
        can = await capabilities(case)
        for text in (TORTURE, case.torture):
            pieces = plan_parts(text, can, size=case.platform.size)
            for piece in pieces:
                await post(case, piece)
        assert await case.shown()

    async def test_nobody_is_notified_as_a_group(self, case: AdapterCase) -> None:
        shown = await post(case, GROUP_WORDS)
        await post(case, f"# {GROUP_WORDS}\n\n- **{GROUP_WORDS}**")
        if (await capabilities(case)).can_edit:
            await change(case, shown, f"once more: {GROUP_WORDS}")
        assert await case.pings() == []

    async def test_a_key_that_comes_again_shows_nothing_new(self, case: AdapterCase) -> None:
        needs(case, (await capabilities(case)).takes_key, "idempotency keys")
        effect = Post(key=new_key(), address=await case.private(), text="once")
        first = await case.platform.perform(effect)
        assert await case.platform.perform(effect) == first
        assert await case.shown() == ["once"]

    async def test_a_file_is_sent(self, case: AdapterCase) -> None:
        limit = (await capabilities(case)).upload_bytes_max
        needs(case, limit, "files")
        address = await case.private()
        for name, mime, data in (
            ("photo.png", "image/png", PICTURE),
            ("list.txt", "text/plain", DOCUMENT),
        ):
            assert len(data) <= limit
            upload = Upload(key=new_key(), address=address, name=name, mime=mime, data=data)
            assert (await case.platform.perform(upload)).external_id
        assert await case.files() == [PICTURE, DOCUMENT]

    async def test_speech_is_sent_as_a_file_that_can_be_heard(self, case: AdapterCase) -> None:
        needs(case, (await capabilities(case)).upload_bytes_max, "files")
        speech = Upload(
            key=new_key(),
            address=await case.private(),
            name=SPEECH_NAME,
            mime=SPEECH_MIME,
            data=a_second_of_ogg(),
            is_voice=True,
        )
        assert (await case.platform.perform(speech)).external_id
        assert await case.files() == [speech.data]

    async def test_a_button_is_as_good_as_its_word(self, case: AdapterCase) -> None:
        needs(case, (await capabilities(case)).choices_max, "buttons")
        choices = ("Continue", "Drop it, please, and never mind what it was about")
        ask = Post(key=new_key(), address=await case.private(), text="Go on?", choices=choices[:2])
        async with case.hearing() as heard:
            shown = await case.platform.perform(ask)
            await case.click(shown.external_id, choices[1])
            arrival = await heard.wait(lambda a: a.text == choices[1], "the click")
        assert (arrival.kind, arrival.sender.id) == (UpdateKind.MESSAGE, case.person)
        assert arrival.place == (await case.private()).place
        assert (arrival.is_addressed, arrival.press) == (True, None)

    async def test_typing_is_no_trouble(self, case: AdapterCase) -> None:
        await case.platform.typing(await case.private())
        await case.platform.typing(await case.private())
        assert await case.shown() == []


def fitting(case: AdapterCase, letter: str, limit: int) -> str:
    """Return as many letters as the platform takes in one message."""
    low, high = 1, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if case.platform.size(letter * middle) <= limit else (low, middle)
        )
    return letter * low


class Changing:
    """Tests what the bot changes, deletes and marks. Each of these may be repeated."""

    async def test_an_edit_keeps_its_receipt(self, case: AdapterCase) -> None:
        needs(case, (await capabilities(case)).can_edit, "edits")
        shown = await post(case, "before")
        for text in ("after", "after", "**after** all"):
            assert await change(case, shown, text) == shown
        (text,) = await case.shown()
        assert "after" in text
        assert "all" in text

    async def test_what_is_gone_cannot_be_edited(self, case: AdapterCase) -> None:
        can = await capabilities(case)
        needs(case, can.can_edit and can.can_delete, "edits and deletions")
        shown = await post(case, "soon gone")
        await case.platform.perform(Delete(address=await case.private(), receipt=shown.external_id))
        with pytest.raises(NotFound):
            await change(case, shown, "too late")
        assert await case.shown() == []

    async def test_a_deletion_may_be_repeated(self, case: AdapterCase) -> None:
        needs(case, (await capabilities(case)).can_delete, "deletions")
        stays = await post(case, "stays")
        goes = await post(case, "goes")
        assert stays != goes
        for _ in range(2):
            await case.platform.perform(
                Delete(address=await case.private(), receipt=goes.external_id)
            )
        assert await case.shown() == ["stays"]

    async def test_a_message_is_marked(self, case: AdapterCase) -> None:
        needs(case, (await capabilities(case)).can_react, "reactions")
        async with case.hearing() as heard:
            said = await case.say("well done")
            await heard.named(said)
            address = await case.private()
            for _ in range(2):
                await case.platform.perform(React(address=address, external_id=said, emoji="👍"))
            assert len(await case.marks(said)) == 1
            for _ in range(2):
                await case.platform.perform(React(address=address, external_id=said, emoji=""))
            assert await case.marks(said) == []


class Growing:
    """Tests an answer that is shown while it grows and is then complete."""

    @pytest.mark.parametrize("place", ["private", "group"])
    async def test_a_growing_answer_ends_as_one_message(
        self, case: AdapterCase, place: str
    ) -> None:
        address = await (case.private() if place == "private" else case.group())
        can = case.platform.capabilities(address)
        texts = ["One ", "One two ", "One two three "]
        final = "One two three, and that is all."
        while can.streaming is not Streaming.NONE:
            try:
                await grow(case, address, can.streaming, texts, final)
            except Unsupported:
                # The server does not know this way of streaming. Nothing may be left on the screen,
                # and as in the gateway the next best way is tried.
                assert await case.shown(address) == []
                can = lowered(can, frozenset({can.streaming}))
            else:
                assert await case.shown(address) == [final]
                return
        raise NotHere(f"{case.platform.name}: shows whole answers only")


async def grow(
    case: AdapterCase, address: Address, streaming: Streaming, texts: list[str], final: str
) -> None:
    """Show an answer as growing previews and then as its final text, and check after each step what
    people see."""
    key, receipt, shown = new_key(), "", ""
    for text in texts:
        preview = Preview(
            key=key,
            address=address,
            text=text,
            streaming=streaming,
            receipt=receipt,
            shown=shown,
        )
        given = await case.platform.preview(preview)
        assert bool(given) == (streaming in _EDIT_OR_NATIVE), "a draft leaves no message"
        assert given == (receipt or given), "it grows in one message"
        assert [squeezed(each) for each in await case.shown(address)] == (
            [squeezed(text)] if given else []
        )
        receipt, shown = given, text
    if not receipt:
        await case.platform.perform(Post(key=new_key(), address=address, text=final))
        return
    is_stream = streaming is Streaming.NATIVE
    edit = Edit(
        key=new_key(),
        address=address,
        receipt=receipt,
        text=final,
        shown=shown if is_stream else "",
    )
    # Twice, because an edit may be repeated after a crash.
    for _ in range(2):
        assert (await case.platform.perform(edit)).external_id == receipt
