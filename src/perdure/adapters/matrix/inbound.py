"""From a room's event to what a person did. Pure: what must be known besides comes as arguments.

An edit says nothing of the thread it belongs to, a reply nothing of whom it answers; `asks_about`
names the earlier event that has to be known first.
"""

import re
from hashlib import sha256
from typing import Final

import msgspec

from perdure.adapters.matrix.events import (
    ENCRYPTED,
    MESSAGE,
    REDACTION,
    REPLACE,
    STICKER,
    THREAD,
    Event,
    FileFacts,
    ForwardedFacts,
    MessageContent,
    RedactionContent,
    Relation,
    decoded,
)
from perdure.adapters.matrix.rooms import localpart
from perdure.domain.arrivals import Arrival, FileReference, PlaceKind, Sender
from perdure.domain.attachments import PICTURES
from perdure.domain.commands import given
from perdure.domain.forwards import Forward, Origin
from perdure.domain.stickers import Sticker
from perdure.domain.updates import DELETE, EDIT

_FILES: Final = frozenset({"m.image", "m.file", "m.audio", "m.video"})
_NOTICE: Final = "m.notice"
# Requests of other machines that travel as messages.
_NOT_SAID: Final = "m.key.verification."
_QUOTED: Final = re.compile(r"\A> (?:\* )?(?:<(?P<author>@[^>\s]+)> ?)?")
_PILL: Final = re.compile(r"https://matrix\.to/#/(@[^\"'?>]+)", re.IGNORECASE)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier event. Of one that was taken away only its author is left. `forward` says whose
    words it passed on, if it did."""

    author: str
    text: str = ""
    thread: str = ""
    is_message: bool = True
    forward: Forward | None = None


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A person's own words, or those that they passed on."""

    text: str = ""
    is_named: bool = False
    forwards: tuple[Forward, ...] = ()

    @property
    def words(self) -> str:
        return self.text or "".join(forward.text for forward in self.forwards)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where an event took place. `my_names` are what people call the bot there."""

    place: str
    kind: PlaceKind
    label: str
    me: str
    my_names: tuple[str, ...]
    sender_name: str


def asks_about(event: Event) -> str:
    """The id of the event that must be known to understand this one; empty if none."""
    if event.type == REDACTION:
        return _redacted(event)
    relation = _relation(event)
    if relation is None:
        return ""
    if relation.rel_type == REPLACE:
        return relation.event_id
    return _replied_to(relation)


def understood(event: Event, scene: Scene, known: Known | None) -> Arrival | None:
    """None for what is no word to anybody: reactions, joins, our own messages."""
    if event.sender == scene.me or not event.event_id:
        return None
    if event.type == REDACTION:
        return _deletion(event, scene, known)
    content = _content(event)
    if content is None or content.msgtype.startswith(_NOT_SAID):
        return None
    relation = content.relates_to or Relation()
    if relation.rel_type == REPLACE:
        return _edit(event, content, scene, known)
    return _message(event, content, scene, known)


def is_malformed(event: Event) -> bool:
    """Is it meant as a message, and yet none that anybody could read?"""
    is_said = event.type in {MESSAGE, STICKER}
    return is_said and decoded(event.content, MessageContent) is None


def remembered(event: Event, newest: Event | None = None) -> Known:
    """What is worth knowing of an event when a later one speaks of it; `newest` is its last edit.
    Of one that was taken away before we saw it there is nothing to take away."""
    content = _content(event)
    relation = (content and content.relates_to) or Relation()
    edited = _content(newest) if newest is not None else None
    words = (edited and edited.new_content) or content
    return Known(
        author=event.sender,
        text=_without_quote(words.body, relation)[0] if words else "",
        thread=_thread(relation),
        is_message=content is not None and relation.rel_type != REPLACE,
        forward=_forward(content) if content else None,
    )


def looked_up(event: Event, newest: Event | None = None) -> Known:
    """The same of an event that we may have seen in an earlier life, when it still had words."""
    is_redacted = event.type in {MESSAGE, STICKER, ENCRYPTED} and event.is_redacted
    known = remembered(event, newest)
    return msgspec.structs.replace(known, is_message=known.is_message or is_redacted)


def _message(
    event: Event, content: MessageContent, scene: Scene, known: Known | None
) -> Arrival | None:
    relation = content.relates_to or Relation()
    body, quoted = _without_quote(content.body, relation)
    files = _files(event, content)
    text = body
    if files and (content.filename is None or content.filename == content.body):
        text = ""
    answers_us = quoted.author == scene.me
    if known is not None and _replied_to(relation):
        answers_us = known.author == scene.me
        quoted = known
    said = _said(text, content, scene, _forward(content))
    if not said.words and not files and not said.is_named:
        return None
    return Arrival(
        external_id=event.event_id,
        place=scene.place,
        place_kind=scene.kind,
        sender=_sender(event, scene, is_bot=content.msgtype == _NOTICE),
        thread=_thread(relation),
        label=scene.label,
        text=said.text,
        is_addressed=said.is_named or answers_us,
        files=files,
        quote=quoted.text,
        forwards=said.forwards,
    )


def _edit(
    event: Event, content: MessageContent, scene: Scene, known: Known | None
) -> Arrival | None:
    """Anybody can send an edit of anybody's message; only the author's counts."""
    relation, words = content.relates_to, content.new_content
    if relation is None or words is None or known is None:
        return None
    if known.author != event.sender or not known.is_message:
        return None
    said = _said(words.body, content, scene, known.forward)
    return Arrival(
        kind=EDIT,
        external_id=event.event_id,
        place=scene.place,
        place_kind=scene.kind,
        sender=_sender(event, scene, is_bot=words.msgtype == _NOTICE),
        thread=known.thread,
        label=scene.label,
        text=said.text,
        is_addressed=said.is_named,
        target=relation.event_id,
        forwards=said.forwards,
    )


def _deletion(event: Event, scene: Scene, known: Known | None) -> Arrival | None:
    """The server has checked who may take a message away: its author, or whoever keeps order in
    the room. It is gone either way, so it counts as its author's doing."""
    if known is None or not known.is_message or known.author == scene.me:
        return None
    sender = _sender(event, scene)
    if known.author != event.sender:
        sender = Sender(id=known.author, name=localpart(known.author))
    return Arrival(
        kind=DELETE,
        external_id=event.event_id,
        place=scene.place,
        place_kind=scene.kind,
        sender=sender,
        thread=known.thread,
        label=scene.label,
        target=_redacted(event),
    )


def _content(event: Event) -> MessageContent | None:
    if event.type not in {MESSAGE, STICKER}:
        return None
    content = decoded(event.content, MessageContent)
    if content is None or not (content.body or content.url or content.file):
        return None
    return content


def _relation(event: Event) -> Relation | None:
    content = _content(event)
    return content.relates_to if content else None


def _redacted(event: Event) -> str:
    """Newer rooms keep it in the content, older ones beside it."""
    content = decoded(event.content, RedactionContent)
    return (content and content.redacts) or event.redacts


def _replied_to(relation: Relation) -> str:
    """A reply in a thread may be there only for clients that know no threads."""
    if relation.in_reply_to is None or (relation.rel_type == THREAD and relation.is_falling_back):
        return ""
    return relation.in_reply_to.event_id


def _thread(relation: Relation) -> str:
    return relation.event_id if relation.rel_type == THREAD else ""


def _sender(event: Event, scene: Scene, *, is_bot: bool = False) -> Sender:
    """A notice is what a bot says, and bots do not answer it: so they cannot talk in circles."""
    return Sender(id=event.sender, name=scene.sender_name, is_bot=is_bot)


def _without_quote(body: str, relation: Relation) -> tuple[str, Known]:
    """Older clients put the message they answer before their own words, each line after `> `."""
    opening = _QUOTED.match(body) if relation.in_reply_to is not None else None
    if opening is None:
        return body, Known(author="")
    lines = body.split("\n")
    quoted = next((i for i, line in enumerate(lines) if not line.startswith(">")), len(lines))
    first = lines[0][opening.end() :]
    rest = [line.removeprefix(">").removeprefix(" ") for line in lines[1:quoted]]
    said = "\n".join(lines[quoted:]).removeprefix("\n")
    return said, Known(author=opening["author"] or "", text="\n".join([first, *rest]))


def _said(text: str, content: MessageContent, scene: Scene, forward: Forward | None) -> _Said:
    """A forward is a copy, whose words speak to whomever they were first written to."""
    if forward is not None:
        return _Said(forwards=(msgspec.structs.replace(forward, text=text),))
    text, is_named = _without_mention(text, content, scene)
    return _Said(text=_command(text), is_named=is_named)


def _forward(content: MessageContent) -> Forward | None:
    """Whose message this one passes on, without its words; None where the client does not say that
    it does."""
    facts = bytes(content.forwarded)
    if not facts or facts == b"null":
        return None
    author = (decoded(content.forwarded, ForwardedFacts) or ForwardedFacts()).sender
    return Forward(origin=Origin.PERSON, name=author) if author else Forward()


def _without_mention(text: str, content: MessageContent, scene: Scene) -> tuple[str, bool]:
    """The words without the bot's name at either end, and whether it is meant at all."""
    words = content.new_content or content
    mentions = words.mentions or content.mentions
    names = "|".join(re.escape(name) for name in _names(scene))
    opening = re.compile(rf"\A\s*(?:@?(?:{names})\s*[:,]|@(?:{names})(?!\w))\s*", re.IGNORECASE)
    closing = re.compile(rf"\s*[,]?\s*@(?:{names})\s*([.!?]*)\s*\Z", re.IGNORECASE)
    is_named = _is_mentioned(text, content, scene, names)
    if mentions is not None and scene.me in mentions.user_ids:
        is_named = True
        # A pill leaves only the name in the text, with nothing around it.
        opening = re.compile(rf"\A\s*@?(?:{names})(?!\w)\s*[:,]?\s*", re.IGNORECASE)
        closing = re.compile(rf"\s*[,]?\s*(?<!\w)@?(?:{names})\s*([.!?]*)\s*\Z", re.IGNORECASE)
    if not is_named:
        return text, False
    return closing.sub(r"\1", opening.sub("", text, count=1), count=1), True


def _is_mentioned(text: str, content: MessageContent, scene: Scene, names: str) -> bool:
    """By a pill, by `@name`, or by its name before a colon. A client that tells of mentions has
    told of none: then a name inside a sentence only speaks about the bot."""
    html = (content.new_content or content).formatted_body or ""
    if any(user.casefold() == scene.me.casefold() for user in _PILL.findall(html)):
        return True
    if re.search(rf"(?<!\w)@(?:{names})(?!\w)", text, re.IGNORECASE):
        return True
    if re.match(rf"\s*(?:{names})\s*[:,]", text, re.IGNORECASE):
        return True
    is_untold = content.mentions is None
    return is_untold and bool(re.search(rf"(?<!\w)(?:{names})(?!\w)", text, re.IGNORECASE))


def _names(scene: Scene) -> list[str]:
    """The longest first, so that a name is not cut off inside another."""
    names = {scene.me.removeprefix("@"), localpart(scene.me), *scene.my_names}
    return sorted((name for name in names if name), key=len, reverse=True)


def _command(text: str) -> str:
    """Clients keep the slash for themselves, so people here begin a command with `!`."""
    if text.startswith("!"):
        slashed = "/" + text[1:]
        found = given(slashed)
        if found is not None and found.command is not None:
            return slashed
    return text


def _files(event: Event, content: MessageContent) -> tuple[FileReference, ...]:
    if content.msgtype not in _FILES and event.type != STICKER:
        return ()
    reference = content.url or ""
    if content.file is not None:
        reference = msgspec.json.encode(content.file).decode()
    if not reference:
        return ()
    facts = decoded(content.info, FileFacts) or FileFacts()
    if event.type == STICKER:
        return (_sticker(content, reference, facts),)
    return (
        FileReference(
            reference=reference,
            mime=facts.mimetype,
            name=content.filename or content.body,
            size=max(facts.size, 0),
            is_voice=bool(bytes(content.voice)),
        ),
    )


def _sticker(content: MessageContent, reference: str, facts: FileFacts) -> FileReference:
    """A sticker is known by the address of its bytes, which never change there. What opens sealed
    bytes is part of the id: who has only the address is not told what they show."""
    is_sealed = content.file is not None
    picture, mime = reference, facts.mimetype
    if mime and mime not in PICTURES:
        # A sticker that moves may be of a kind that no model sees.
        picture, mime = facts.thumbnail_url, ""
    return FileReference(
        reference=picture,
        mime=mime,
        name=f"sticker {content.body}".rstrip(),
        size=max(facts.size, 0) if picture == reference else 0,
        sticker=Sticker(
            id=sha256(reference.encode()).hexdigest() if is_sealed else reference,
            name=content.body,
        ),
    )
