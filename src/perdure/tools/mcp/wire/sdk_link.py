"""Implements a link with the session of the official package."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from perdure.domain.errors import Permanent, Rejected, Transient
from perdure.ports.system.time_limits import time_limit
from perdure.tools.mcp.link import (
    TOOLS_MAX,
    InputGiven,
    InputNeeded,
    LinkTerms,
    ListedPrompt,
    ListedResource,
    ListedTool,
    Sampler,
    ServerAnswer,
)
from perdure.tools.mcp.wire import answers
from perdure.tools.mcp.wire.going import GOING, GoingRequest, LinkEnd, quoted, translated_failure
from perdure.tools.mcp.wire.questions import (
    NEW_CALL,
    CallState,
    answered,
    asked_for,
    is_kept_by_us,
    next_question,
    visits_of,
)
from perdure.tools.mcp.wire.running import Outcome, RunningCall, RunningCalls

T = TypeVar("T")
P = TypeVar("P", bound=types.PaginatedResult)
P_co = TypeVar("P_co", covariant=True)
PAGES_MAX: Final = 1_000
_RESULT: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_PROGRESS_MAX: Final = 200
# How long a server is left alone that wants to be asked again, and asks nothing itself.
_AGAIN_S: Final = 0.2


class SdkLink:
    """Implements the `ServerLink` port. `close` is how its owner closes it."""

    def __init__(
        self,
        session: ClientSession,
        *,
        terms: LinkTerms,
        end: LinkEnd,
        calls: RunningCalls,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._session = session
        self._terms = terms
        self._end = end
        self._calls = calls
        self._close = close

    @property
    def server(self) -> str:
        about = self._session.server_info
        return quoted(f"{about.title or about.name} {about.version}") if about else ""

    @property
    def version(self) -> str:
        return self._session.protocol_version or ""

    @property
    def has_prompts(self) -> bool:
        has = self._session.server_capabilities
        return has is not None and has.prompts is not None

    @property
    def has_resources(self) -> bool:
        has = self._session.server_capabilities
        return has is not None and has.resources is not None

    @property
    def ended(self) -> str:
        return self._end.words

    @property
    def errors(self) -> str:
        return self._terms.log.text

    async def tools(self) -> list[ListedTool]:
        has = self._session.server_capabilities
        if has is None or has.tools is None:
            return []
        pages = _Pages(self._session.list_tools, lambda page: page.tools)
        return answers.tools_of(await self._answer("tools/list", pages.all), self._terms.log)

    async def prompts(self) -> list[ListedPrompt]:
        if not self.has_prompts:
            return []
        pages = _Pages(self._session.list_prompts, lambda page: page.prompts)
        return answers.prompts_of(await self._answer("prompts/list", pages.all))

    async def resources(self) -> list[ListedResource]:
        if not self.has_resources:
            return []
        pages = _Pages(self._session.list_resources, lambda page: page.resources)
        listed = await self._answer("resources/list", pages.all)
        shapes = _Pages(self._session.list_resource_templates, lambda page: page.resource_templates)
        try:
            templates = await self._answer("resources/templates/list", shapes.all)
        except Rejected:
            # Servers that have none do not all know the question.
            templates = []
        return answers.resources_of(listed, templates)

    async def read(self, uri: str) -> ServerAnswer:
        result = await self._answer(
            "resources/read",
            lambda: self._session.read_resource(uri, allow_input_required=True),
        )
        if isinstance(result, types.InputRequiredResult):
            raise _asks_out_of_place()
        return answers.content_of(result)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> ServerAnswer:
        result = await self._answer(
            "prompts/get",
            lambda: self._session.get_prompt(name, dict(arguments), allow_input_required=True),
        )
        if isinstance(result, types.InputRequiredResult):
            raise _asks_out_of_place()
        return answers.messages_of(result)

    async def ping(self) -> None:
        # The version without a handshake has no ping.
        is_modern = self.version in MODERN_PROTOCOL_VERSIONS
        await self._answer(
            "ping",
            lambda: (
                self._session.send_discover(self.version)
                if is_modern
                else self._session.send_ping()
            ),
        )

    async def _answer(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a request by which nothing happens."""
        self._check()
        going = GoingRequest()
        token = GOING.set(going)
        limit_s = self._terms.answer_s
        try:
            async with time_limit(limit_s):
                return await ask()
        except TimeoutError as error:
            raise Transient(
                f"the server did not answer {what} within {limit_s:g} seconds"
            ) from error
        except Exception as error:
            raise translated_failure(error, going, self._end) from error
        finally:
            going.finish()
            GOING.reset(token)

    def _check(self) -> None:
        if self._end.words:
            raise Transient(f"the connection has ended: the server {self._end.words}")

    async def call(
        self,
        call: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        report: Callable[[str], None],
        sampler: Sampler | None = None,
    ) -> Outcome:
        running = RunningCall(report, sampler)
        return await self._begin(call, tool, arguments, NEW_CALL, running)

    async def resume(
        self,
        call: str,
        tool: str,
        arguments: dict[str, Any],
        given: InputGiven,
        *,
        report: Callable[[str], None],
        sampler: Sampler | None = None,
    ) -> Outcome:
        if is_kept_by_us(given.state):
            running = RunningCall(report, sampler)
            return await self._begin(call, tool, arguments, answered(given), running)
        return await self._calls.resume(call, given, report=report, sampler=sampler)

    async def _begin(
        self,
        call: str,
        tool: str,
        arguments: dict[str, Any],
        state: CallState,
        running: RunningCall,
    ) -> Outcome:
        self._check()
        return await self._calls.start(call, running, self._run(running, tool, arguments, state))

    async def _run(
        self, running: RunningCall, tool: str, arguments: dict[str, Any], state: CallState
    ) -> None:
        GOING.set(running)
        try:
            running.tell(await self._outcome(running, tool, arguments, state))
        except Exception as error:  # noqa: BLE001 - whatever the package raises, somebody waits
            running.tell(translated_failure(error, running, self._end))
        finally:
            running.finish()

    async def _outcome(
        self, running: RunningCall, tool: str, arguments: dict[str, Any], state: CallState
    ) -> Outcome:
        """Call a tool, as often as the server says that it needs something first."""
        while True:
            step = await next_question(state, running.sampler)
            if isinstance(step, InputNeeded):
                return step
            try:
                result = await self._send(running, tool, arguments, step)
            except MCPError as error:
                if error.code != types.URL_ELICITATION_REQUIRED or running.failure:
                    raise
                state = visits_of(error.error)
                continue
            if isinstance(result, types.CallToolResult):
                return answers.answer_of(result)
            state = asked_for(result, step)
            if not state.asked:
                await self._end.wait(_AGAIN_S)

    async def _send(
        self, running: RunningCall, tool: str, arguments: dict[str, Any], state: CallState
    ) -> types.CallToolResult | types.InputRequiredResult:
        params = types.CallToolRequestParams(
            name=tool,
            arguments=arguments,
            input_responses=state.responses,
            request_state=state.server,
        )
        request = types.CallToolRequest(params=params)

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            running.report(_progress(progress, total, message))

        # Not `call_tool`: it would check the answer by the server's own schema, on the event loop.
        try:
            return await self._session.send_request(request, _RESULT, progress_callback=hear)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH or running.failure:
                raise
        # The server wants arguments in headers, which the list of its tools describes, and has
        # refused the call for that.
        await self.tools()
        return await self._session.send_request(request, _RESULT, progress_callback=hear)

    async def close(self) -> None:
        await self._close()


class _Pages(Generic[P, T]):
    """Reads a list, page by page."""

    def __init__(self, ask: "_AskPage[P]", entries: Callable[[P], list[T]]) -> None:
        self._ask = ask
        self._entries = entries

    async def all(self) -> list[T]:
        """Return the entries of all pages. Raises `Permanent` if they do not come to an end."""
        found: list[T] = []
        seen: set[str] = set()
        params: types.PaginatedRequestParams | None = None
        while True:
            page = await self._ask(params=params)
            found += self._entries(page)
            cursor = page.next_cursor
            if not cursor:
                return found
            if cursor in seen or len(seen) >= PAGES_MAX or len(found) > TOOLS_MAX:
                raise Permanent(
                    f"the server's list has no end: {len(seen) + 1} pages with {len(found)} "
                    "entries, and it says that there are more"
                )
            seen.add(cursor)
            params = types.PaginatedRequestParams(cursor=cursor)


class _AskPage(Protocol[P_co]):
    async def __call__(self, *, params: types.PaginatedRequestParams | None = None) -> P_co: ...


def _asks_out_of_place() -> Rejected:
    return Rejected("the server asks a person first, which works only while it runs a tool")


def _progress(done: float, total: float | None, message: str | None) -> str:
    """Return how far a call is, as a line."""
    share = f"{done:g} of {total:g}" if total else f"{done:g}"
    return f"{share}: {quoted(message)[:_PROGRESS_MAX]}" if message else share
