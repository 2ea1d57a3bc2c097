"""Tests what comes in from groups: a reply with what it is about, a bare mention, what is meant for
another bot, and a question that begins a thread."""

import msgspec

from perdure.domain.inbound.arrivals import is_bare_call
from perdure.ports.platform.adapter import Post
from perdure.testkit.contract.adapter_case import AdapterCase
from perdure.testkit.contract.adapter_suite_showing import new_key


class InGroups:
    """Tests groups."""

    async def test_a_bare_mention_calls_the_bot(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            called = await heard.named(await case.say_in_group("", mention=True))
        assert is_bare_call(called)

    async def test_a_reply_in_a_group_brings_what_it_is_about(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            said = await case.say_in_group("the tide is high", mention=False, is_stranger=True)
            await heard.named(said)
            reply = await heard.named(await case.reply_in_group(said, "is that right?"))
            bare = await heard.named(await case.reply_in_group(said, ""))
        for each in (reply, bare):
            assert (each.quote, each.reply_to) == ("the tide is high", said)
            assert each.quoted_from
            assert each.is_addressed
        assert (reply.text, bare.text) == ("is that right?", "")

    async def test_what_is_for_another_bot_is_not_for_ours(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            called = await heard.named(await case.call_another_bot("what time is it?"))
            ours = await heard.named(await case.say_in_group("and you?", mention=True))
        assert (called.is_for_another, called.is_addressed) == (True, False)
        assert (ours.is_for_another, ours.is_addressed) == (False, True)

    async def test_a_command_for_another_bot_is_no_arrival(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            await case.command_another_bot("/stop")
            await heard.named(await case.say_in_group("hello", mention=True))
        assert [each.text for each in heard.taken] == ["hello"]

    async def test_a_question_may_begin_a_thread_of_its_own(self, case: AdapterCase) -> None:
        async with case.hearing() as heard:
            asked = await heard.named(await case.say_in_group("what time is it?", mention=True))
            thread = asked.own_thread or (asked.thread if asked.begins_thread else "")
            if not thread:
                case.has_no("threads that a question begins")
            group = msgspec.structs.replace(await case.group(), thread=thread)
            for text in ("noon", "or one"):
                await case.platform.perform(Post(key=new_key(), address=group, text=text))
            assert await case.shown(group) == ["noon", "or one"]
