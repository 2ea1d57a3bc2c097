"""Bounds what a server may send beside the answers to our requests."""

from collections.abc import Callable, Mapping
from contextvars import Context
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.lowlevel
from mcp.client._transport import ReadStream, WriteStream
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher, cancelled_request_id_from_params
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from perdure.domain.errors import Permanent
from perdure.tools.mcp.link import TOOLS_MAX
from perdure.tools.mcp.server_log import ServerLog

# How many requests of a server may be unanswered. More are not even read.
REQUESTS_MAX: Final = 64
# After so many messages everybody else gets a turn.
_MESSAGES_IN_A_ROW: Final = 32
_LISTED: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_CHANGES: Final = frozenset(
    f"notifications/{each}/list_changed" for each in ("tools", "prompts", "resources")
)
_LOGGED_MAX: Final = 1_000
Message = SessionMessage | Exception


class ServerDispatcher(JSONRPCDispatcher):
    """Sends requests and hears the server. Of a list, it leaves out what is no entry, because the
    package would refuse the list as a whole. Notifications are dealt with where they are read: a
    flood of them starts no tasks."""

    def __init__(
        self,
        read: ReadStream[Message],
        write: WriteStream[SessionMessage],
        *,
        log: ServerLog,
        on_change: Callable[[], None],
    ) -> None:
        unanswered: set[RequestId] = set()
        super().__init__(_BoundedReading(read, unanswered), _CountedWriting(write, unanswered))
        self.version = LATEST_HANDSHAKE_VERSION
        self._log = log
        self._on_change = on_change

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        def heard(method: str, params: Mapping[str, Any] | None) -> bool:
            if on_notify_intercept is not None:
                on_notify_intercept(method, params)
            if method in _CHANGES:
                self._on_change()
            elif method == "notifications/message":
                self._log.note(_logged(params or {}))
            return True

        await super().run(on_request, on_notify, heard, task_status=task_status)

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        answer = await super().send_raw_request(
            method, params, opts, _related_request_id=_related_request_id
        )
        if (key := _LISTED.get(method)) is not None:
            self._leave_out(method, key, answer)
        return answer

    def _leave_out(self, method: str, key: str, answer: dict[str, Any]) -> None:
        """Take from a list what is no entry. Raises `Permanent` if it is too long."""
        listed = answer.get(key)
        if not isinstance(listed, list):
            return
        if len(listed) > TOOLS_MAX:
            raise Permanent(f"the server lists more than {TOOLS_MAX:,} {key} at once")
        try:
            validate_server_result(method, self.version, answer)
        except ValidationError as error:
            problems = _problems(error, key)
            for index, problem in problems.items():
                self._log.note(f"number {index + 1} of the {key} is left out: {problem}")
            answer[key] = [each for index, each in enumerate(listed) if index not in problems]
        except (KeyError, ValueError):
            # This version has no such list. The package says what it thinks of it.
            return


def _problems(error: ValidationError, key: str) -> dict[int, str]:
    """Return what is wrong with the entries of a list, by their places."""
    found: dict[int, str] = {}
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        place = each["loc"]
        index = place[place.index(key) + 1] if key in place[:-1] else None
        if isinstance(index, int):
            found.setdefault(index, f"{'.'.join(map(str, place))}: {each['msg']}")
    return found


def _logged(params: Mapping[str, Any]) -> str:
    """Return a message that a server logs as a line."""
    data = params.get("data")
    words = data if isinstance(data, str) else repr(data)[:_LOGGED_MAX]
    return f"{params.get('level')}: {words[:_LOGGED_MAX]}"


class _BoundedReading:
    """Reads what a server sends, and passes over requests that are too many."""

    def __init__(self, inner: ReadStream[Message], unanswered: set[RequestId]) -> None:
        self._inner = inner
        self._unanswered = unanswered
        self._in_a_row = 0

    @property
    def last_context(self) -> Context | None:
        """Return the context in which the last message was read, as the package asks for it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Message:
        while True:
            self._in_a_row += 1
            if self._in_a_row > _MESSAGES_IN_A_ROW:
                self._in_a_row = 0
                await anyio.lowlevel.checkpoint()
            message = await self._inner.receive()
            if isinstance(message, SessionMessage) and self._passes(message):
                return message

    def _passes(self, message: SessionMessage) -> bool:
        said = message.message
        if isinstance(said, JSONRPCRequest):
            if len(self._unanswered) >= REQUESTS_MAX:
                return False
            self._unanswered.add(said.id)
        elif isinstance(said, JSONRPCNotification) and said.method == "notifications/cancelled":
            # What the server takes back gets no answer. Our own requests are never in here.
            self._unanswered.discard(cancelled_request_id_from_params(said.params) or "")
        return True

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class _CountedWriting:
    """Writes what we send, and notes which requests of the server have their answer."""

    def __init__(self, inner: WriteStream[SessionMessage], unanswered: set[RequestId]) -> None:
        self._inner = inner
        self._unanswered = unanswered

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError) and item.message.id is not None:
            self._unanswered.discard(item.message.id)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
