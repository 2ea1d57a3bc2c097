"""Decides who may speak on a platform, makes an update of an arrival, and hands it to the door.

All platforms use this module. The decision itself is made in `domain/people/access.py`; what it
needs to know is read from the store for every arrival, so a revoked pairing counts from the next
message on. No text is converted before the decision: what strangers send is never read.
"""

import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import Final, assert_never

import msgspec
import structlog

from perdure.domain.address import Address
from perdure.domain.content.forwards import ForwardedText, quoted_lines, with_forwards
from perdure.domain.content.overheard import Overheard, line_of
from perdure.domain.content.stickers import harmless
from perdure.domain.errors import Ambiguous, Conflict, PerdureError, Rejected, Transient
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.arrivals import (
    Arrival,
    FileReference,
    PlaceKind,
    Sender,
    is_bare_call,
    is_wordless,
)
from perdure.domain.inbound.commands import command_in
from perdure.domain.inbound.updates import Update, UpdateEffect
from perdure.domain.journal.events import Attachment, SenderTraits
from perdure.domain.kinds import UpdateKind
from perdure.domain.people.access import AccessVerdict, Terms, decide, may_speak
from perdure.domain.people.places import LocalTerms, is_woken, terms_at
from perdure.domain.people.quotas import OverQuota
from perdure.domain.sayings.saying import tag_of
from perdure.domain.text import harmless_line, sentence, storable
from perdure.engine.foundation.supervisor import attempt
from perdure.engine.inbound.envelopes import Envelope
from perdure.ports.gateway import Door
from perdure.ports.people.access import AccessRecords, CallerStanding, DeadLetter, PlacedArrival
from perdure.ports.people.overhearing import HeardLine, Overhearing
from perdure.ports.people.places import Places
from perdure.ports.people.principals import Principals
from perdure.ports.people.quotas import QuotaGate
from perdure.ports.platform.adapter import ArrivalReading
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.turns.handling import Handling
from perdure.ports.turns.wakes import Topic, Wakes

# How many principals are remembered, so that they need not be looked up for each arrival.
KNOWN_MAX: Final = 10_000
NAME_MAX: Final = 64
# What a message says that only names the bot.
CALLED: Final = "(This message only calls you. It is about what was said before it.)"
QUOTED_LINES_MAX: Final = 20
# An arrival that killed a process is offered again soon after the next one has begun, so arrivals
# are counted for so long.
CARE_S: Final = 600.0
# An arrival whose handling begins for the third time is put aside. It has killed three processes by
# then: the death of the first one was not counted, since it had no reason to count.
TRIES_MAX: Final = 3
# Without letters and digits that look alike.
_CODE_ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_LENGTH: Final = 8
# What becomes of a message whose turn may still wait for more of the same person.
_WAITING_FOR_MORE: Final = (UpdateEffect.QUEUED, UpdateEffect.JOINED, UpdateEffect.SUPERSEDED)
log = structlog.get_logger("inlet")


class Care:
    """Says whether the arrivals that are being handled must be counted in the store: for a while
    after the start, if the process before died."""

    def __init__(self, handling: Handling, clock: Clock, *, is_after_death: bool) -> None:
        self.begin = handling.begin
        self.end = handling.end
        self._clock = clock
        self._until_s = clock.monotonic_s() + CARE_S if is_after_death else -math.inf

    @property
    def is_needed(self) -> bool:
        return self._clock.monotonic_s() < self._until_s


class AccountInlet:
    """Takes the arrivals of one account. Implements `Inlet`. `terms` are read for every arrival,
    because the configuration may change."""

    def __init__(  # noqa: PLR0913 - whom it asks and whom it tells
        self,
        name: str,
        *,
        terms: Callable[[], Terms],
        door: Door,
        access: AccessRecords,
        overhearing: Overhearing,
        places: Places,
        principals: Principals,
        entropy: Entropy,
        gate: QuotaGate,
        heard: Callable[[], None],
        typing: Callable[[Address], None],
        wakes: Wakes,
        care: "Care",
    ) -> None:
        self._name = name
        self._care = care
        self._terms = terms
        self._door = door
        self._access = access
        self._overhearing = overhearing
        self._places = places
        self._principals = principals
        self._entropy = entropy
        self._gate = gate
        self._heard = heard
        self._typing = typing
        self._wakes = wakes
        self._known: OrderedDict[tuple[str, str], PrincipalId] = OrderedDict()
        self.account = ""

    def alive(self) -> None:
        self._heard()

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        """Take one arrival. If it causes an unexpected failure, it is put aside whole and counts as
        taken: if the platform offered it again and again, it would hold up all arrivals behind it.
        Raises `Transient` or `Ambiguous` if it cannot be taken now."""
        self._heard()
        envelope = Envelope(arrival, reading)
        decide = {UpdateKind.LEFT: self._forget, UpdateKind.MOVED: self._relocate}
        await attempt(
            decide.get(arrival.kind, self._decide)(envelope),
            partial(self._put_aside, envelope),
            foreseen=(Transient, Ambiguous),
        )

    async def _put_aside(self, envelope: Envelope, error: Exception) -> None:
        why = error.message if isinstance(error, PerdureError) else type(error).__name__
        arrival = envelope.arrival
        await self.spoil(arrival.external_id, envelope.payload, why, kind=arrival.kind)

    async def take_again(self, payload: str) -> None:
        """Take an arrival that was put aside, from its stored payload. Raises whatever keeps it
        from being taken."""
        try:
            arrival = msgspec.json.decode(payload, type=Arrival)
        except msgspec.MsgspecError as error:
            raise Rejected(f"nothing can be made of it ({error}); drop it") from error
        await self._decide(Envelope(arrival))

    @asynccontextmanager
    async def handling(self, external_id: str, payload: bytes) -> AsyncIterator[bool]:
        """Count an arrival in the store while it is handled, if the process before died, so that
        the next process knows which arrival this one died over. Yields whether the arrival may be
        handled; if not, it was put aside. If no process has died, nothing is stored."""
        if not self._care.is_needed:
            yield True
            return
        address = Address(adapter=self._name, account=self.account, place="")
        tries = await self._care.begin(address, external_id)
        is_safe = tries < TRIES_MAX
        if not is_safe:
            log.error("what the gateway died over is put aside", id=external_id, tries=tries)
            why = f"the gateway died {tries} times while it was handling this"
            await self.spoil(external_id, payload.decode(errors="replace"), why)
        try:
            yield is_safe
        finally:
            # Also after an error: the process still lives, so this arrival has not killed it.
            await self._care.end(address, external_id)

    async def spoil(
        self,
        external_id: str,
        payload: str,
        why: str,
        *,
        kind: UpdateKind = UpdateKind.MESSAGE,
    ) -> None:
        """Store a payload that cannot be handled as a letter, for a person to look at."""
        address = Address(adapter=self._name, account=self.account, place="")
        letter = DeadLetter(
            address=address, external_id=external_id, kind=kind, payload=payload, error=why
        )
        await self._access.park(letter)

    async def _decide(self, envelope: Envelope) -> None:
        """Decide whether the sender may speak, and do what follows from that."""
        arrival = envelope.arrival
        if envelope.is_open and is_wordless(arrival):
            return
        terms = terms_at(self._terms(), arrival)
        caller = PlacedArrival(address=self._address(arrival, terms), arrival=arrival)
        standing = await self._access.standing(caller)
        if standing.former_place:
            # The settings may name the place by the id that it had before.
            terms = terms_at(self._terms(), arrival, former=standing.former_place)
            caller = PlacedArrival(address=self._address(arrival, terms), arrival=arrival)
            standing = await self._access.standing(caller)
        if standing.is_refused:
            return  # offered again: the refusal is stored already, and its notice with it
        if standing.where is not None:
            # An edit or a deletion belongs to the conversation of the message it changes, and not
            # every platform names its thread.
            caller = PlacedArrival(address=standing.where, arrival=arrival)
        verdict = await self._verdict(envelope, standing, terms)
        match verdict:
            case AccessVerdict.WELCOME:
                await self._read(envelope, standing, terms)
            case AccessVerdict.PAIRING:
                asking = PlacedArrival(address=caller.address, arrival=await envelope.name())
                if await self._access.ask(asking, self._code()):
                    log.info(
                        "a stranger asks to be let in", adapter=self._name, sender=_who(arrival)
                    )
                    self._wakes.publish(Topic.OUTBOX)
            case AccessVerdict.STRANGER:
                log.info("a stranger was not answered", adapter=self._name, sender=_who(arrival))
                await self._access.refuse(caller, "stranger")
            case AccessVerdict.ASIDE:
                await self._overhear(envelope, terms)
            case _:
                assert_never(verdict)

    async def _verdict(
        self, envelope: Envelope, standing: CallerStanding, terms: LocalTerms
    ) -> AccessVerdict:
        """Decide whether the sender may speak, and to the bot. A word that calls the bot is looked
        for only in what people say who may speak, because it means to read their message."""
        arrival, is_paired = envelope.arrival, standing.is_paired
        verdict = decide(terms.rules, arrival, is_paired=is_paired, is_engaged=standing.is_engaged)
        is_answered = verdict in (AccessVerdict.WELCOME, AccessVerdict.STRANGER)
        if is_answered and terms.is_left_out and not arrival.target:
            return AccessVerdict.ASIDE
        may_wake = verdict is AccessVerdict.ASIDE and terms.wake and not terms.is_left_out
        if not may_wake or arrival.kind is not UpdateKind.MESSAGE or arrival.is_for_another:
            return verdict
        if not may_speak(terms.rules, arrival.sender, arrival.place, is_paired=is_paired):
            return verdict
        whole = await envelope.open()
        is_called = whole is not None and is_woken(terms.wake, whole.text)
        return AccessVerdict.WELCOME if is_called else verdict

    async def _overhear(self, envelope: Envelope, terms: LocalTerms) -> None:
        """Keep what people of a group say among themselves, until somebody speaks to the bot. It
        makes no turn, and it is neither a command nor an answer. Edits and deletions change what is
        kept."""
        arrival = envelope.arrival
        if not terms.overhears or arrival.sender.is_bot:
            return
        where = self._address(arrival, terms)
        if arrival.kind is UpdateKind.DELETE:
            await self._overhearing.drop(where, arrival.target)
            return
        whole = await envelope.open()
        if whole is None or is_wordless(whole):
            return
        heard = HeardLine(
            address=where,
            external_id=whole.target or whole.external_id,
            person=whole.sender.id,
            line=Overheard(sender=_called(whole), text=line_of(_in_passing(whole))),
        )
        if whole.kind is UpdateKind.EDIT:
            await self._overhearing.reword(heard)
        else:
            await self._overhearing.note(heard)

    async def _forget(self, envelope: Envelope) -> None:
        """Forget what was said in a place that the bot has left."""
        terms = terms_at(self._terms(), envelope.arrival)
        await self._overhearing.forget(self._address(envelope.arrival, terms))

    async def _relocate(self, envelope: Envelope) -> None:
        """Move what is known of a place to the id that it has now."""
        arrival = envelope.arrival
        where = Address(adapter=self._name, account=self.account, place=arrival.place)
        await self._places.relocate(where, to=arrival.moved_to)

    async def _read(self, envelope: Envelope, standing: CallerStanding, terms: LocalTerms) -> None:
        """Read the whole arrival of a sender who may speak, and take it."""
        if envelope.arrival.target and not standing.is_engaged:
            await self._overhear(envelope, terms)  # it changes a message that was not meant for us
        arrival = await envelope.open()
        if arrival is None or (is_wordless(arrival) and not is_bare_call(arrival)):
            return
        caller = PlacedArrival(
            address=standing.where or self._address(arrival, terms), arrival=arrival
        )
        await self._welcome(caller, terms, author=standing.author)

    def _address(self, arrival: Arrival, terms: LocalTerms) -> Address:
        is_apart = terms.is_per_person and arrival.place_kind is PlaceKind.GROUP
        return Address(
            adapter=self._name,
            account=self.account,
            place=arrival.place,
            thread=_thread(arrival, terms),
            person=arrival.sender.id if is_apart else "",
        )

    async def _welcome(
        self, caller: PlacedArrival, terms: LocalTerms, *, author: PrincipalId | None
    ) -> None:
        arrival = caller.arrival
        is_nameless = author is not None and not arrival.sender.id
        principal = author if is_nameless else await self._principal(arrival.sender, terms)
        assert principal is not None
        update = _update_of(caller, terms, principal)
        try:
            is_operator = arrival.sender.id in terms.operators
            self._gate.admit(principal, is_operator=is_operator)
            accepted = await self._door.accept(update)
            if update.collect_ms and accepted.effect in _WAITING_FOR_MORE:
                # The turn begins a moment later, and the person sees already that it will.
                self._typing(caller.address)
        except Rejected as error:
            # The queue is full, for example: the person must see that the message was not taken.
            told = sentence(f"Not taken: {error.message}")
            if isinstance(error, OverQuota):
                self._gate.note(error)
                told = told if self._gate.may_tell(principal, error) else ""
            await self._access.refuse(caller, error.code, told=told)
            self._wakes.publish(Topic.OUTBOX)
        except Conflict as error:
            if error.code != "id_conflict":
                raise Transient(f"not taken yet: {error.message}") from error
            log.warning("an update changed under its id", id=arrival.external_id, why=error.message)

    async def _principal(self, sender: Sender, terms: LocalTerms) -> PrincipalId:
        role = "operator" if sender.id in terms.operators else "member"
        key = (sender.id, role)
        known = self._known.get(key)
        if known is None:
            found = await self._principals.appoint(f"{self._name}:{sender.id}", role=role)
            known = self._known[key] = found.id
            # The store gave the principal this role in place of the other one.
            self._known.pop((sender.id, "member" if role == "operator" else "operator"), None)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return known

    def _code(self) -> str:
        random = self._entropy.random_bytes(_CODE_LENGTH)
        return "".join(_CODE_ALPHABET[byte % len(_CODE_ALPHABET)] for byte in random)


def _update_of(caller: PlacedArrival, terms: LocalTerms, principal: PrincipalId) -> Update:
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
        agent=arrival.agent or terms.agent,
        instructions=terms.instructions,
        target=arrival.target,
        sender=_called(arrival) if not caller.address.person else "",
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
        begins_thread=bool(caller.address.thread) and _begins_thread(arrival, terms),
        persona=terms.persona,
        may_be_silent=terms.may_be_silent,
        is_open_place=terms.is_open,
        collect_ms=terms.collect_ms,
    )


def _thread(arrival: Arrival, terms: LocalTerms) -> str:
    """Return the thread in which a message is answered. In a place of its own settings each message
    to the bot begins one, or none does."""
    if terms.has_own_threads is False and arrival.begins_thread:
        return ""
    return arrival.own_thread if _begins_thread(arrival, terms) else arrival.thread


def _begins_thread(arrival: Arrival, terms: LocalTerms) -> bool:
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


def _in_passing(arrival: Arrival) -> str:
    """Return what is kept of a message that was not meant for the bot: its words and the names of
    its files. Which message it replies to is left out, because that was said before."""
    words = with_forwards(storable(arrival.text), arrival.forwards).text
    files = (harmless_line(file.name)[:NAME_MAX] or "a file" for file in arrival.files)
    return "\n".join([*filter(None, [words]), *(f"(sent {name})" for name in files)])


def _called(arrival: Arrival) -> str:
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


def _who(arrival: Arrival) -> str:
    return f"{arrival.sender.id} in {arrival.place}"
