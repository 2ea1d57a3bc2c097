"""Makes the update that an arrival becomes: what the person has said, in the words that a model is
told, and the terms of its place. Pure."""

from itertools import islice
from typing import Final

from perdure.domain.content.forwards import ForwardedText, quoted_lines, with_forwards
from perdure.domain.content.stickers import harmless
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.arrivals import Arrival, FileReference, PlaceKind, is_bare_call
from perdure.domain.inbound.commands import command_in
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import Attachment, SenderTraits
from perdure.domain.kinds import UpdateKind
from perdure.domain.people.places import LocalTerms
from perdure.domain.sayings.saying import tag_of
from perdure.domain.text import harmless_line, storable
from perdure.ports.people.access import PlacedArrival

NAME_MAX: Final = 64
# What a message says that only names the bot.
CALLED: Final = "(This message only calls you. It is about what was said before it.)"
QUOTED_LINES_MAX: Final = 20


def update_of(caller: PlacedArrival, terms: LocalTerms, principal: PrincipalId) -> Update:
    """Return the update that an arrival becomes, in the name of this principal."""
    arrival, words = caller.arrival, _words(caller.arrival)
    return Update(
        address=caller.address,
        external_id=arrival.external_id,
        kind=arrival.kind,
        principal=principal,
        text=words.text,
        busy=terms.busy,
        attachments=tuple(
            Attachment(
                reference=file.reference,
                mime=file.mime,
                name=storable(file.name),
                size=file.size,
                is_voice=file.is_voice,
                sticker=harmless(file.sticker) if file.sticker else None,
            )
            for file in (*arrival.files, *_quoted_files(arrival))
        ),
        place_agent=arrival.agent or terms.agent,
        instructions=terms.instructions,
        target=arrival.target,
        sender=caller_name(arrival) if not caller.address.person else "",
        place_kind=arrival.place_kind,
        label=storable(_label(arrival))[:NAME_MAX],
        album=arrival.album,
        passed_on=words.passed_on,
        traits=SenderTraits(
            roles=tuple(sorted(terms.rules.roles.intersection(arrival.sender.roles))),
            is_bot=arrival.sender.is_bot,
            language=tag_of(arrival.sender.language),
        ),
        press=arrival.press,
        reply_to=arrival.reply_to,
        said=storable(arrival.text) if arrival.reply_to else "",
        overhears=bool(terms.overhears),
        begins_thread=bool(caller.address.thread) and begins_thread(arrival, terms),
        place_persona=terms.persona,
        may_be_silent=terms.may_be_silent,
        is_open_place=terms.is_open,
        collect_ms=terms.collect_ms,
    )


def thread_of(arrival: Arrival, terms: LocalTerms) -> str:
    """Return the thread in which a message is answered. In a place of its own settings each message
    to the bot begins one, or none does."""
    if terms.has_own_threads is False and arrival.begins_thread:
        return ""
    return arrival.own_thread if begins_thread(arrival, terms) else arrival.thread


def begins_thread(arrival: Arrival, terms: LocalTerms) -> bool:
    """Tell whether a message begins a thread."""
    is_new = bool(terms.has_own_threads and arrival.own_thread and not arrival.thread)
    return arrival.begins_thread or (is_new and arrival.kind is UpdateKind.MESSAGE)


def _words(arrival: Arrival) -> ForwardedText:
    """Return the text of an arrival: the quoted message, the text itself, then forwarded messages.
    A command gets no quote, so that it stays a command; with forwarded messages there is no
    command."""
    text = CALLED if is_bare_call(arrival) else storable(arrival.text)
    if arrival.quote.strip() and not _is_command(arrival):
        told = islice(quoted_lines(arrival.quote), QUOTED_LINES_MAX)
        name = harmless_line(arrival.quoted_from)[:NAME_MAX]
        lead = [f"> {name} wrote:"] if name else []
        text = "\n".join([*lead, *told, "", text])
    return with_forwards(text, arrival.forwards)


def _is_command(arrival: Arrival) -> bool:
    """Tell whether a person gives a command. With forwarded messages there is none."""
    return not arrival.forwards and command_in(storable(arrival.text)) is not None


def _quoted_files(arrival: Arrival) -> tuple[FileReference, ...]:
    """Return the files of the message that this one replies to. A command gets none."""
    is_said = arrival.kind is UpdateKind.MESSAGE and not _is_command(arrival)
    return arrival.quoted_files if is_said else ()


def in_passing(arrival: Arrival) -> str:
    """Return what is kept of a message that was not meant for the bot: its words and the names of
    its files. Which message it replies to is left out, because that was said before."""
    words = with_forwards(storable(arrival.text), arrival.forwards).text
    files = (harmless_line(file.name)[:NAME_MAX] or "a file" for file in arrival.files)
    return "\n".join([*filter(None, [words]), *(f"(sent {name})" for name in files)])


def caller_name(arrival: Arrival) -> str:
    """Return how the model is told who speaks in a group: the name, made harmless because anyone
    can choose one, and the id, which nobody can choose. Returns an empty string for a private
    place."""
    if arrival.place_kind is PlaceKind.PRIVATE:
        return ""
    name = harmless_line(arrival.sender.name)[:NAME_MAX]
    return f"{name} ({arrival.sender.id})" if name else arrival.sender.id


def _label(arrival: Arrival) -> str:
    """Return what people call the place. A private chat without a name of its own is called after
    its person, as their messages name them: a command or a click may carry another of their
    names."""
    is_said = arrival.kind is UpdateKind.MESSAGE and not arrival.text.startswith("/")
    if arrival.label or arrival.place_kind is not PlaceKind.PRIVATE or not is_said:
        return arrival.label
    return arrival.sender.name
