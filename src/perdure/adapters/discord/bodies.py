"""Builds the bodies of requests that show messages and offer commands. Pure."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.adapters.discord.inbound import button_id
from perdure.adapters.discord.render import plain, render
from perdure.domain.ids import QuestionId
from perdure.domain.inbound.commands import Command, Takes, open_to
from perdure.ports.platform.buttons import button_data, button_label

# Discord's limits for buttons and command descriptions: characters of a label, buttons in a row,
# five rows, characters of a description.
LABEL_MAX: Final = 80
ROW_MAX: Final = 5
CHOICES_MAX: Final = ROW_MAX * 5
DESCRIPTION_MAX: Final = 100
# The flag of a response that only the person who gave the command sees.
EPHEMERAL: Final = 1 << 6
# The flag of a voice message.
IS_VOICE: Final = 1 << 13

# Discord's types of command options.
_STRING: Final = 3
_INTEGER: Final = 4


class Mentions(msgspec.Struct, frozen=True):
    """Allows no mentions: an agent's text notifies nobody, not even the person it replies to."""

    parse: tuple[str, ...] = ()
    replied_user: bool = False


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Names the message that is replied to. If it was deleted, the reply is shown all the same."""

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


class VoiceFile(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the recording of a voice message. `waveform` is the picture that people see of it,
    one byte in base64 for each piece; all pieces are equally loud here."""

    id: int = 0
    filename: str
    duration_secs: float
    waveform: str = base64.b64encode(bytes([96] * 48)).decode()


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a new message. `enforce_nonce` makes Discord show messages with one nonce only once. A
    voice message has a flag and describes its recording; its content is empty."""

    content: str
    nonce: str
    enforce_nonce: bool = True
    allowed_mentions: Mentions = Mentions()
    components: tuple[ButtonRow, ...] | UnsetType = UNSET
    message_reference: Reference | UnsetType = UNSET
    flags: int | UnsetType = UNSET
    attachments: tuple[VoiceFile, ...] | UnsetType = UNSET


class ChangedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an edit. Empty `components` remove the buttons that the message had."""

    content: str
    components: tuple[ButtonRow, ...] = ()
    allowed_mentions: Mentions = Mentions()


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Holds Discord's response to a new message: the message as it is now shown."""

    id: str
    channel_id: str
    content: str = ""


class Flags(msgspec.Struct, frozen=True):
    flags: int


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the first response to an interaction."""

    type: int
    data: Flags | UnsetType = UNSET


# A click is acknowledged without any visible change. A command gets a placeholder that only its
# sender sees and that is deleted again, because the real answer is a message.
CLICK_TAKEN: Final = Acknowledgement(type=6)
COMMAND_TAKEN: Final = Acknowledgement(type=5, data=Flags(EPHEMERAL))


class OfferedOption(msgspec.Struct, frozen=True, kw_only=True):
    type: int
    name: str
    description: str
    required: bool = False


class OfferedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a command on the menu. It is offered in servers (0) and in direct messages with the
    bot (1), but not in private channels between people, where the bot could not answer."""

    name: str
    description: str
    type: int = 1
    contexts: tuple[int, ...] = (0, 1)
    integration_types: tuple[int, ...] = (0,)
    options: tuple[OfferedOption, ...] = ()


def nonce_of(key: str) -> str:
    """Return the nonce of a part's key. Discord takes 25 characters at most; the 20 digits of a
    64-bit number are enough to keep keys apart."""
    return str(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]))


def spellings(text: str) -> tuple[str, ...]:
    """Return every content that a text may be sent as: rendered and as plain text."""
    return (render(text), plain(text)) if text.strip() else ("",)


def new_message(
    text: str,
    *,
    key: str,
    reply_to: str = "",
    choices: tuple[str, ...] = (),
    question: QuestionId | None = None,
    is_plain: bool = False,
) -> NewMessage:
    """Return the body of a new message."""
    return NewMessage(
        content=_content(text, is_plain=is_plain) if text.strip() else "",
        nonce=nonce_of(key),
        components=_rows(choices, question) or UNSET,
        message_reference=Reference(message_id=reply_to) if reply_to else UNSET,
    )


def voice_message(*, key: str, reply_to: str, name: str, seconds: int) -> NewMessage:
    """Return the body of a voice message."""
    return NewMessage(
        content="",
        nonce=nonce_of(key),
        message_reference=Reference(message_id=reply_to) if reply_to else UNSET,
        flags=IS_VOICE,
        attachments=(VoiceFile(filename=name, duration_secs=float(max(seconds, 1))),),
    )


def changed_message(
    text: str,
    *,
    choices: tuple[str, ...] = (),
    question: QuestionId | None = None,
    is_plain: bool = False,
) -> ChangedMessage:
    """Return the body of an edit."""
    return ChangedMessage(
        content=_content(text, is_plain=is_plain), components=_rows(choices, question)
    )


def _content(text: str, *, is_plain: bool) -> str:
    return plain(text) if is_plain else render(text)


def _rows(choices: tuple[str, ...], question: QuestionId | None) -> tuple[ButtonRow, ...]:
    """Arrange the choices in rows of buttons. Choices beyond `CHOICES_MAX` are dropped."""
    shown = choices[:CHOICES_MAX]
    buttons = [_button(index, word, question) for index, word in enumerate(shown)]
    starts = range(0, len(buttons), ROW_MAX)
    return tuple(ButtonRow(components=tuple(buttons[start : start + ROW_MAX])) for start in starts)


def _button(index: int, word: str, question: QuestionId | None) -> Button:
    if question is None:
        return Button(label=word[:LABEL_MAX], custom_id=button_id(index, word))
    label = button_label(word, index, LABEL_MAX)
    return Button(label=label, custom_id=button_data(question, index))


def offered_commands() -> tuple[OfferedCommand, ...]:
    """Return our commands for Discord's menu, without those that only operators may use."""
    return tuple(_offered(command) for command in open_to(is_operator=False))


# The options of a command on the menu, by what the command takes.
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
