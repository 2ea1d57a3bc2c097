"""Tells which files of messages must still be fetched, and describes files to people and models.

A message is accepted with whatever its platform says about a file. Later events of the same turn
say what became of the file; `as_fetched` applies them, and returns the attachment as it is now. A
model is told nothing of a turn before all its files were fetched or given up, so what it is told
never changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

import msgspec

from perdure.domain.content.attribution import in_a_file, in_own_words
from perdure.domain.content.forwards import ForwardedText
from perdure.domain.content.stickers import sticker_text
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
    ToolFinished,
    TurnQueued,
)
from perdure.domain.text import sentence, storable

# The pictures that the models of both makers accept. Any other kind makes them refuse the request.
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# How many characters of a file's text are shown to people.
SHOWN_TEXT_MAX: Final = 2_000
NAME_MAX: Final = 120
# How many files of a message are named in one sentence.
NAMED_MAX: Final = 3
# The beginning of the line that tells a model of a file which it has sent itself.
GIVEN: Final = "[sent the file "

SpokenEvent = TurnQueued | MessageJoined | SteerAccepted | SteerTaken
FileEnd = MediaFetched | MediaLost | StickerDescribed
# What became of files, by message and number of the attachment.
FileEnds = Mapping[tuple[MessageId, int], FileEnd]
NOWHERE: Final[FileEnds] = MappingProxyType({})


def is_unread(attachment: Attachment) -> bool:
    """Tell whether a file must be fetched or read before a model can be told of it."""
    if attachment.problem or attachment.text:
        return False
    if attachment.sticker is not None:
        return attachment.sticker.is_describable and bool(attachment.reference)
    if attachment.media is not None:
        return attachment.is_unfit or (attachment.mime not in PICTURES and not attachment.shown)
    return bool(attachment.reference or attachment.url)


def unread_in(spoken: SpokenEvent) -> list[int]:
    """Return the numbers of the attachments that a turn must wait for. A turn that brings a result
    waits for none: they were read where the result was requested."""
    if isinstance(spoken, TurnQueued) and spoken.answer:
        return []
    return [n for n, attachment in enumerate(spoken.attachments) if is_unread(attachment)]


def unread_count(turn: Iterable[Recorded]) -> int:
    """Return how many files of a turn are still to come."""
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
    """Return what became of a turn's files, by message and number."""
    ended = [r.event for r in turn if isinstance(r.event, FileEnd)]
    return {(event.message, event.index): event for event in ended}


def as_fetched(spoken: SpokenEvent, places: FileEnds) -> tuple[Attachment, ...]:
    """Return a message's attachments as they are now."""
    if not places:
        return spoken.attachments
    return tuple(
        _after(attachment, places.get((spoken.message, number)))
        for number, attachment in enumerate(spoken.attachments)
    )


def _after(attachment: Attachment, event: FileEnd | None) -> Attachment:
    """Return an attachment as it is after the event that says what became of it."""
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
                is_unfit=False,
                shown=event.shown,
            )
        case MediaLost(reason=reason):
            return msgspec.structs.replace(attachment, problem=reason)
        case StickerDescribed(words=words):
            return msgspec.structs.replace(attachment, text=words)
        case None:
            return attachment


def asked_again(attachment: Attachment) -> Attachment:
    """Return an attachment for a turn that repeats its message. A lost file is tried once more."""
    is_lost = attachment.problem and attachment.media is None
    return msgspec.structs.replace(attachment, problem="") if is_lost else attachment


def shown_attachments(attachments: Iterable[Attachment]) -> tuple[Attachment, ...]:
    """Return attachments as people may see them: with at most the beginning of a long text, without
    what only models are shown, and without the platform's reference, which may open the file to
    anyone who has it."""
    return tuple(
        msgspec.structs.replace(
            each, reference="", text=each.text[:SHOWN_TEXT_MAX], is_unfit=False, shown=""
        )
        if each.reference or each.shown or each.is_unfit or len(each.text) > SHOWN_TEXT_MAX
        else each
        for each in attachments
    )


def in_words(attachment: Attachment) -> str:
    """Describe a file to a model that does not see it. The file's URL is left out, because a
    platform's URL may contain the bot's token."""
    if attachment.sticker is not None:
        return sticker_text(attachment.sticker, attachment.text)
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
    """Return the files that an agent and its tools have sent in a turn."""
    said = [r.event for r in turn if isinstance(r.event, AssistantSaid | ToolFinished)]
    return tuple(attachment for each in said for attachment in each.attachments)


def has_acted(turn: Iterable[Recorded]) -> bool:
    """Tell whether an agent has sent files, or used tools of its own, in these events."""
    events = list(turn)
    said = [r.event for r in events if isinstance(r.event, AssistantSaid)]
    return any(call.is_agents for each in said for call in each.calls) or bool(given_in(events))


def given_in_words(attachment: Attachment) -> str:
    """Describe a file that the agent has sent itself, so that the model knows of it later."""
    return f"{GIVEN}{file_name(attachment)}{_kind(attachment)}]"


def lost_text(attachment: Attachment, reason: str) -> str:
    """Return the notice to people that a file could not be read."""
    return sentence(f"The file {file_name(attachment)} could not be read: {reason}")


def slow_text(attachments: Sequence[Attachment], *, wait_s: float, is_here: bool) -> str:
    """Return the notice to people about files that a turn is waiting for. `is_here`: they were
    fetched, and are still being read."""
    be, it = ("is", "it") if len(attachments) == 1 else ("are", "they")
    doing, come = ("read", "read") if is_here else ("fetched", "here")
    return (
        f"{_named(attachments)} {be} still being {doing}. If {it} {be} not {come} within "
        f"{wait_s:g} seconds of your message, the answer begins without {_them(attachments)}."
    )


def late_text(attachments: Sequence[Attachment], *, is_here: bool) -> str:
    """Return the notice to people about files that a turn does not wait for any longer."""
    them = _them(attachments)
    fate = "could not be read in time" if is_here else "did not arrive in time"
    return f"{_named(attachments)} {fate}, so the answer begins without {them}. Send {them} again."


def late_reason(*, is_here: bool) -> str:
    """Return what people and a model read in the place of a file that was too late."""
    return f"{'it could not be read' if is_here else 'it did not arrive'} in time; send it again"


def _named(attachments: Sequence[Attachment]) -> str:
    """Return a subject for a sentence about files, with the names of the first few."""
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
    """Return a file's name in a form that can stand inside a line of ours."""
    return _plain(name_of(attachment)) or "without a name"


def name_of(attachment: Attachment) -> str:
    """Return the name that people gave the file, or else the last part of its URL's path. The rest
    of the URL is left out, because it may contain a secret."""
    if attachment.name or not attachment.url:
        return storable(attachment.name)[:NAME_MAX]
    host_and_path = attachment.url.partition("?")[0].partition("#")[0].partition("://")[2]
    _, _, path = host_and_path.partition("/")
    return storable(unquote(path.rpartition("/")[2]))[:NAME_MAX]


def _head(attachment: Attachment) -> str:
    """Return the words that introduce a file to a model."""
    if attachment.is_voice:
        minutes, seconds = divmod(attachment.seconds, 60)
        return f"voice message, {minutes}:{seconds:02}" if attachment.seconds else "voice message"
    return f"attached file: {file_name(attachment)}{_kind(attachment)}"


def _kind(attachment: Attachment) -> str:
    return f" ({_plain(attachment.mime)})" if attachment.mime else ""


def _plain(text: str) -> str:
    """Return words from outside without characters that could end the line of ours they stand
    in."""
    kept = "".join(c if c.isprintable() and c not in "[]" else " " for c in text)
    return " ".join(kept.split())
