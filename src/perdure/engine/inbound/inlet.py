"""Decides who may speak on a platform, makes an update of an arrival, and hands it to the door.

All platforms use this module. The decision itself is made in `domain/people/access.py`; what it
needs to know is read from the store for every arrival, so a revoked pairing counts from the next
message on. No text is converted before the decision: what strangers send is never read.
"""

import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, assert_never

import msgspec
import structlog

from perdure.domain.address import Address
from perdure.domain.content.overheard import Overheard, line_of
from perdure.domain.errors import Ambiguous, Conflict, PerdureError, Rejected, Transient
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.inbound.arrivals import (
    Arrival,
    PlaceKind,
    Sender,
    is_bare_call,
    is_wordless,
)
from perdure.domain.inbound.updates import UpdateEffect
from perdure.domain.kinds import UpdateKind
from perdure.domain.people.access import AccessVerdict, Terms, decide, may_speak
from perdure.domain.people.places import LocalTerms, is_woken, terms_at
from perdure.domain.people.quotas import OverQuota
from perdure.domain.text import sentence
from perdure.engine.foundation.supervisor import attempt
from perdure.engine.inbound.envelopes import Envelope
from perdure.engine.inbound.updating import (
    begins_thread,
    caller_name,
    in_passing,
    thread_of,
    update_of,
)
from perdure.ports.gateway import Door
from perdure.ports.people.access import AccessRecords, CallerStanding, DeadLetter, PlacedArrival
from perdure.ports.people.overhearing import HeardLine, Overhearing
from perdure.ports.people.places import OutgoingMessage, Places
from perdure.ports.people.principals import Principal, Principals
from perdure.ports.people.quotas import QuotaGate
from perdure.ports.platform.adapter import ArrivalReading
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.turns.handling import Handling
from perdure.ports.turns.wakes import Topic, Wakes

# How many principals are remembered, so that they need not be looked up for each arrival.
KNOWN_MAX: Final = 10_000
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
        accounts: Callable[[], Mapping[str, str]],
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
        self._accounts = accounts
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
        # A message to the bot would begin a thread here; what is said among people does not.
        thread = "" if begins_thread(arrival, terms) else arrival.thread
        where = msgspec.structs.replace(self._address(arrival, terms), thread=thread)
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
            line=Overheard(sender=caller_name(whole), text=line_of(in_passing(whole))),
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
            thread=thread_of(arrival, terms),
            person=arrival.sender.id if is_apart else "",
        )

    async def _welcome(
        self, caller: PlacedArrival, terms: LocalTerms, *, author: PrincipalId | None
    ) -> None:
        arrival = caller.arrival
        is_nameless = author is not None and not arrival.sender.id
        principal = author if is_nameless else await self._principal(arrival.sender, terms)
        assert principal is not None
        update = update_of(caller, terms, principal)
        if arrival.deliver_to:
            # Before anything is stored: if nobody can know the place yet, the sender tries again.
            goal = await self._destination(arrival.deliver_to, principal)
            update = msgspec.structs.replace(update, deliver_to=goal)
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

    async def _destination(self, to: str, principal: PrincipalId) -> ConversationId:
        """Return the conversation at an address that the configuration names."""
        by = Principal(id=principal, name=self._name, role="member")
        sending = OutgoingMessage(to=to, text="", external_id="", by=by, accounts=self._accounts())
        return await self._places.open(sending)

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


def _who(arrival: Arrival) -> str:
    return f"{arrival.sender.id} in {arrival.place}"
