"""Files of messages: which must still be brought here, and how each is told.

A message is accepted with whatever its platform says of a file. What becomes of the file is told by
later events of the same turn; folding them gives the attachment as it stands. Nothing of a turn is
told to a model before all of its files are here or given up, so what is told never changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

import msgspec

from perdure.domain.content.attribution import in_a_file, in_own_words
from perdure.domain.content.forwards import ForwardedText
from perdure.domain.content.stickers import told
from perdure.domain.ids import MessageId
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    MediaFetched,
    MediaLost,
    MessageJoined,
    Recorded,
    SteerAccepted,
    SteerTaken,
    StickerDescribed,
    TurnQueued,
)
from perdure.domain.text import sentence, storable

# What both makers' models can see; other kinds are refused with the whole request.
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# What people read is not a whole book.
SHOWN_TEXT_MAX: Final = 2_000
NAME_MAX: Final = 120
# How many files of a message are named in one sentence.
NAMED_MAX: Final = 3
GIVEN: Final = "[sent the file "

SpokenEvent = TurnQueued | MessageJoined | SteerAccepted | SteerTaken
FileEnd = MediaFetched | MediaLost | StickerDescribed
FileEnds = Mapping[tuple[MessageId, int], FileEnd]
NOWHERE: Final[FileEnds] = MappingProxyType({})


def is_unread(attachment: Attachment) -> bool:
    """Must it be brought here, or be read, before a model can be told of it?"""
    if attachment.problem or attachment.text:
        return False
    if attachment.sticker is not None:
        return attachment.sticker.is_describable and bool(attachment.reference)
    if attachment.media is not None:
        return attachment.mime not in PICTURES
    return bool(attachment.reference or attachment.url)


def unread_in(spoken: SpokenEvent) -> list[int]:
    """The numbers of the attachments that a turn must wait for. A result was read where it was
    asked for."""
    if isinstance(spoken, TurnQueued) and spoken.answer:
        return []
    return [n for n, attachment in enumerate(spoken.attachments) if is_unread(attachment)]


def unread_count(turn: Iterable[Recorded]) -> int:
    """How many files of a turn are still to come."""
    count = 0
    for recorded in turn:
        match recorded.event:
            case TurnQueued() | MessageJoined() as spoken:
                count += len(unread_in(spoken))
            case MediaFetched() | MediaLost() | StickerDescribed():
                count -= 1
            case _:
                pass
    return count


def places_of(turn: Iterable[Recorded]) -> FileEnds:
    """What became of a turn's files, by message and number."""
    ended = [r.event for r in turn if isinstance(r.event, FileEnd)]
    return {(event.message, event.index): event for event in ended}


def as_fetched(spoken: SpokenEvent, places: FileEnds) -> tuple[Attachment, ...]:
    """A message's attachments as they stand now."""
    if not places:
        return spoken.attachments
    return tuple(
        _after(attachment, places.get((spoken.message, number)))
        for number, attachment in enumerate(spoken.attachments)
    )


def _after(attachment: Attachment, event: FileEnd | None) -> Attachment:
    match event:
        case MediaFetched():
            return msgspec.structs.replace(
                attachment,
                media=event.media,
                mime=event.mime,
                name=event.name,
                size=event.size,
                text=event.text,
                problem=event.problem,
                seconds=event.seconds,
            )
        case MediaLost(reason=reason):
            return msgspec.structs.replace(attachment, problem=reason)
        case StickerDescribed(words=words):
            return msgspec.structs.replace(attachment, text=words)
        case None:
            return attachment


def asked_again(attachment: Attachment) -> Attachment:
    """For a turn that repeats the message: what was lost is tried once more."""
    is_lost = attachment.problem and attachment.media is None
    return msgspec.structs.replace(attachment, problem="") if is_lost else attachment


def shown(attachments: Iterable[Attachment]) -> tuple[Attachment, ...]:
    """As people read it: without what only the platform understands, which may open the file to
    anyone who has it."""
    return tuple(
        msgspec.structs.replace(each, reference="", text=each.text[:SHOWN_TEXT_MAX])
        if each.reference or len(each.text) > SHOWN_TEXT_MAX
        else each
        for each in attachments
    )


def in_words(attachment: Attachment) -> str:
    """A file that a model is told of instead of seeing it. Its address stays out: a platform's may
    carry the bot's token."""
    if attachment.sticker is not None:
        return told(attachment.sticker, attachment.text)
    head = _head(attachment)
    if attachment.problem:
        sign = "," if attachment.is_voice else ":"
        return f"[{head}{sign} {_plain(attachment.problem)}]"
    if not attachment.text:
        return f"[{head}]"
    if attachment.is_voice:
        return f"[{head}]\n{in_own_words(ForwardedText(attachment.text))}"
    return f"[{head}]\n{in_a_file(attachment.text)}\n[end of {file_name(attachment)}]"


def given_in(turn: Iterable[Recorded]) -> tuple[Attachment, ...]:
    """The files that an agent has given in a turn."""
    said = [r.event for r in turn if isinstance(r.event, AssistantSaid)]
    return tuple(attachment for each in said for attachment in each.attachments)


def given_in_words(attachment: Attachment) -> str:
    """A file that the agent itself has given, for the model to know of it afterwards."""
    return f"{GIVEN}{file_name(attachment)}{_kind(attachment)}]"


def lost_text(attachment: Attachment, reason: str) -> str:
    """What the people are told of a file that nobody could bring."""
    return sentence(f"The file {file_name(attachment)} could not be read: {reason}")


def slow_text(attachments: Sequence[Attachment], *, wait_s: float, is_here: bool) -> str:
    """Return what the people are told of files that a turn has been waiting for. `is_here`: they
    were brought, and are still being read."""
    be, it = ("is", "it") if len(attachments) == 1 else ("are", "they")
    doing, come = ("read", "read") if is_here else ("fetched", "here")
    return (
        f"{_named(attachments)} {be} still being {doing}. If {it} {be} not {come} within "
        f"{wait_s:g} seconds of your message, the answer begins without {_them(attachments)}."
    )


def late_text(attachments: Sequence[Attachment], *, is_here: bool) -> str:
    """Return what the people are told of files that a turn waits for no longer."""
    them = _them(attachments)
    fate = "could not be read in time" if is_here else "did not arrive in time"
    return f"{_named(attachments)} {fate}, so the answer begins without {them}. Send {them} again."


def late_reason(*, is_here: bool) -> str:
    """Return what a model and the people read of such a file where it would stand."""
    return f"{'it could not be read' if is_here else 'it did not arrive'} in time; send it again"


def _named(attachments: Sequence[Attachment]) -> str:
    if len(attachments) == 1:
        (only,) = attachments
        return "The voice message" if only.is_voice else f"The file {file_name(only)}"
    names = [file_name(each) for each in attachments[:NAMED_MAX]]
    more = len(attachments) - len(names)
    last = f"{more} more" if more else names.pop()
    return f"The files {', '.join(names)} and {last}"


def _them(attachments: Sequence[Attachment]) -> str:
    return "it" if len(attachments) == 1 else "them"


def file_name(attachment: Attachment) -> str:
    return _plain(name_of(attachment)) or "without a name"


def name_of(attachment: Attachment) -> str:
    """What people call it, else the end of its address, which gives nothing away."""
    if attachment.name or not attachment.url:
        return storable(attachment.name)[:NAME_MAX]
    host_and_path = attachment.url.partition("?")[0].partition("#")[0].partition("://")[2]
    _, _, path = host_and_path.partition("/")
    return storable(unquote(path.rpartition("/")[2]))[:NAME_MAX]


def _head(attachment: Attachment) -> str:
    if attachment.is_voice:
        minutes, seconds = divmod(attachment.seconds, 60)
        return f"voice message, {minutes}:{seconds:02}" if attachment.seconds else "voice message"
    return f"attached file: {file_name(attachment)}{_kind(attachment)}"


def _kind(attachment: Attachment) -> str:
    return f" ({_plain(attachment.mime)})" if attachment.mime else ""


def _plain(text: str) -> str:
    """Words from outside that stand inside a line of ours must not end it."""
    kept = "".join(c if c.isprintable() and c not in "[]" else " " for c in text)
    return " ".join(kept.split())
