"""Runs people on a chat platform: a Bot API server that repeats updates, loses answers and asks for
waits."""

import asyncio

from tests.fault.soak.model import END
from tests.fault.soak.persistent_client import PersistentClient

from perdure.testkit.peers.telegram.bot_api import BotApi, BotApiFault

PAUSE_S = (1.0, 9.0)
COMMANDS = ("/stop", "/retry", "/undo", "/new", "/usage")
FAULTS = (
    ("sendMessage", BotApiFault(status=429, retry_after=1)),
    ("sendMessage", BotApiFault(status=502, description="Bad Gateway")),
    ("sendMessage", BotApiFault(is_lost=True)),
    ("sendMessageDraft", BotApiFault(status=500)),
    ("getFile", BotApiFault(status=502, description="Bad Gateway")),
    ("getUpdates", BotApiFault(is_lost=True)),
)


class Chatter:
    """Writes in one private chat. A message that was written there may be sent to the bot again."""

    def __init__(self, caller: PersistentClient, api: BotApi, chat: int) -> None:
        self.chat = chat
        self.written: list[int] = []
        self._caller = caller
        self._dice = caller.dice
        self._api = api

    async def chat_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._caller.pause(self._dice.uniform(*PAUSE_S))
            self._act(self._dice.random())

    def _act(self, roll: float) -> None:
        counts = self._caller.tally.counts
        if self._dice.random() < 0.05:
            self._api.fail(*self._dice.choice(FAULTS))
            counts["platform faults"] += 1
        if roll < 0.55:
            self.say(f"chat {self._dice.randrange(1_000_000)}")
        elif roll < 0.75:
            self.say(self._dice.choice(COMMANDS))
        elif roll < 0.85:
            file = self._api.chats.add_file(self._dice.randbytes(20_000), name="notes.bin")
            document = {"file_id": file, "file_unique_id": file, "file_name": "notes.bin"}
            self.say("", document=document, caption="read this")
        elif self.written and roll < 0.95:
            self._api.edit(self.chat, self.written[-1], f"no: {self._dice.randrange(1_000_000)}")
            counts["chat edits"] += 1
        elif self.written:
            # The platform did not hear that its update was taken, and tells it again.
            self._api.push(message=self._api.chats.message(self.chat, self.written[-1]))
            counts["chat repeats"] += 1

    def say(self, text: str, **fields: object) -> None:
        self.written.append(self._api.write(self.chat, text, **fields))
        self._caller.tally.counts["chat messages"] += 1

    async def receipts(self) -> set[str]:
        """Return the receipts of all messages that the bot shows in the chat."""
        return {f"{self.chat}/{shown.id}" for shown in await self._api.shown(self.chat)}

    async def answers_shown_twice(self) -> list[str]:
        """Return the complete answers that the chat shows more than once."""
        texts = [shown.text for shown in await self._api.shown(self.chat) if END in shown.text]
        return sorted({text for text in texts if texts.count(text) > 1})
