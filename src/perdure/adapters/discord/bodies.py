"""What Discord is asked to show and to offer, as the bodies of requests. Pure."""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.adapters.discord.inbound import button_id
from perdure.adapters.discord.render import plain, render
from perdure.domain.inbound.commands import Command, Takes, open_to

LABEL_MAX: Final = 80
ROW_MAX: Final = 5
CHOICES_MAX: Final = ROW_MAX * 5
DESCRIPTION_MAX: Final = 100
EPHEMERAL: Final = 1 << 6

_STRING: Final = 3
_INTEGER: Final = 4


class Mentions(msgspec.Struct, frozen=True):
    """Nobody is called by what an agent writes, not even the person who is answered."""

    parse: tuple[str, ...] = ()
    replied_user: bool = False


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """What a message answers. If that was deleted, the answer is shown all the same."""

    message_id: str
    fail_if_not_exists: bool = False


class Button(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    custom_id: str
    type: int = 2
    style: int = 2


class ButtonRow(msgspec.Struct, frozen=True, kw_only=True):
    components: tuple[Button, ...]
    type: int = 1


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    content: str
    nonce: str
    enforce_nonce: bool = True
    allowed_mentions: Mentions = Mentions()
    components: tuple[ButtonRow, ...] | UnsetType = UNSET
    message_reference: Reference | UnsetType = UNSET


class ChangedMessage(msgspec.Struct, frozen=True, kw_only=True):
    content: str
    components: tuple[ButtonRow, ...] = ()
    allowed_mentions: Mentions = Mentions()


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How Discord answers: the message as it now stands."""

    id: str
    channel_id: str
    content: str = ""


class Flags(msgspec.Struct, frozen=True):
    flags: int


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    type: int
    data: Flags | UnsetType = UNSET


# A click changes nothing by itself; a command gets an answer that only its giver sees, and that is
# taken away again: the real one is a message.
CLICK_TAKEN: Final = Acknowledgement(type=6)
COMMAND_TAKEN: Final = Acknowledgement(type=5, data=Flags(EPHEMERAL))


class OfferedOption(msgspec.Struct, frozen=True, kw_only=True):
    type: int
    name: str
    description: str
    required: bool = False


class OfferedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Offered in servers and in private with the bot, not where it could not answer."""

    name: str
    description: str
    type: int = 1
    contexts: tuple[int, ...] = (0, 1)
    integration_types: tuple[int, ...] = (0,)
    options: tuple[OfferedOption, ...] = ()


def nonce_of(key: str) -> str:
    """Discord takes 25 characters at most; 20 digits tell keys apart well enough."""
    return str(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]))


def spellings(text: str) -> tuple[str, ...]:
    """Every content that stands for a text: rendered, and letter by letter."""
    return (render(text), plain(text)) if text.strip() else ("",)


def new_message(
    text: str,
    *,
    key: str,
    reply_to: str = "",
    choices: tuple[str, ...] = (),
    is_plain: bool = False,
) -> NewMessage:
    return NewMessage(
        content=_content(text, is_plain=is_plain) if text.strip() else "",
        nonce=nonce_of(key),
        components=_rows(choices) or UNSET,
        message_reference=Reference(message_id=reply_to) if reply_to else UNSET,
    )


def changed_message(
    text: str, *, choices: tuple[str, ...] = (), is_plain: bool = False
) -> ChangedMessage:
    return ChangedMessage(content=_content(text, is_plain=is_plain), components=_rows(choices))


def _content(text: str, *, is_plain: bool) -> str:
    return plain(text) if is_plain else render(text)


def _rows(choices: tuple[str, ...]) -> tuple[ButtonRow, ...]:
    buttons = [
        Button(label=word[:LABEL_MAX], custom_id=button_id(index, word))
        for index, word in enumerate(choices[:CHOICES_MAX])
    ]
    starts = range(0, len(buttons), ROW_MAX)
    return tuple(ButtonRow(components=tuple(buttons[start : start + ROW_MAX])) for start in starts)


def offered_commands() -> tuple[OfferedCommand, ...]:
    """Our commands as Discord's menu shows them. What only operators may say is not advertised."""
    return tuple(_offered(command) for command in open_to(is_operator=False))


_OPTIONS: Final[Mapping[Takes, tuple[OfferedOption, ...]]] = {
    Takes.NOTHING: (),
    Takes.WORDS: (
        OfferedOption(type=_STRING, name="text", description="What to say", required=True),
    ),
    Takes.MAYBE_WORDS: (OfferedOption(type=_STRING, name="text", description="May be left out"),),
    Takes.MAYBE_COUNT: (OfferedOption(type=_INTEGER, name="count", description="How many"),),
}


def _offered(command: Command) -> OfferedCommand:
    description = command.help[:1].upper() + command.help[1:]
    return OfferedCommand(
        name=command.name,
        description=description[:DESCRIPTION_MAX],
        options=_OPTIONS[command.takes],
    )
