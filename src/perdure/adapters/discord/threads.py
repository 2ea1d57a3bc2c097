"""Begins a thread below a question.

A thread that is begun from a message has the id of that message. So the address of the answer is
known before there is a thread, and nothing has to be stored: what is sent to a thread that does not
exist begins it, if its id is that of a message in the channel. Doing it again finds it begun.
"""

import msgspec

from perdure.adapters.discord.forums import name_of
from perdure.adapters.discord.payloads import Message
from perdure.adapters.discord.wire import Rest, RestRequest, path
from perdure.domain.address import Address
from perdure.domain.errors import NotFound, Permanent


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
