"""A response while it is read.

Time is watched by one timer per response instead of one per read: a read only notes when it began
to wait, and the timer, when it goes off, looks whether that is too long ago or sets itself again.
At ten thousand streams this is a fifth of the cost of a token.

Closing an exchange closes its connection at once, unless the response has been read to its end,
when the connection is back in the pool already.
"""

import asyncio
from contextlib import suppress
from typing import Final

import aiohttp

from perdure.agents.chat import failures
from perdure.agents.chat.answer import Answer, Garbage
from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.failures import Failure, Server
from perdure.agents.chat.intake import Intake
from perdure.agents.chat.manifest import ChatSettings

# After the finish only usage and the end are missing; nobody should wait long for those.
_LINGER_S: Final = 5.0
_END_LINGER_S: Final = 0.05


class Exchange:
    """Nothing is raised: what goes wrong is told by `ending`. `deadline` is the first token's."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        settings: ChatSettings,
        server: Server,
        *,
        deadline: float,
    ) -> None:
        self._response = response
        self._content = response.content
        self._settings = settings
        self._server = server
        self._intake = Intake(DIALECTS[settings.api])
        self.answer: Answer = self._intake.answer
        self._is_read = False
        self._has_told = False
        self._failure: Failure | None = None
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._waits_since: float | None = None
        self._patience_s: float | None = None
        self._timer = self._loop.call_at(deadline, self._watch)

    async def next_text(self) -> str | None:
        """The text of one network read, which may be empty; None at the end."""
        if self._is_read:
            return None
        try:
            self._waits_since = self._loop.time()
            chunk = await self._content.readany()
            self._waits_since = None
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
            # A RuntimeError is what aiohttp raises when the session is closed between two reads.
            self._is_read = True  # without a finish, that is a cut
        if self.answer.is_over:
            await self._read_end()
        elif self.answer.has_begun:
            self._set_patience()
        text = self.answer.drain()
        if self._is_read:
            text += self.answer.rest()
        self._has_told = self._has_told or bool(text)
        return text

    def _set_patience(self) -> None:
        """Silence counts from the first token on; after the finish there is little to wait for."""
        silence_s = self._settings.silence_timeout_s
        patience_s = silence_s if self.answer.finish is None else min(silence_s, _LINGER_S)
        if patience_s != self._patience_s:
            self._patience_s = patience_s
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(self._due(), self._watch)

    def _due(self) -> float:
        if self._patience_s is None:
            return self._deadline
        # A reader that is busy with what it got is not kept waiting by the server.
        since = self._loop.time() if self._waits_since is None else self._waits_since
        return since + self._patience_s

    def _watch(self) -> None:
        if self._waits_since is not None and self._due() <= self._loop.time():
            self._content.set_exception(TimeoutError())
        elif not self._is_read:
            self._set_timer()

    def _too_late(self) -> Failure:
        if self.answer.has_begun:
            return failures.silent(self._server, self._settings.silence_timeout_s)
        return failures.no_token_in_time(self._server, self._settings.first_token_timeout_s)

    def _fail(self, failure: Failure) -> None:
        self._is_read = True
        self._failure = failure

    async def _read_end(self) -> None:
        """Most often the end is here or a few bytes away, and read to it the connection can be
        reused."""
        is_read, self._is_read = self._is_read, True
        if is_read or self._content.at_eof():
            return
        with suppress(aiohttp.ClientError, OSError, RuntimeError):
            async with asyncio.timeout(_END_LINGER_S):
                while await self._content.readany():
                    pass

    def ending(self) -> Failure | None:
        """What kept the answer from its finish; None when it has one."""
        if self.answer.error:
            return failures.said_error(self._server, self.answer.error)
        if self.answer.finish is not None:
            return None
        return self._failure or failures.cut(self._server, has_told=self._has_told)

    def close(self) -> None:
        self._is_read = True
        self._timer.cancel()
        self._response.close()
