"""Translates a room's event into an arrival. Pure: everything else that must be known comes as an
argument.

An edit does not say which thread it belongs to, and a reply does not say whom it answers.
`asks_about` names the earlier event that has to be known for this.

For every event there is an envelope, for which only the bot's name is searched in the text.
`understood` reads the rest, once it is decided that the sender may speak.
"""

import re
from typing import Final

import msgspec

from perdure.adapters.matrix.events import (
    ENCRYPTED,
    MESSAGE,
    REDACTION,
    REPLACE,
    STICKER,
    THREAD,
    ForwardedFacts,
    MatrixEvent,
    MessageContent,
    RedactionContent,
    Relation,
    decoded,
)
from perdure.adapters.matrix.hearing.attachments import files_of, has_file
from perdure.adapters.matrix.hearing.mentions import is_called, is_spoken_of, unaddressed
from perdure.adapters.matrix.hearing.rooms import localpart
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.inbound.arrivals import SCANNED_MAX, Arrival, FileReference, PlaceKind, Sender
from perdure.domain.inbound.commands import command_in
from perdure.domain.kinds import UpdateKind

_NOTICE: Final = "m.notice"
# Requests to verify a device travel as messages, but nobody wrote them.
_NOT_SAID: Final = "m.key.verification."
_QUOTED: Final = re.compile(r"\A> (?:\* )?(?:<(?P<author>@[^>\s]+)> ?)?")
_PILL: Final = re.compile(r"https://matrix\.to/#/(@[^\"'?>]+)", re.IGNORECASE)


class EarlierEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what must be known about an earlier event that another one refers to. If it was
    deleted, only its author is left. `forward` says whose words it passed on. `is_reply`: its text
    may begin with a quote of the message that it answers. `files` are its own."""

    author: str
    text: str = ""
    thread: str = ""
    is_message: bool = True
    forward: Forward | None = None
    is_reply: bool = False
    files: tuple[FileReference, ...] = ()

    @property
    def own_words(self) -> str:
        """Return the text without the quote at its beginning."""
        return _without_quote(self.text, is_reply=self.is_reply)[0]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Describes where an event took place. `my_names` are the bot's names in that room."""

    place: str
    kind: PlaceKind
    label: str
    me: str
    my_names: tuple[str, ...]
    sender_name: str

    @property
    def group(self) -> str:
        """Return what the room is called, or an empty string for a private one."""
        return self.label if self.kind is PlaceKind.GROUP else ""


def asks_about(event: MatrixEvent) -> str:
    """Return the id of the earlier event that must be known to understand this one, or an empty
    string."""
    if event.type == REDACTION:
        return _redacted(event)
    relation = _relation(event)
    if relation is None:
        return ""
    if relation.rel_type == REPLACE:
        return relation.event_id
    return _replied_to(relation)


def needs_known(event: MatrixEvent, scene: Scene) -> bool:
    """Tell whether the decision who may speak depends on the earlier event. It does for a deletion
    (who wrote the deleted message?), and for a reply in a group (does it answer the bot?)."""
    if event.type == REDACTION:
        return True
    relation = _relation(event)
    if relation is None or relation.rel_type == REPLACE or scene.kind is PlaceKind.PRIVATE:
        return False
    return bool(_replied_to(relation))


def envelope_of(event: MatrixEvent, scene: Scene, known: EarlierEvent | None) -> Arrival | None:
    """Return what the decision about an event needs. Returns None for an event that is no message
    to anybody: a reaction, a join, a message of our own."""
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


def understood(event: MatrixEvent, scene: Scene, known: EarlierEvent | None) -> Arrival | None:
    """Return the whole arrival. Returns None where there is no envelope, and for an edit whose
    original message is unknown or was written by somebody else."""
    envelope = envelope_of(event, scene, known)
    if envelope is None:
        return None
    arrival = msgspec.structs.replace(envelope, label=scene.label)
    content = _content(event)
    if content is None or arrival.kind == UpdateKind.DELETE:
        return arrival
    if arrival.kind == UpdateKind.EDIT:
        return _edited(arrival, content, scene, known)
    text, quoted = _words(event, content)
    if known is not None and _replied_to(content.relates_to or Relation()):
        quoted = known
    arrival = _saying(arrival, text, content, scene, _forward(content))
    is_ours = quoted.author == scene.me
    return msgspec.structs.replace(
        arrival,
        files=files_of(event, content),
        quote=quoted.own_words,
        quoted_from="" if is_ours or not quoted.author else localpart(quoted.author),
        quoted_files=() if is_ours else quoted.files,
    )


def is_malformed(event: MatrixEvent) -> bool:
    """Tell whether an event has the type of a message but a content that cannot be decoded."""
    is_said = event.type in {MESSAGE, STICKER}
    return is_said and decoded(event.content, MessageContent) is None


def remembered(event: MatrixEvent, newest: MatrixEvent | None = None) -> EarlierEvent:
    """Return what to remember about an event, for later events that refer to it. `newest` is its
    last edit. If the event was deleted before we saw it, it does not count as a message, so its
    deletion has no effect."""
    content = _content(event)
    relation = (content and content.relates_to) or Relation()
    edited = _content(newest) if newest is not None else None
    words = (edited and edited.new_content) or content
    return EarlierEvent(
        author=event.sender,
        text=words.body if words else "",
        thread=_thread(relation),
        is_message=content is not None and relation.rel_type != REPLACE,
        forward=_forward(content) if content else None,
        is_reply=relation.in_reply_to is not None,
        files=files_of(event, content) if content else (),
    )


def looked_up(event: MatrixEvent, newest: MatrixEvent | None = None) -> EarlierEvent:
    """Return what to remember about an event that was fetched from the server. An earlier process
    may have seen it before it was deleted, so it still counts as a message."""
    is_redacted = event.type in {MESSAGE, STICKER, ENCRYPTED} and event.is_redacted
    known = remembered(event, newest)
    return msgspec.structs.replace(known, is_message=known.is_message or is_redacted)


def _message(
    event: MatrixEvent, content: MessageContent, scene: Scene, known: EarlierEvent | None
) -> Arrival:
    """Return the envelope of a message. It addresses the bot if it names it or answers it."""
    relation = content.relates_to or Relation()
    text, quoted = _words(event, content)
    answered = known.author if known is not None and _replied_to(relation) else quoted.author
    is_named = _forward(content) is None and _is_named(text, content, scene)
    return Arrival(
        external_id=event.event_id,
        place=scene.place,
        place_kind=scene.kind,
        label=scene.group,
        sender=_sender(event, scene, is_bot=content.msgtype == _NOTICE),
        thread=_thread(relation),
        is_addressed=is_named or answered == scene.me,
        reply_to=_replied_to(relation),
        own_thread="" if _thread(relation) else event.event_id,
    )


def _edit(
    event: MatrixEvent, content: MessageContent, scene: Scene, known: EarlierEvent | None
) -> Arrival | None:
    """Return the envelope of an edit, or None. Anybody can send an edit of any message, but only
    the author's counts. If the message is not known yet, its author and thread are found when the
    edit is read."""
    relation, words = content.relates_to, content.new_content
    if relation is None or words is None:
        return None
    if known is not None and (known.author != event.sender or not known.is_message):
        return None
    is_forward = known is not None and known.forward is not None
    return Arrival(
        kind=UpdateKind.EDIT,
        external_id=event.event_id,
        place=scene.place,
        place_kind=scene.kind,
        label=scene.group,
        sender=_sender(event, scene, is_bot=words.msgtype == _NOTICE),
        thread=known.thread if known is not None else "",
        is_addressed=not is_forward and _is_named(words.body, content, scene),
        target=relation.event_id,
    )


def _edited(
    envelope: Arrival, content: MessageContent, scene: Scene, known: EarlierEvent | None
) -> Arrival | None:
    """Return the edit with its new text. Returns None if the edited message cannot be found,
    because then its author is unknown."""
    if content.new_content is None or known is None:
        return None
    return _saying(envelope, content.new_content.body, content, scene, known.forward)


def _deletion(event: MatrixEvent, scene: Scene, known: EarlierEvent | None) -> Arrival | None:
    """Return the envelope of a deletion. The server has checked that the sender may delete the
    message: its author, or a moderator. It is gone either way, so the author counts as the
    sender."""
    if known is None or not known.is_message or known.author == scene.me:
        return None
    sender = _sender(event, scene)
    if known.author != event.sender:
        sender = Sender(id=known.author, name=localpart(known.author))
    return Arrival(
        kind=UpdateKind.DELETE,
        external_id=event.event_id,
        place=scene.place,
        place_kind=scene.kind,
        label=scene.group,
        sender=sender,
        thread=known.thread,
        target=_redacted(event),
    )


def _content(event: MatrixEvent) -> MessageContent | None:
    """Return the content of a message or sticker. Returns None for other events, and if it is
    empty."""
    if event.type not in {MESSAGE, STICKER}:
        return None
    content = decoded(event.content, MessageContent)
    if content is None or not (content.body or content.url or content.file):
        return None
    return content


def _relation(event: MatrixEvent) -> Relation | None:
    content = _content(event)
    return content.relates_to if content else None


def _redacted(event: MatrixEvent) -> str:
    """Return the id of the deleted event. Newer rooms have it in the content, older ones beside
    it."""
    content = decoded(event.content, RedactionContent)
    return (content and content.redacts) or event.redacts


def _replied_to(relation: Relation) -> str:
    """Return the id of the answered message. A thread's messages may name one only for clients that
    cannot show threads; that does not count as an answer."""
    if relation.in_reply_to is None or (relation.rel_type == THREAD and relation.is_falling_back):
        return ""
    return relation.in_reply_to.event_id


def _thread(relation: Relation) -> str:
    return relation.event_id if relation.rel_type == THREAD else ""


def _sender(event: MatrixEvent, scene: Scene, *, is_bot: bool = False) -> Sender:
    """Return the sender. A notice (`m.notice`) is what bots send, and bots must not answer it, so
    `is_bot` keeps two bots from answering each other forever."""
    return Sender(id=event.sender, name=scene.sender_name, is_bot=is_bot)


def _words(event: MatrixEvent, content: MessageContent) -> tuple[str, EarlierEvent]:
    """Return the person's own words, and what the message itself quotes. The body of a file without
    a caption is only the file's name, so it does not count as words."""
    relation = content.relates_to or Relation()
    body, quoted = _without_quote(content.body, is_reply=relation.in_reply_to is not None)
    is_only_name = content.filename is None or content.filename == content.body
    return "" if has_file(event, content) and is_only_name else body, quoted


def _without_quote(body: str, *, is_reply: bool) -> tuple[str, EarlierEvent]:
    """Split off a quote at the beginning of a text. Older clients put the message they answer
    before their own words, each line after `> `."""
    opening = _QUOTED.match(body) if is_reply else None
    if opening is None:
        return body, EarlierEvent(author="")
    lines = body.split("\n")
    quoted = next((i for i, line in enumerate(lines) if not line.startswith(">")), len(lines))
    first = lines[0][opening.end() :]
    rest = [line.removeprefix(">").removeprefix(" ") for line in lines[1:quoted]]
    said = "\n".join(lines[quoted:]).removeprefix("\n")
    return said, EarlierEvent(author=opening["author"] or "", text="\n".join([first, *rest]))


def _saying(
    arrival: Arrival,
    text: str,
    content: MessageContent,
    scene: Scene,
    forward: Forward | None,
) -> Arrival:
    """Return the arrival with the person's own words, or with the words that they passed on. A
    forward was first written to somebody else, so no name is removed and no command is read from
    it."""
    if forward is not None:
        passed_on = msgspec.structs.replace(forward, text=text)
        return msgspec.structs.replace(arrival, forwards=(passed_on,))
    said = _without_mention(text, content, scene)
    return msgspec.structs.replace(arrival, text=_command(said))


def _forward(content: MessageContent) -> Forward | None:
    """Return whose message this one passes on, without its text. Returns None where the client does
    not mark it as a forward."""
    facts = bytes(content.forwarded)
    if not facts or facts == b"null":
        return None
    author = (decoded(content.forwarded, ForwardedFacts) or ForwardedFacts()).sender
    return Forward(origin=ForwardOrigin.PERSON, name=author) if author else Forward()


def _without_mention(text: str, content: MessageContent, scene: Scene) -> str:
    """Return the text without the bot's name at its beginning or end, if it addresses the bot."""
    if not _is_named(text, content, scene):
        return text
    return unaddressed(text, _names(scene), is_pilled=_is_pilled(content, scene))


def _is_named(text: str, content: MessageContent, scene: Scene) -> bool:
    return _is_pilled(content, scene) or _is_mentioned(text[:SCANNED_MAX], content, scene)


def _is_pilled(content: MessageContent, scene: Scene) -> bool:
    """Tell whether the client lists the bot among the people mentioned. The text then has the bare
    name, without an `@` or a colon."""
    mentions = (content.new_content or content).mentions or content.mentions
    return mentions is not None and scene.me in mentions.user_ids


def _is_mentioned(text: str, content: MessageContent, scene: Scene) -> bool:
    """Tell whether the text mentions the bot: by a link to its user, by `@name`, or by its name
    before a colon. A name inside a sentence counts only if the client sends no list of mentions; a
    client that does send one has not listed the bot, so the sentence only talks about it."""
    html, names = (content.new_content or content).formatted_body or "", _names(scene)
    pilled = _PILL.findall(html[:SCANNED_MAX])
    if any(user.casefold() == scene.me.casefold() for user in pilled):
        return True
    if is_called(text, names) or is_spoken_of(text, [f"@{name}" for name in names]):
        return True
    return content.mentions is None and is_spoken_of(text, names)


def _names(scene: Scene) -> list[str]:
    """Return the bot's names, the longest first, so that a short name is not cut out of a longer
    one."""
    names = {scene.me.removeprefix("@"), localpart(scene.me), *scene.my_names}
    return sorted((name for name in names if name), key=len, reverse=True)


def _command(text: str) -> str:
    """Turn `!` before a known command into `/`. Matrix clients handle slash commands themselves, so
    people begin a command to the bot with `!`."""
    if text.startswith("!"):
        slashed = "/" + text[1:]
        found = command_in(slashed)
        if found is not None and found.command is not None:
            return slashed
    return text
