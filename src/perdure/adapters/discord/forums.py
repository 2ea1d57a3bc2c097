"""Opens posts in forums and media channels, and threads below questions.

Nothing can be sent into such a channel directly. A message to it opens a post: a thread with a name
and a first message. What follows goes into that thread. Discord takes no nonce for a post, so
before a post is tried a second time, it is looked for among the newest active threads.

A thread that is begun from a message has the id of that message. So the address of the answer is
known before there is a thread, and nothing has to be stored: what is sent to a thread that does not
exist begins it, if its id is that of a message in the channel. Doing it again finds it begun.
"""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.adapters.discord.bodies import ButtonRow, Mentions, NewMessage, Shown
from perdure.adapters.discord.payloads import Channel, Message
from perdure.adapters.discord.wire import File, Rest, RestRequest, made_ms, path
from perdure.domain.address import Address
from perdure.domain.errors import NotFound, Permanent
from perdure.ports.system.clock import Clock

# Discord's limit for the name of a thread.
NAME_MAX: Final = 100
# A post with the same name and text that is younger than this is taken for the earlier attempt.
TRIED_S: Final = 3_600
_KINDS: Final = frozenset({15, 16})  # forum, media
# Characters of markdown that are cut from both ends of a post's name.
_MARKS: Final = "#>*_~`-|= \t"


class Starter(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the first message of a post."""

    content: str
    allowed_mentions: Mentions = Mentions()
    components: tuple[ButtonRow, ...] | UnsetType = UNSET


class NewPost(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    message: Starter


class _Opened(msgspec.Struct, frozen=True, kw_only=True):
    message: Shown


class _Threads(msgspec.Struct, frozen=True, kw_only=True):
    threads: tuple[Channel, ...] = ()


class Forums:
    """Knows which channels are forums, and opens posts in them."""

    def __init__(self, rest: Rest, clock: Clock) -> None:
        self._rest = rest
        self._clock = clock
        self._known: dict[str, Channel] = {}

    def is_known(self, channel: str) -> bool:
        """Tell whether the channel is known to be a forum."""
        return channel in self._known

    async def finds(self, channel: str) -> bool:
        """Ask Discord whether a channel is a forum, and remember it if it is one."""
        where = path("channels", channel)
        ask = RestRequest(verb="Discord, reading a channel", method="GET", path=where)
        found = await self._rest.ask(ask, Channel)
        if found.type in _KINDS:
            self._known[channel] = found
        return self.is_known(channel)

    async def open(
        self, channel: str, body: NewMessage, *, name: str, file: File | None, is_repeat: bool
    ) -> Shown:
        """Open a post, unless an earlier attempt opened it. Returns its first message."""
        post = NewPost(name=name, message=Starter(content=body.content, components=body.components))
        if is_repeat and (before := await self._tried(channel, post)) is not None:
            return before
        request = RestRequest(
            verb="Discord, opening a post",
            method="POST",
            path=path("channels", channel, "threads"),
            body=post,
            file=file,
            is_repeatable=False,
        )
        return (await self._rest.ask(request, _Opened)).message

    async def _tried(self, channel: str, post: NewPost) -> Shown | None:
        """Return the first message of a post that an earlier attempt opened, or None."""
        forum = self._known[channel]
        where = path("guilds", forum.guild_id, "threads", "active")
        ask = RestRequest(verb="Discord, looking for a post", method="GET", path=where)
        threads = (await self._rest.ask(ask, _Threads)).threads
        oldest_ms = self._clock.now_ms() - TRIED_S * 1000
        for thread in sorted(threads, key=lambda each: int(each.id), reverse=True):
            is_alike = (thread.parent_id, thread.name) == (channel, post.name)
            if is_alike and made_ms(thread.id) > oldest_ms:
                shown = await self._first(thread.id, post.message)
                if shown is not None:
                    return shown
        return None

    async def _first(self, thread: str, starter: Starter) -> Shown | None:
        """Return the first message of a post if it has the same text and a bot wrote it."""
        ask = RestRequest(
            verb="Discord, looking for a post",
            method="GET",
            path=path("channels", thread, "messages"),
            query={"after": "0", "limit": "1"},
        )
        try:
            messages = await self._rest.ask(ask, list[Message])
        except NotFound:
            return None
        for found in messages:
            is_same = "".join(found.content.split()) == "".join(starter.content.split())
            if found.author.bot and is_same:
                return Shown(id=found.id, channel_id=found.channel_id, content=found.content)
        return None


def name_of(text: str, otherwise: str = "") -> str:
    """Return a post's name: the first line of the text that has words, without markdown marks."""
    lines = (" ".join(line.strip(_MARKS).split()) for line in text.splitlines())
    name = next(filter(None, lines), "") or " ".join(otherwise.split()) or "Post"
    return name if len(name) <= NAME_MAX else name[: NAME_MAX - 1].rstrip() + "…"


class NewThread(msgspec.Struct, frozen=True, kw_only=True):
    name: str


async def begin_thread(rest: Rest, address: Address) -> bool:
    """Begin the thread of an address below the message that has its id. Returns False if there is
    no such message, or if the bot may not do that."""
    message = path("channels", address.place, "messages", address.thread)
    read = RestRequest(verb="Discord, reading a question", method="GET", path=message)
    try:
        asked = await rest.ask(read, Message)
        await rest.call(
            RestRequest(
                verb="Discord, beginning a thread",
                method="POST",
                path=f"{message}/threads",
                body=NewThread(name=name_of(_words(asked), "Question")),
            )
        )
    except (NotFound, Permanent):
        return False
    return True


def _words(asked: Message) -> str:
    """Return the text of a question without the marks of mentions, which a name does not show."""
    return " ".join(word for word in asked.content.split() if not word.startswith(("<@", "<#")))
