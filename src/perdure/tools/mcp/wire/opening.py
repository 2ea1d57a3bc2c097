"""Opens links. Each connection is opened, held and closed by one task of its own, because the
package's scopes must be left by the task that entered them."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Final

import mcp_types as types
from mcp import MCPError
from mcp.client._transport import ReadStream, WriteStream
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

import perdure
from perdure.domain.errors import PerdureError, Transient
from perdure.ports.system.children import ChildProgram, Children
from perdure.ports.system.outgoing import Outgoing
from perdure.ports.system.time_limits import time_limit
from perdure.tools.mcp.link import LinkTerms, ServerLink
from perdure.tools.mcp.wire.asking import ServerQuestions
from perdure.tools.mcp.wire.dispatching import Message, ServerDispatcher
from perdure.tools.mcp.wire.going import GOING, GoingRequest, LinkEnd, translated_failure
from perdure.tools.mcp.wire.http import AddressTransport
from perdure.tools.mcp.wire.running import RunningCalls
from perdure.tools.mcp.wire.sdk_link import SdkLink
from perdure.tools.mcp.wire.stdio import ProgramTransport

# How long closing may take: the end of a program, which its port bounds, and a little more.
CLOSE_S: Final = 12.0
# A change is told at once, and the next one not before this.
CHANGES_S: Final = 1.0
# A link is not ready before it hears of changes, unless that takes longer than this.
_SUBSCRIBE_S: Final = 2.0
# How often a subscription that was lost is begun again, and the first wait before that.
_SUBSCRIPTIONS_MAX: Final = 5
_SUBSCRIBE_AGAIN_S: Final = 1.0

Streams = AbstractAsyncContextManager[tuple[ReadStream[Message], WriteStream[SessionMessage]]]


async def link_to_program(
    program: ChildProgram, *, children: Children, terms: LinkTerms
) -> ServerLink:
    """Start a server, and connect to it."""
    end = LinkEnd()
    transport = ProgramTransport(program, children=children, log=terms.log, end=end)
    return await _Connection(transport, terms, end).opened()


async def link_to_address(
    url: str, headers: Mapping[str, str], *, outgoing: Outgoing, terms: LinkTerms
) -> ServerLink:
    """Connect to a server that runs elsewhere."""
    end = LinkEnd()
    transport = AddressTransport(url, headers, outgoing=outgoing, end=end)
    return await _Connection(transport, terms, end).opened()


class _Connection:
    """Owns one connection."""

    def __init__(self, transport: Streams, terms: LinkTerms, end: LinkEnd) -> None:
        self._transport = transport
        self._terms = terms
        self._end = end
        self._calls = RunningCalls(terms.waits_s, is_of_one=terms.is_of_one)
        self._questions = ServerQuestions(self._calls, terms)
        self._changes = _Changes(terms.on_change)
        self._settled = asyncio.Event()
        self._failure: PerdureError | None = None
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None

    async def opened(self) -> SdkLink:
        """Open the connection, and return its link. What fails is closed before it is told."""
        heard_bytes = self._terms.log.heard_bytes
        # Closing the link ends this task.
        self._task = asyncio.create_task(self._own(), name="mcp connection")  # noqa: TID251
        try:
            async with time_limit(self._terms.connect_s):
                await self._settled.wait()
        except TimeoutError as error:
            await self._abandon()
            limit_s = self._terms.connect_s
            raise Transient(
                f"the server did not get ready within {limit_s:g} seconds{self._last(heard_bytes)}"
            ) from error
        except asyncio.CancelledError:
            await self._abandon()
            raise
        if self._session is None:
            await self.close()
            assert self._failure is not None
            raise type(self._failure)(f"{self._failure.message}{self._last(heard_bytes)}")
        return SdkLink(
            self._session,
            terms=self._terms,
            end=self._end,
            calls=self._calls,
            close=self.close,
        )

    def _last(self, heard_bytes: int) -> str:
        """Return the last words of a server that did not get ready, if it said any."""
        said = self._terms.log.heard_bytes > heard_bytes and self._terms.log.last_line[:300]
        return f"; its last words: {said}" if said else ""

    async def _own(self) -> None:
        """Open the connection, hold it until it ends, and close it."""
        going = GoingRequest()
        GOING.set(going)
        try:
            async with AsyncExitStack() as stack:
                read, write = await stack.enter_async_context(self._transport)
                dispatcher = ServerDispatcher(
                    read, write, log=self._terms.log, on_change=self._changes.tell
                )
                session = await stack.enter_async_context(self._new_session(dispatcher))
                await _negotiate(session, going)
                dispatcher.version = session.protocol_version or dispatcher.version
                async with asyncio.TaskGroup() as tasks:
                    hears = asyncio.Event()
                    listening = tasks.create_task(self._listen(session, hears))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_SUBSCRIBE_S):
                            await hears.wait()
                    self._session = session
                    self._settled.set()
                    await self._end.wait()
                    listening.cancel()
        except Exception as error:  # noqa: BLE001 - whatever the package raises ends the link
            self._failure = translated_failure(error, going, self._end)
            self._end.tell(f"is lost: {self._failure.message}")
        finally:
            self._end.tell("was closed")
            self._changes.stop()
            self._calls.end_all()
            self._settled.set()

    def _new_session(self, dispatcher: ServerDispatcher) -> ClientSession:
        return ClientSession(
            dispatcher=dispatcher,
            elicitation_callback=self._questions.elicit,
            sampling_callback=self._questions.sample if self._terms.can_sample else None,
            client_info=types.Implementation(name="perdure", version=perdure.__version__),
            log_level="info",
        )

    async def _listen(self, session: ClientSession, hears: asyncio.Event) -> None:
        """Hear of changes from a server without a handshake, if it tells of any. `hears` is set
        from when on no change is missed."""
        try:
            await self._subscribe(session, hears)
        finally:
            hears.set()

    async def _subscribe(self, session: ClientSession, hears: asyncio.Event) -> None:
        has = session.server_capabilities
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS or has is None:
            return
        tools = bool(has.tools and has.tools.list_changed)
        prompts = bool(has.prompts and has.prompts.list_changed)
        resources = bool(has.resources and has.resources.list_changed)
        for attempt in range(_SUBSCRIPTIONS_MAX if tools or prompts or resources else 0):
            try:
                async with listen(
                    session,
                    tools_list_changed=tools,
                    prompts_list_changed=prompts,
                    resources_list_changed=resources,
                ) as events:
                    hears.set()
                    if self._settled.is_set():
                        # What has changed meanwhile was not told.
                        self._changes.tell()
                    async for _ in events:
                        # The dispatcher has told of it where it was read.
                        pass
            except (MCPError, SubscriptionLost):
                await self._end.wait(_SUBSCRIBE_AGAIN_S * 2**attempt)
            else:
                return

    async def close(self) -> None:
        """End the connection, in bounded time."""
        self._end.tell("was closed")
        await self._gone(CLOSE_S)

    async def _abandon(self) -> None:
        """End a connection that does not come about."""
        assert self._task is not None
        self._end.tell("did not get ready")
        self._task.cancel()
        await asyncio.shield(self._gone(CLOSE_S))

    async def _gone(self, seconds: float) -> None:
        assert self._task is not None
        _, late = await asyncio.wait({self._task}, timeout=seconds)
        if late:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=1.0)


async def _negotiate(session: ClientSession, going: GoingRequest) -> None:
    """Find out which version the server speaks, the one without a handshake first."""
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValidationError):
        # Anything but silence of the network may be how an older server answers.
        if isinstance(going.failure, Transient):
            raise
        await _shake_hands(session)


async def _shake_hands(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        # A slow server has answered the first question after all.
        await session.discover()


class _Changes:
    """Tells of changes, away from who reads, and not too often."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._is_due = False
        self._timer: asyncio.Handle | None = None

    def tell(self) -> None:
        """Say that something has changed."""
        self._is_due = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        if self._is_due:
            self._is_due = False
            self._timer = asyncio.get_running_loop().call_later(CHANGES_S, self._go_on)
            self._on_change()

    def stop(self) -> None:
        """Tell no more."""
        if self._timer is not None:
            self._timer.cancel()
