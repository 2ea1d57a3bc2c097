"""The answers of a running node, straight from the store, for when none runs.

Whoever can read the home is its operator. The store's own lock keeps two processes apart.
"""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from perdure.app import config, environment, storage
from perdure.app.environment import OPERATOR
from perdure.app.platforms import address_forms, operators_of
from perdure.app.system import SystemClock, SystemEntropy
from perdure.domain.errors import Rejected
from perdure.domain.ids import PartId, SessionId, TurnId
from perdure.domain.records import LETTER
from perdure.domain.text import storable
from perdure.ports.history import Page
from perdure.ports.places import Sending
from perdure.ports.principals import Principal
from perdure.store.store import Store
from perdure.web import wire
from perdure.web.native import client_id as checked_id
from perdure.web.native import turn_out
from perdure.web.pairings import pairing_out
from perdure.web.places import place_out, sayable, sent_out
from perdure.web.records import (
    NAME_MAX,
    TOKEN_BYTES,
    explanation_out,
    hit_out,
    journal_out,
    part_out,
    session_out,
    token_out,
    transcript_out,
)

NUMBER_MAX: Final = 2**53


@asynccontextmanager
async def opened_store(
    home: Path, environ: Mapping[str, str], *, make: bool = False
) -> AsyncIterator[Store]:
    """This home's store, ours alone until the block is left. `make`: also where no home is yet."""
    store = _closed_store(home, environ, make=make)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _closed_store(home: Path, environ: Mapping[str, str], *, make: bool) -> Store:
    if not make and not home.is_dir():
        raise Rejected(
            f"there is no Perdure in {home}; `perdure serve` begins one there, or choose another "
            "with --home",
            code="no_home",
        )
    environment.prepare_home(home)
    settings = config.load(home, environ)
    return storage.store(settings, home, clock=SystemClock(), entropy=SystemEntropy())


def is_store_shared(home: Path, environ: Mapping[str, str]) -> bool:
    """May several processes have the store open at once?"""
    return not config.load(home, environ).store.is_sqlite


class StoreAnswers:
    def __init__(self, store: Store, settings: config.Config) -> None:
        self._store = store
        self._settings = settings

    async def sessions(self, *, limit: int, after: str | None) -> wire.SessionsOut:
        page = Page(limit=limit, after=_cursor(after) if after else None)
        views = await self._store.archive.sessions(principal=None, page=page)
        last = views[-1] if len(views) == limit else None
        more = f"{last.active_at}:{last.id}" if last else None
        return wire.SessionsOut(sessions=[session_out(view) for view in views], next=more)

    async def session(self, session: str) -> wire.SessionOut:
        return session_out(await self._store.archive.session(SessionId(session), principal=None))

    async def session_of(self, conversation: str) -> str:
        """The live session of one of the operator's own conversations."""
        operator = await self._operator()
        found = await self._store.conversations.find(conversation, principal=operator.id)
        return found.view.standing.session

    async def journal(self, session: str, *, after: int, limit: int) -> wire.JournalOut:
        events = await self._store.archive.journal(SessionId(session), after=after, limit=limit)
        more = str(events[-1].seq) if len(events) == limit else None
        running = await self._store.archive.running(SessionId(session)) if more is None else None
        return journal_out(SessionId(session), events, running, more=more)

    async def session_transcript(
        self, session: str, *, before: str | None, limit: int
    ) -> wire.TranscriptOut:
        return await transcript_out(
            self._store.archive, SessionId(session), before=before, limit=limit
        )

    async def search(self, query: str, *, limit: int, after: str | None) -> wire.SearchOut:
        before = None if after is None else _number(after)
        hits = await self._store.archive.search(query, principal=None, before=before, limit=limit)
        more = str(hits[-1].cursor) if len(hits) == limit else None
        return wire.SearchOut(hits=[hit_out(hit) for hit in hits], next=more)

    async def explain(self, any_id: str) -> wire.ExplanationOut:
        return explanation_out(await self._store.diagnostics.explain(any_id, principal=None))

    async def stop_turn(self, turn: str) -> wire.TurnOut:
        """What a node has left in the middle does not go on at the next start then."""
        await self._store.inbox.stop(TurnId(turn), by=None)
        return turn_out(await self._store.archive.turn(TurnId(turn), principal=None))

    async def _operator(self) -> Principal:
        return await self._store.principals.ensure(OPERATOR, role="operator")

    async def send(self, to: str, text: str, *, client_id: str | None) -> wire.SendOut:
        """It is kept, and goes out at the next start."""
        given = client_id or SystemEntropy().random_bytes(16).hex()
        await self._store.principals.platforms_operators(operators_of(self._settings.adapters))
        sending = Sending(
            to=storable(to.strip()),
            text=sayable(text),
            external_id=checked_id(given),
            by=await self._operator(),
            accounts=dict.fromkeys(self._settings.adapters, ""),
            forms=address_forms(self._settings.adapters),
        )
        queue_max = self._settings.limits.queued_per_conversation
        return sent_out(await self._store.places.send(sending, queue_max=queue_max))

    async def places(self, *, limit: int, after: str | None) -> wire.PlacesOut:
        page = Page(limit=limit, after=_cursor(after) if after else None)
        views = await self._store.places.known(principal=None, page=page)
        last = views[-1] if len(views) == limit else None
        more = f"{last.at}:{last.id}" if last else None
        return wire.PlacesOut(places=[place_out(view) for view in views], next=more)

    async def pairings(self) -> wire.PairingsOut:
        views = await self._store.access.pairings()
        return wire.PairingsOut(pairings=[pairing_out(view) for view in views])

    async def approve(self, code: str) -> wire.PairingOut:
        by = await self._operator()
        return pairing_out(await self._store.access.approve(code, by=by.id))

    async def unpair(self, pairing: str) -> wire.PairingOut:
        by = await self._operator()
        return pairing_out(await self._store.access.revoke(pairing, by=by.id))

    async def parked(self, *, limit: int, after: str | None) -> wire.ParkedOut:
        page = Page(limit=limit, after=_cursor(after) if after else None)
        parts = await self._store.parked.page(page)
        last = parts[-1] if len(parts) == limit else None
        more = f"{last.at}:{last.id}" if last else None
        return wire.ParkedOut(parked=[part_out(part) for part in parts], next=more)

    async def parked_part(self, part: str) -> wire.PartOut:
        return part_out(await self._store.parked.part(PartId(part)))

    async def replay(self, part: str, *, force: bool) -> wire.PartOut:
        if (await self._store.parked.part(PartId(part))).step == LETTER:
            raise Rejected("a letter is taken again by a running node; start it: perdure serve")
        return part_out(await self._store.parked.replay(PartId(part), force=force))

    async def drop(self, part: str) -> wire.PartOut:
        return part_out(await self._store.parked.drop(PartId(part)))

    async def tokens(self) -> wire.TokensOut:
        views = await self._store.principals.tokens()
        return wire.TokensOut(tokens=[token_out(view) for view in views])

    async def grant(self, name: str) -> wire.TokenOut:
        name = name.strip()
        if not name or len(name) > NAME_MAX or not name.isprintable():
            raise Rejected(f"a name has 1 to {NAME_MAX} printable characters", code="invalid_name")
        secret = SystemEntropy().random_bytes(TOKEN_BYTES)
        token = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
        # In a new store the operator's name must not become a member's.
        await self._operator()
        principal = await self._store.principals.ensure(name, role="member")
        view = await self._store.principals.grant(principal.id, token)
        return token_out(view, token=token)

    async def revoke(self, which: str) -> wire.TokenOut:
        return token_out(await self._store.principals.revoke(which))


def _cursor(after: str) -> tuple[int, str]:
    at, _, last = after.partition(":")
    return _number(at), last


def _number(text: str) -> int:
    """As large as a database takes."""
    if not text.isascii() or not text.isdigit() or int(text) > NUMBER_MAX:
        raise Rejected("--after takes the `next` of an earlier page", code="invalid_query")
    return int(text)
