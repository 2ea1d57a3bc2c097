"""Runs people who write over the native API, and people who read along.

Each person has one conversation and one client. A person repeats each message until it is
acknowledged, and keeps every acknowledgement for the comparison at the end.
"""

import asyncio
from itertools import count
from typing import Any

from tests.fault.soak.persistent_client import GONE, Acknowledged, PersistentClient

PAUSE_S = (1.0, 11.0)
STEERED = "steered"
COMMANDS = ("/stop", "/stop all", "/retry", "/undo", "/redo", "/new", "/usage", "/status", "/why")


class Person:
    """Writes to one conversation: messages, bursts, commands, files, edits, steers and stops."""

    def __init__(self, caller: PersistentClient, name: str) -> None:
        self.name = name
        self.has_spoken = asyncio.Event()
        self.acknowledged: list[Acknowledged] = []
        self._said: list[tuple[dict[str, object], dict[str, Any]]] = []
        self._caller = caller
        self._dice = caller.dice
        self._path = f"/api/conversations/{name}/messages"
        self._numbers = count()

    async def talk_until(self, over: asyncio.Event) -> None:
        await self._caller.pause(self._dice.uniform(0.0, PAUSE_S[1]))
        while not over.is_set():
            await self._act(self._dice.random())
            self.has_spoken.set()
            await self._caller.pause(self._dice.uniform(*PAUSE_S))

    async def _act(self, roll: float) -> None:
        if roll < 0.50:
            await self.write(self._words())
        elif roll < 0.62:
            await self._write_a_burst()
        elif roll < 0.85:
            await self.write(self._dice.choice(COMMANDS))
        elif roll < 0.90:
            await self.write(self._words())
            await self.write(f"/steer {self._words()}")
        elif roll < 0.95:
            await self._write_with_a_file()
        else:
            accepted = await self.write(self._words())
            await self._caller.pause(self._dice.uniform(0.0, 0.5))
            await self._stop(accepted["turn"])

    async def write(self, text: str, **more: object) -> dict[str, Any]:
        """Say something under a new id, and repeat it at random: the answer must stay the same."""
        client_id = f"{self.name}-{next(self._numbers)}"
        body = {"text": text, "id": client_id, **more}
        if self._dice.random() < 0.10:
            await self._caller.call_and_hang_up("POST", self._path, body=body)
        _, accepted = await self._caller.call("POST", self._path, (202,), body=body)
        if not accepted:
            return {"turn": None}
        self._caller.tally.counts["commands" if text.startswith("/") else "messages"] += 1
        self.acknowledged.append(
            Acknowledged(
                external_id=f"{client_id}\n{self.name}",
                message=accepted["message"],
                turn=accepted["turn"],
                is_steer=accepted["effect"] == STEERED,
            )
        )
        self._said.append((body, accepted))
        if self._dice.random() < 0.10:
            await self._caller.pause(self._dice.uniform(0.0, 2.0))
            await self._repeat(body, accepted)
        return accepted

    async def repeat_some(self) -> None:
        """Repeat a few messages that were said long ago, perhaps to a process that has died
        since."""
        for body, first in self._dice.sample(self._said, min(3, len(self._said))):
            await self._repeat(body, first)

    async def _repeat(self, body: dict[str, object], first: dict[str, Any]) -> None:
        _, again = await self._caller.call("POST", self._path, (202,), body=body)
        self._caller.tally.counts["repeats"] += 1
        # A steer that its turn never read is answered in a new turn, and a repeat names that one.
        for key in ("message",) if first["effect"] == STEERED else ("message", "turn"):
            if again.get(key) != first[key]:
                self._caller.tally.fault(f"{self.name}: {body['id']}: {first} became {again}")
        if not again.get("duplicate"):
            self._caller.tally.fault(f"{self.name}: {body['id']} was taken twice: {again}")

    async def _write_a_burst(self) -> None:
        """Write several messages at once, of which all but one wait, and change or remove the
        last."""
        for _ in range(self._dice.randrange(1, 3)):
            await self.write(self._words())
        last = await self.write(self._words())
        if last["turn"] and self._dice.random() < 0.5:
            path = f"/api/turns/{last['turn']}"
            status, _ = await self._caller.call(
                "PATCH", path, (200, 409), body={"text": self._words()}
            )
            self._caller.tally.counts["edits"] += status == 200
        elif self._dice.random() < 0.3:
            await self._stop(last["turn"])

    async def _write_with_a_file(self) -> None:
        data = self._dice.randbytes(8).hex().encode() * self._dice.randrange(1, 400)
        _, media = await self._caller.call("POST", "/api/media", (200, 201), raw=data)
        if media:
            self._caller.tally.counts["files"] += 1
            await self.write(self._words(), attachments=[{"media": media["id"]}])

    async def _stop(self, turn: str | None) -> None:
        if turn:
            await self._caller.call("POST", f"/api/turns/{turn}/stop", (200, 409))
            self._caller.tally.counts["stops"] += 1

    def _words(self) -> str:
        return " ".join(f"{self.name}:{self._dice.randrange(1_000_000)}" for _ in range(6))


class Watcher:
    """Reads along in one conversation, goes away, and continues from its last event."""

    def __init__(self, caller: PersistentClient, person: Person) -> None:
        self.shown: dict[str, str] = {}
        self._caller = caller
        self._person = person
        self._last: str | None = None

    async def watch_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            if self._person.has_spoken.is_set():
                await self.watch_for(self._caller.dice.uniform(0.05, 8.0))
            await self._caller.pause(self._caller.dice.uniform(0.1, 8.0))

    async def watch_for(self, seconds: float) -> None:
        """Listen for so long. A lost connection only ends the listening earlier."""
        try:
            async with asyncio.timeout(seconds), self._events() as events:
                self._caller.tally.counts["watchers"] += 1
                async for event_id, kind, data in events:
                    self._hear(kind, data)
                    self._last = event_id
        except GONE:
            return
        except AssertionError:  # the status was not 200: the gateway starts or stops
            return

    def _events(self) -> Any:
        return self._caller.client.events(self._person.name, self._last)

    def _hear(self, kind: str, data: dict[str, Any]) -> None:
        self._caller.tally.counts["events"] += 1
        if kind == "message" and data["role"] == "assistant":
            self._show(data["id"], 0, data["text"])
        elif kind == "delta":
            self._show(data["message"], data["offset"], data["text"])

    def _show(self, message: str, offset: int, text: str) -> None:
        seen = self.shown.get(message, "")
        if self._last is not None and offset > len(seen):
            self._caller.tally.fault(f"{message}: a gap from {len(seen)} to {offset}")
        if not text.startswith(seen[offset:][: len(text)]):
            self._caller.tally.fault(f"{message}: {seen[offset:]!r} became {text!r}")
        self.shown[message] = max(seen, seen[:offset] + text, key=len)
