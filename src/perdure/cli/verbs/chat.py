"""Implements `perdure chat`: a conversation in the terminal.

The prompt blocks, and the event loop runs only while an answer is awaited. In between nothing is
lost: the next look at the conversation continues from the last event seen. Ctrl-C cancels the wait,
which here means: stop the turn, then wait for how it ended. If Ctrl-C comes while the message is
being sent, nobody knows whether it has arrived. So it is sent once more under the same id, which
cannot send it twice, and then the turn is stopped.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec

from perdure.app.operate.client import BEGINNING, UNREACHABLE, NodeClient
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.cli.exits import FAILED, complain
from perdure.cli.printing import clean, print_json, short_line
from perdure.cli.target import CommandTarget, not_running, place_of, running
from perdure.domain.errors import Ambiguous, Conflict, NotFound, PerdureError, Rejected, Transient
from perdure.domain.journal.transcript import Entry
from perdure.domain.text import storable
from perdure.domain.turn.watching import Delta, News, OutcomeNews, ToolNews
from perdure.web import wire
from perdure.web.api import native

# How many earlier messages are shown at the beginning.
HISTORY: Final = 6
RETRY_S: Final = 0.3
# How long a node that went away is looked for.
PATIENCE_S: Final = 60.0
# Commands whose work runs as an errand. The conversation is told when it is done, so the chat does
# not wait.
ERRANDS: Final = ("background", "compact")
AWAY: Final = (Transient, Ambiguous)
KEPT: Final = "the message is kept, and answered when it is back"


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what came of one message."""

    message: str
    session: str
    turn: str | None
    outcome: str | None
    text: str


def chat(home: Path | None, *, name: str, is_json: bool) -> int | None:
    """Talk in the terminal, or send standard input once and print the answer."""
    target = place_of(home, is_json=is_json)
    with asyncio.Runner() as runner:
        talk = Talk(runner.run(running(target)), target, name)
        if sys.stdin.isatty() and not is_json:
            _converse(runner, talk)
            return None
        return _say_once(runner, talk)


def _say_once(runner: asyncio.Runner, talk: "Talk") -> int | None:
    text = sys.stdin.buffer.read().decode(errors="replace").strip()
    if not text:
        raise Rejected("nothing to send; give the message on stdin", code="config")
    is_json = talk.target.is_json
    answered = runner.run(talk.say(text, _unseen if is_json else _shown))
    if is_json:
        print_json(answered)
    return None if answered.outcome in (None, "done") else FAILED


def _converse(runner: asyncio.Runner, talk: "Talk") -> None:
    """Talk until Ctrl-D. An error ends one message, not the conversation."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - editing and history for input()
    print(f"{clean(talk.name)}: Ctrl-C stops an answer, Ctrl-D leaves")
    for line in runner.run(talk.history()):
        print(line)
    for text in _typed():
        try:
            runner.run(talk.say(text, _shown))
        except PerdureError as error:
            complain(error.message)
        except KeyboardInterrupt:
            print()


def _typed() -> Iterator[str]:
    """Yield each line that the person types, until Ctrl-D."""
    while True:
        try:
            text = input("> ")
        except KeyboardInterrupt:
            print()
            continue
        except EOFError:
            print()
            return
        if text.strip():
            yield text


def _shown(text: str) -> None:
    print(clean(text), end="", flush=True)


def _unseen(text: str) -> None:
    pass


class Talk:
    """Holds one conversation as one person follows it."""

    def __init__(self, node: NodeClient, target: CommandTarget, name: str) -> None:
        self.target = target
        self.name = name
        self._node = node
        self._position: str | None = None
        # Messages whose reply was shown already. Commands are answered at once, and the stream
        # repeats their reply.
        self._told: set[str] = set()

    async def history(self) -> list[str]:
        """Return the last messages, one line for each."""
        try:
            found = await self._node.ask(native.transcript, self.name, limit=HISTORY)
        except NotFound:
            return []
        marks = {"user": ">", "tool": "·"}
        return [
            f"{marks.get(entry.role, ' ')} {short_line(entry.text, length=500)}"
            for entry in found.messages
            if entry.text.strip()
        ]

    async def say(self, text: str, show: Callable[[str], None]) -> Answered:
        """Send a message, show the answer while it grows, and return what came of it."""
        patience = _ReconnectWait(self._node, self.target)
        if self._position is None:
            self._position = await self._now()
        client_id = SystemEntropy().random_bytes(12).hex()
        accepted, is_unwanted = await self._send(storable(text), client_id, patience)
        if accepted.turn is None or accepted.command in ERRANDS:
            self._told.add(accepted.message)
            show(f"{accepted.reply or ''}\n")
            return _answered(accepted, outcome=None, text=accepted.reply or "")
        answer = _GrowingReply(accepted, show, told=self._told)
        if not is_unwanted:
            is_unwanted = await self._is_cut_short(self._follow(answer, patience))
        if is_unwanted:
            # The turn may have ended just now. Then there is nothing to stop, and its end is shown.
            with contextlib.suppress(Conflict):
                await self._node.ask(native.stop_turn, accepted.turn)
            await self._follow(answer, patience)
        return _answered(accepted, outcome=answer.outcome, text=answer.text)

    async def _send(
        self, text: str, client_id: str, patience: "_ReconnectWait"
    ) -> tuple[wire.MessageOut, bool]:
        """Send the message. Returns what the node made of it, and whether the person pressed Ctrl-C
        meanwhile. Raises `Rejected` if the node does not answer after that."""
        message = wire.MessageIn(text=text, id=client_id)
        try:
            return await self._post(message, patience), False
        except asyncio.CancelledError:
            _go_on()
        try:
            return await self._node.ask(native.post_message, self.name, body=message), True
        except AWAY as error:
            raise Rejected(
                "the node does not answer, and the message may have arrived; look at "
                f"`perdure sessions show {self.name}` before you send it again",
                code="unknown",
            ) from error

    async def _is_cut_short(self, work: Coroutine[None, None, None]) -> bool:
        """Wait for the work. Returns True if Ctrl-C interrupted it."""
        try:
            await work
        except asyncio.CancelledError:
            _go_on()
            return True
        return False

    async def _now(self) -> str:
        """Return the present position of the conversation. A conversation that does not exist yet
        is read from its beginning."""
        try:
            async with aclosing(self._node.watch(self.name, after=None)) as stream:
                async for position, _ in stream:
                    return position
        except NotFound:
            pass
        return BEGINNING

    async def _post(self, message: wire.MessageIn, patience: "_ReconnectWait") -> wire.MessageOut:
        """Send the message until the node accepts it, or patience ends."""
        while True:
            try:
                return await self._node.ask(native.post_message, self.name, body=message)
            except AWAY as error:
                # The same id again: if the first try has arrived, the node recognizes it and takes
                # nothing twice.
                await patience.spend(error, "the message is sent, once, when it is back")

    async def _follow(self, answer: "_GrowingReply", patience: "_ReconnectWait") -> None:
        """Show what happens until the turn ends. Reconnects from the last position."""
        while True:
            try:
                async with aclosing(self._node.watch(self.name, after=self._position)) as stream:
                    async for self._position, news in stream:
                        patience.renew()
                        answer.take(news)
                        if answer.outcome is not None:
                            return
                await patience.spend(Transient("it closed", code=UNREACHABLE), KEPT)
            except AWAY as error:
                await patience.spend(error, KEPT)


def _go_on() -> None:
    """Clear the cancellation that Ctrl-C caused, because the work is not over."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


class _ReconnectWait:
    """Limits how long a node that went away is looked for."""

    def __init__(self, node: NodeClient, target: CommandTarget) -> None:
        self._node = node
        self._place = target
        self._clock = SystemClock()
        self._since: float | None = None

    def renew(self) -> None:
        """Start the patience anew, because the node has answered."""
        self._since = None

    async def spend(self, error: Transient | Ambiguous, comfort: str) -> None:
        """Wait a little and look for the node again. Raises `Rejected` when patience ends.
        `comfort` tells the person what becomes of the message meanwhile."""
        now = self._clock.monotonic_s()
        if self._since is None:
            self._since = now
            is_gone = isinstance(error, Ambiguous) or error.code == UNREACHABLE
            complain(
                f"the node went away; {comfort}. Looking for it"
                if is_gone
                else f"{error.message}; trying again"
            )
        if now - self._since > PATIENCE_S:
            raise await not_running(self._place) from error
        await self._clock.sleep(RETRY_S)
        await self._node.look_again()


class _GrowingReply:
    """Shows the reply to one message while it grows, each piece of text once."""

    def __init__(
        self, accepted: wire.MessageOut, show: Callable[[str], None], *, told: Collection[str]
    ) -> None:
        self._turn = accepted.turn
        self._known = {accepted.message, *told}
        self._show = show
        self._texts: dict[str, str] = {}
        self._is_line_over = False
        self.outcome: str | None = None

    @property
    def text(self) -> str:
        return "\n\n".join(text for text in self._texts.values() if text.strip())

    def take(self, news: News) -> None:
        """Show one piece of news, if it is about this turn or new in the conversation."""
        match news:
            case Delta() if news.turn == self._turn:
                self._grow(news.message, news.offset, news.text)
            case Entry() if news.turn == self._turn:
                if news.role == "assistant":
                    self._grow(news.id, 0, news.text)
                elif news.role == "notice":
                    self._remark(news.text)
            case Entry() if news.id not in self._known and news.text.strip():
                # A message of somebody else in the same conversation, or of an earlier turn.
                self._show(f"[{news.role}] {short_line(news.text, length=500)}\n")
            case ToolNews() if news.turn == self._turn and news.state == "started":
                complain(f"calling {short_line(news.name)}")
            case OutcomeNews() if news.turn == self._turn:
                self._end(news)
            case _:
                pass

    def _remark(self, text: str) -> None:
        """Show what the gateway says about this turn, on a line of its own."""
        if self.text and not self._is_line_over:
            self._is_line_over = True
            self._show("\n")
        complain(short_line(text, length=500))

    def _grow(self, message: str, offset: int, text: str) -> None:
        """Show the part of a text that was not shown before. `offset` is where this piece
        begins."""
        known = self._texts.get(message, "")
        new = text[max(len(known) - offset, 0) :]
        if not new:
            return
        is_next = not known and any(self._texts.values())
        self._texts[message] = known + new
        self._show(f"\n\n{new}" if is_next else new)

    def _end(self, news: OutcomeNews) -> None:
        self.outcome = news.outcome
        if self.text and not self._is_line_over:
            self._show("\n")
        if news.outcome != "done":
            why = ", ".join(
                short_line(part, length=500) for part in (news.reason, news.detail) if part
            )
            complain(f"the turn ended as {news.outcome}" + (f": {why}" if why else ""))


def _answered(accepted: wire.MessageOut, *, outcome: str | None, text: str) -> Answered:
    return Answered(
        message=accepted.message,
        session=accepted.session,
        turn=accepted.turn,
        outcome=outcome,
        text=text,
    )
