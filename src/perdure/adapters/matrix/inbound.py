"""From a room's event to what a person did. Pure: what must be known besides comes as arguments.

An edit says nothing of the thread it belongs to, a reply nothing of whom it answers; `asks_about`
names the earlier event that has to be known first.

Of every event there is an envelope, which reads none of the text but whom it speaks to, and what is
`understood` of it once its sender may speak.
"""

import re
from typing import Final

import msgspec

from perdure.adapters.matrix.attachments import files_of, has_file
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
from perdure.adapters.matrix.mentions import is_called, is_spoken_of, unaddressed
from perdure.adapters.matrix.rooms import localpart
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.inbound.arrivals import SCANNED_MAX, Arrival, PlaceKind, Sender
from perdure.domain.inbound.commands import given
from perdure.domain.kinds import UpdateKind

_NOTICE: Final = "m.notice"
# Requests of other machines that travel as messages.
_NOT_SAID: Final = "m.key.verification."
_QUOTED: Final = re.compile(r"\A> (?:\* )?(?:<(?P<author>@[^>\s]+)> ?)?")
_PILL: Final = re.compile(r"https://matrix\.to/#/(@[^\"'?>]+)", re.IGNORECASE)


class EarlierEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier event. Of one that was taken away only its author is left. `forward` says whose
    words it passed on, if it did. `is_reply`: its text may begin with what it answers."""

    author: str
    text: str = ""
    thread: str = ""
    is_message: bool = True
    forward: Forward | None = None
    is_reply: bool = False

    @property
    def own_words(self) -> str:
        return _without_quote(self.text, is_reply=self.is_reply)[0]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where an event took place. `my_names` are what people call the bot there."""

    place: str
    kind: PlaceKind
    label: str
    me: str
    my_names: tuple[str, ...]
    sender_name: str


def asks_about(event: MatrixEvent) -> str:
    """The id of the event that must be known to understand this one; empty if none."""
    if event.type == REDACTION:
        return _redacted(event)
    relation = _relation(event)
    if relation is None:
        return ""
    if relation.rel_type == REPLACE:
        return relation.event_id
    return _replied_to(relation)


def needs_known(event: MatrixEvent, scene: Scene) -> bool:
    """Say whether the decision about an event depends on the one that it speaks of: who wrote what
    was taken away, and in a group whether it is the bot who is answered."""
    if event.type == REDACTION:
        return True
    relation = _relation(event)
    if relation is None or relation.rel_type == REPLACE or scene.kind is PlaceKind.PRIVATE:
        return False
    return bool(_replied_to(relation))


def envelope_of(event: MatrixEvent, scene: Scene, known: EarlierEvent | None) -> Arrival | None:
    """Return what the decision about an event needs; None for what is no word to anybody:
    reactions, joins, our own messages."""
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
    """Return the whole arrival; None where there is no envelope, or an edit is not its author's."""
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
    return msgspec.structs.replace(arrival, files=files_of(event, content), quote=quoted.own_words)


def is_malformed(event: MatrixEvent) -> bool:
    """Is it meant as a message, and yet none that anybody could read?"""
    is_said = event.type in {MESSAGE, STICKER}
    return is_said and decoded(event.content, MessageContent) is None


def remembered(event: MatrixEvent, newest: MatrixEvent | None = None) -> EarlierEvent:
    """What is worth knowing of an event when a later one speaks of it; `newest` is its last edit.
    Of one that was taken away before we saw it there is nothing to take away."""
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
    )


def looked_up(event: MatrixEvent, newest: MatrixEvent | None = None) -> EarlierEvent:
    """The same of an event that we may have seen in an earlier life, when it still had words."""
    is_redacted = event.type in {MESSAGE, STICKER, ENCRYPTED} and event.is_redacted
    known = remembered(event, newest)
    return msgspec.structs.replace(known, is_message=known.is_message or is_redacted)


def _message(
    event: MatrixEvent, content: MessageContent, scene: Scene, known: EarlierEvent | None
) -> Arrival:
    relation = content.relates_to or Relation()
    text, quoted = _words(event, content)
    answered = known.author if known is not None and _replied_to(relation) else quoted.author
    is_named = _forward(content) is None and _is_named(text, content, scene)
    return Arrival(
        external_id=event.event_id,
        place=scene.place,
        place_kind=scene.kind,
        sender=_sender(event, scene, is_bot=content.msgtype == _NOTICE),
        thread=_thread(relation),
        is_addressed=is_named or answered == scene.me,
    )


def _edit(
    event: MatrixEvent, content: MessageContent, scene: Scene, known: EarlierEvent | None
) -> Arrival | None:
    """Anybody can send an edit of anybody's message; only the author's counts. Where the message is
    not known yet, its author and its thread are found when the edit is read."""
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
        sender=_sender(event, scene, is_bot=words.msgtype == _NOTICE),
        thread=known.thread if known is not None else "",
        is_addressed=not is_forward and _is_named(words.body, content, scene),
        target=relation.event_id,
    )


def _edited(
    envelope: Arrival, content: MessageContent, scene: Scene, known: EarlierEvent | None
) -> Arrival | None:
    """Return what an edit says now; None where nobody can tell whose message it changes."""
    if content.new_content is None or known is None:
        return None
    return _saying(envelope, content.new_content.body, content, scene, known.forward)


def _deletion(event: MatrixEvent, scene: Scene, known: EarlierEvent | None) -> Arrival | None:
    """The server has checked who may take a message away: its author, or whoever keeps order in
    the room. It is gone either way, so it counts as its author's doing."""
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
        sender=sender,
        thread=known.thread,
        target=_redacted(event),
    )


def _content(event: MatrixEvent) -> MessageContent | None:
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


def _sender(event: MatrixEvent, scene: Scene, *, is_bot: bool = False) -> Sender:
    """A notice is what a bot says, and bots do not answer it: so they cannot talk in circles."""
    return Sender(id=event.sender, name=scene.sender_name, is_bot=is_bot)


def _words(event: MatrixEvent, content: MessageContent) -> tuple[str, EarlierEvent]:
    """Return a person's own words as they came, and what they say that they answer."""
    relation = content.relates_to or Relation()
    body, quoted = _without_quote(content.body, is_reply=relation.in_reply_to is not None)
    is_only_name = content.filename is None or content.filename == content.body
    return "" if has_file(event, content) and is_only_name else body, quoted


def _without_quote(body: str, *, is_reply: bool) -> tuple[str, EarlierEvent]:
    """Older clients put the message they answer before their own words, each line after `> `."""
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
    """Return an arrival with a person's own words, or with those that they passed on. A forward is
    a copy, whose words speak to whomever they were first written to."""
    if forward is not None:
        passed_on = msgspec.structs.replace(forward, text=text)
        return msgspec.structs.replace(arrival, forwards=(passed_on,))
    said = _without_mention(text, content, scene)
    return msgspec.structs.replace(arrival, text=_command(said))


def _forward(content: MessageContent) -> Forward | None:
    """Whose message this one passes on, without its words; None where the client does not say that
    it does."""
    facts = bytes(content.forwarded)
    if not facts or facts == b"null":
        return None
    author = (decoded(content.forwarded, ForwardedFacts) or ForwardedFacts()).sender
    return Forward(origin=ForwardOrigin.PERSON, name=author) if author else Forward()


def _without_mention(text: str, content: MessageContent, scene: Scene) -> str:
    """Return the words without the bot's name at either end, if it is meant at all."""
    if not _is_named(text, content, scene):
        return text
    return unaddressed(text, _names(scene), is_pilled=_is_pilled(content, scene))


def _is_named(text: str, content: MessageContent, scene: Scene) -> bool:
    return _is_pilled(content, scene) or _is_mentioned(text[:SCANNED_MAX], content, scene)


def _is_pilled(content: MessageContent, scene: Scene) -> bool:
    """A pill leaves only the name in the text, with nothing around it."""
    mentions = (content.new_content or content).mentions or content.mentions
    return mentions is not None and scene.me in mentions.user_ids


def _is_mentioned(text: str, content: MessageContent, scene: Scene) -> bool:
    """By a pill, by `@name`, or by its name before a colon. A client that tells of mentions has
    told of none: then a name inside a sentence only speaks about the bot."""
    html, names = (content.new_content or content).formatted_body or "", _names(scene)
    pilled = _PILL.findall(html[:SCANNED_MAX])
    if any(user.casefold() == scene.me.casefold() for user in pilled):
        return True
    if is_called(text, names) or is_spoken_of(text, [f"@{name}" for name in names]):
        return True
    return content.mentions is None and is_spoken_of(text, names)


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
