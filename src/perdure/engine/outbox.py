"""The outbox pump: intent, effect, receipt.

A part is marked attempting before the platform is called and gets its receipt after. If we die in
between, the next life finds it attempting: where the platform can be asked or takes our key, it is
reconciled; elsewhere it becomes unknown and is shown, never blindly sent again. Deleting what was
shown can be repeated, so it is, until it has worked or never will.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

import structlog

from perdure.domain.delivery import GONE, KEPT, PartState, Step, backoff_s
from perdure.domain.errors import Ambiguous, Conflict, Permanent, Rejected, Transient
from perdure.engine.persist import persist
from perdure.engine.supervisor import attempt
from perdure.ports.adapter import Adapter, Post
from perdure.ports.clock import Clock
from perdure.ports.outbox import Outbox, Part

TAKE_MAX = 64
_DIED_SENDING = "the gateway died while sending; it may have arrived"
log = structlog.get_logger("outbox")


class OutboxPump:
    def __init__(
        self,
        outbox: Outbox,
        adapters: Mapping[str, Adapter],
        *,
        clock: Clock,
        expire_s: int,
        poll_s: float = 30,
    ) -> None:
        self._outbox = outbox
        self._adapters = adapters
        self._clock = clock
        self._expire_s = expire_s
        self._poll_s = poll_s
        self._wake = asyncio.Event()
        self._is_draining = False

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._is_draining = True
        self.wake()

    async def run(self) -> None:
        if not self._adapters:
            return
        await self.recover()
        while not self._is_draining:
            self._wake.clear()
            try:
                busy = await self.step()
            except (Transient, Ambiguous) as error:
                log.warning("outbox cannot be read", error=error.message)
                await self._clock.sleep(1)
                continue
            if not busy:
                await self._wait_until_due()

    async def _wait_until_due(self) -> None:
        due_ms = await self._outbox.next_due_ms()
        wait_s = self._poll_s
        if due_ms is not None:
            wait_s = min(wait_s, max((due_ms - self._clock.now_ms()) / 1000, 0.01))
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def recover(self) -> None:
        """Settle the fate of parts that an owner who is gone left attempting."""
        for name, adapter in self._adapters.items():
            for part in await self._outbox.stranded(adapter=name):
                await self._reconcile(adapter, part)

    async def _reconcile(self, adapter: Adapter, part: Part) -> None:
        if part.step is Step.DELETE:
            await self._record(part, PartState.PENDING)  # safe to repeat
        elif adapter.capabilities.can_find:
            try:
                receipt = await adapter.find(part.id)
            except (Transient, Ambiguous) as error:
                await self._record(part, PartState.UNKNOWN, error=error.message)
                return
            if receipt is not None:
                await self._record(part, PartState.SENT, receipt=receipt.external_id)
            else:
                await self._record(part, PartState.PENDING)
        elif adapter.capabilities.takes_key:
            await self._record(part, PartState.PENDING)  # repeating the key cannot show it twice
        else:
            await self._record(part, PartState.UNKNOWN, error=_DIED_SENDING)

    async def step(self) -> bool:
        """Send what is due, one part of a conversation at a time. False when nothing was."""
        await self._outbox.expire(older_than_s=self._expire_s)
        taken = False
        for name, adapter in self._adapters.items():
            for part in await self._take(name):
                taken = True
                effect = self._delete if part.step is Step.DELETE else self._send
                await attempt(effect(adapter, part), partial(self._unforeseen, part))
        return taken

    async def _unforeseen(self, part: Part, error: Exception) -> None:
        """An adapter broke in a way nobody foresaw: the part may have arrived, so it is shown."""
        await self._record(part, PartState.UNKNOWN, error=f"internal: {type(error).__name__}")

    async def _take(self, adapter: str) -> list[Part]:
        """If the answer is lost we hold parts we do not know, none of them sent: give them back."""
        try:
            return await self._outbox.take(adapter=adapter, limit=TAKE_MAX)
        except Ambiguous:
            await persist(partial(self._outbox.release, adapter=adapter), clock=self._clock)
            return []

    async def _send(self, adapter: Adapter, part: Part) -> None:
        post = Post(key=part.id, address=part.address, text=part.text)
        try:
            receipt = await adapter.perform(post)
        except Transient as error:
            wait_s = error.retry_after_s or backoff_s(part.attempts)
            await self._record(part, PartState.PENDING, error=error.message, due_in_s=wait_s)
        except Ambiguous as error:
            await self._settle_unknown(adapter, part, error)
        except (Permanent, Rejected, Conflict) as error:
            await self._record(part, PartState.FAILED, error=error.message)
        else:
            await self._record(part, PartState.SENT, receipt=receipt.external_id)

    async def _delete(self, adapter: Adapter, part: Part) -> None:
        """What cannot be deleted stays: nobody is waiting for it to go."""
        if not part.text or not adapter.capabilities.can_delete:
            await self._record(part, PartState.SENT, receipt=KEPT)
            return
        try:
            await adapter.delete(part.text, part.address)
        except (Transient, Ambiguous) as error:
            named_s = error.retry_after_s if isinstance(error, Transient) else None
            wait_s = named_s or backoff_s(part.attempts)
            await self._record(part, PartState.PENDING, error=error.message, due_in_s=wait_s)
        except (Permanent, Rejected, Conflict) as error:
            await self._record(part, PartState.SENT, receipt=KEPT, error=error.message)
        else:
            await self._record(part, PartState.SENT, receipt=GONE)

    async def _settle_unknown(self, adapter: Adapter, part: Part, error: Ambiguous) -> None:
        if adapter.capabilities.can_find:
            await self._reconcile(adapter, part)
        elif adapter.capabilities.takes_key:
            wait_s = backoff_s(part.attempts)
            await self._record(part, PartState.PENDING, error=error.message, due_in_s=wait_s)
        else:
            await self._record(part, PartState.UNKNOWN, error=error.message)

    async def _record(
        self,
        part: Part,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
    ) -> None:
        """Once the platform was called, its answer must be written down, however long it takes."""
        record = partial(
            self._outbox.record,
            part.id,
            state,
            receipt=receipt,
            error=error,
            due_in_s=due_in_s,
        )
        try:
            await persist(record, clock=self._clock)
        except Conflict as conflict:
            # We were away for so long that another node has settled the part's fate.
            log.warning("a part is no longer ours", part=part.id, error=conflict.message)
