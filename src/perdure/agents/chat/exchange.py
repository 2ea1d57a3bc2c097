"""Reads one response of a model server while it arrives.

Each response has one timer, not one for each read, because a timer for every token of thousands of
streams is expensive. A read only notes when it began to wait. When the timer fires, it checks
whether that is too long ago, and otherwise sets itself again. Only the time in which this process
ran is counted: after a pause of the process, what the server sent meanwhile is read before the
server counts as silent.

After an answer has grown for a moment, it is read only as often as its text is stored. A model
sends a token every 20 to 50 ms, and waking up for each of them would cost more than everything
else.

Closing an exchange closes its connection at once. If the response was read to its end, the
connection is back in the pool already.
"""

import asyncio
from contextlib import suppress
from typing import Final

import aiohttp

from perdure.agents.chat import failures
from perdure.agents.chat.answer.answer import Garbage, ModelAnswer
from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.failures import ModelFailure, ModelServerInfo
from perdure.agents.chat.intake import AnswerIntake
from perdure.agents.chat.manifest import ChatSettings
from perdure.domain.cadence import gathering_s
from perdure.domain.prompt.bounds import AnswerRoom
from perdure.ports.system.time_limits import Timer, running_time

# How long to wait for more after the finish marker: only the usage and the end are missing.
_LINGER_S: Final = 5.0
# How long to wait for the end of the response after the last event.
_END_LINGER_S: Final = 0.05
# After a read of more bytes than this, the next read does not wait for text to gather.
_PLENTY_BYTES: Final = 16 * 1024


class Exchange:
    """Reads one response. Raises nothing: `ending` tells what went wrong.

    `deadline` is the time by which the first token must come, on the clock of `running_time`.
    `retry_after_s` is the wait that the response's headers ask for, used if its body is an error.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        settings: ChatSettings,
        server: ModelServerInfo,
        *,
        room: AnswerRoom,
        deadline: float,
        retry_after_s: float | None = None,
    ) -> None:
        self._response = response
        self._content = response.content
        self._settings = settings
        self._server = server
        self._intake = AnswerIntake(DIALECTS[settings.api], room)
        self.answer: ModelAnswer = self._intake.answer
        self._is_read = False
        self._is_plenty = False
        self._told_at: float | None = None
        self._gathering: asyncio.Future[None] | None = None
        self._failure: ModelFailure | None = None
        self._retry_after_s = retry_after_s
        self._deadline = deadline
        self._time = running_time()
        self._waits_since: float | None = None
        self._patience_s: float | None = None
        self._timer = Timer(deadline, self._watch)
        self._content.on_eof(self._wake)

    async def next_text(self) -> str | None:
        """Return the text of one network read, which may be empty, or None at the end."""
        if self._is_read:
            return None
        try:
            await self._gather()
            self._waits_since = self._time.now_s()
            chunk = await self._content.readany()
            self._waits_since = None
            self._is_plenty = len(chunk) > _PLENTY_BYTES
            if chunk:
                self._intake.feed(chunk)
            else:
                self._is_read = True
                self._intake.close()
        except Garbage:
            self._fail(failures.garbage(self._server))
        except TimeoutError:
            self._fail(self._too_late())
        except (aiohttp.ClientError, OSError, RuntimeError):
            # aiohttp raises RuntimeError if the session is closed between two reads. If the answer
            # has no finish marker yet, `ending` reports it as cut.
            self._is_read = True
        text = self.answer.drain()
        await self._go_on()
        if self._is_read:
            text += self.answer.rest()
        if text and self._told_at is None:
            self._told_at = asyncio.get_running_loop().time()
        return text

    async def _go_on(self) -> None:
        """Decide whether more is read, and how long it is waited for."""
        if self.answer.measure.excess:
            # The answer is too long already, so the rest is not read.
            self._is_read = True
        elif self.answer.is_over:
            await self._read_end()
        elif self.answer.has_begun:
            self._set_patience()

    async def _gather(self) -> None:
        """Wait until just before the next flush, so that one read takes all text until then. The
        end of the response ends the wait."""
        if self._told_at is None or self._is_plenty or self._content.is_eof():
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        left_s = gathering_s(now, grown_s=now - self._told_at)
        if left_s <= 0:
            return
        self._gathering = loop.create_future()
        timer = loop.call_later(left_s, self._wake)
        try:
            await self._gathering
        finally:
            timer.cancel()
            self._gathering = None

    def _wake(self) -> None:
        """End the wait of `_gather`."""
        if self._gathering is not None and not self._gathering.done():
            self._gathering.set_result(None)

    def _set_patience(self) -> None:
        """Set how long the server may be silent: from the first token on, and shorter after the
        finish."""
        silence_s = self._settings.silence_timeout_s
        patience_s = silence_s if self.answer.finish is None else min(silence_s, _LINGER_S)
        if patience_s != self._patience_s:
            self._patience_s = patience_s
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer.cancel()
        self._timer = Timer(self._due(), self._watch)

    def _due(self) -> float:
        """Return the time at which the server is too late."""
        if self._patience_s is None:
            return self._deadline
        # If nobody waits for a read, the server is not late: the silence counts from the next read
        # on.
        since = self._time.now_s() if self._waits_since is None else self._waits_since
        return since + self._patience_s

    def _watch(self) -> None:
        """Fail the current read if the server is too late, otherwise set the timer again."""
        if self._waits_since is not None and self._due() <= self._time.now_s():
            self._content.set_exception(TimeoutError())
        elif not self._is_read:
            self._set_timer()

    def _too_late(self) -> ModelFailure:
        """Return the failure for a server that was silent for too long."""
        if self.answer.has_begun:
            return failures.silent(self._server, self._settings.silence_timeout_s)
        return failures.no_token_in_time(self._server, self._settings.first_token_timeout_s)

    def _fail(self, failure: ModelFailure) -> None:
        self._is_read = True
        self._failure = failure

    async def _read_end(self) -> None:
        """Read the response to its end, so that the connection can be reused. The end has mostly
        arrived already or is a few bytes away."""
        is_read, self._is_read = self._is_read, True
        if is_read or self._content.at_eof():
            return
        with suppress(aiohttp.ClientError, OSError, RuntimeError):
            async with asyncio.timeout(_END_LINGER_S):
                while await self._content.readany():
                    pass

    def ending(self) -> ModelFailure | None:
        """Return why the answer has no finish, or None if it has one."""
        answer = self.answer
        if answer.measure.excess:
            return failures.too_much(self._server, answer.measure.excess)
        if answer.error is not None and not answer.has_begun:
            return failures.said_at_once(
                self._server, answer.error, retry_after_s=self._retry_after_s
            )
        if answer.error is not None:
            return failures.said_error(self._server, answer.error)
        if answer.finish is not None:
            return None
        return self._failure or failures.cut(
            self._server, has_told=self._told_at is not None, has_begun=answer.has_begun
        )

    def close(self) -> None:
        """Release the connection. If the response was not read to its end, the connection is
        closed."""
        self._is_read = True
        self._timer.cancel()
        self._response.close()
