"""Serves Telegram's Bot API with what the imitations by others lack.

It keeps the rules of the long poll: an update is offered until one after it is asked for, and a
second poller ends the first. It sends updates to a webhook, with the webhook's secret, until that
answers 200. It knows drafts, rich messages, reactions, documents, waits and lost answers. The
authors of the adapter wrote it from the published documentation. So it can show that it and the
adapter agree, but not that Telegram does.

    async with BotApi(clock) as api:
        api.write(42, "hello")
        ...  # point a bot at api.url with api.token
        await api.wait_shown(42, lambda shown: shown and shown[-1].text == "hello")
"""

import asyncio
import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp import web

from perdure.ports.system.clock import Clock
from perdure.testkit.peers.shown import ShownMessage, wait_until
from perdure.testkit.peers.telegram import bot_api_rules as rules
from perdure.testkit.peers.telegram.bot_api_chats import BOT, BotApiProblem, Chats, UploadedFile

_REDELIVERY_S: Final = 0.05
_GRACE_S: Final = 0.2


class BotApiFault(msgspec.Struct, frozen=True, kw_only=True):
    """Says how the next call of a method fails. With a `status`, that is answered and nothing
    happens. `is_lost`: the call is performed, and the connection breaks before the answer.
    `is_hung`: the call is performed, and no answer ever comes."""

    status: int = 0
    description: str = "this call was to fail"
    retry_after: int = 0
    moved_to: int = 0
    is_lost: bool = False
    is_hung: bool = False


class BotApiCall(msgspec.Struct, frozen=True):
    """Holds a request as it arrived. `uploads` are the files in it, by their fields."""

    method: str
    params: Mapping[str, Any]
    uploads: Mapping[str, UploadedFile]


class BotApi:
    """Serves one bot. Methods in `unknown` are refused, as by an older server. `impatient` counts
    the calls that came while the bot had been told to wait."""

    def __init__(self, clock: Clock, *, unknown: frozenset[str] = frozenset()) -> None:
        self.token = "700:SECRET"  # noqa: S105 - nobody else's
        self.url = ""
        self.calls: list[BotApiCall] = []
        self.chats = Chats()
        self.impatient = 0
        self.updates: deque[dict[str, Any]] = deque()
        self._unknown = unknown
        self._clock = clock
        self._faults: defaultdict[str, deque[BotApiFault]] = defaultdict(deque)
        self._numbers = Counter({"update": 1000})
        self._news = asyncio.Event()
        self._poll = 0
        self._weeks = 0
        self._wait_until_s = 0.0
        self._hook: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2 * rules.UPLOAD_BYTES_MAX)
        app.router.add_route("*", "/bot{token}/{method}", self._serve)
        app.router.add_get("/file/bot{token}/{path:.+}", self._serve_file)
        runner = web.AppRunner(app, shutdown_timeout=_GRACE_S, access_log=None)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        http = await self._stack.enter_async_context(aiohttp.ClientSession())
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        sender = group.create_task(self._send_to_hook(http))
        self._stack.callback(sender.cancel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def push(self, **kinds: object) -> int:
        """Queue an update for the bot, and return the update's number."""
        self._numbers["update"] += 1
        number = self._numbers["update"]
        self.updates.append({"update_id": number, **kinds})
        self._wake()
        return number

    def write(self, chat: int, text: str = "", **fields: object) -> int:
        """Let a person write, and return the message's number. `fields` are further fields of
        Telegram's own."""
        message = self.chats.written(chat, text, fields)
        self.push(message=message)
        return int(message["message_id"])

    def edit(self, chat: int, message_id: int, text: str, *, edit_date: int = 1) -> None:
        """Let a person edit a message."""
        before = self.chats.message(chat, message_id)
        self.push(edited_message={**before, "text": text, "edit_date": edit_date})

    def migrate(self, chat: int, to: int, *, keeps_messages: bool = True) -> None:
        """Turn a group into a supergroup, which has another number, and tell the bot in both."""
        self.chats.migrate(chat, to, keeps_messages=keeps_messages)
        group = {"id": chat, "type": "group", "title": "Club"}
        self.push(message={"message_id": 900, "date": 1, "chat": group, "migrate_to_chat_id": to})
        place = self.chats.chat(to)
        told = {"message_id": 901, "date": 1, "chat": place, "migrate_from_chat_id": chat}
        self.push(message=told)

    def click(self, chat: int, message_id: int, word: str, *, user: int = 0) -> str:
        """Let a person press the button with this text, and return the id of the press."""
        buttons = self.chats.buttons(chat, message_id)
        data = next(each["callback_data"] for each in buttons if each["text"] == word)
        return self.press(chat, message_id, data, user=user)

    def press(self, chat: int, message_id: int, data: str, *, user: int = 0) -> str:
        """Let a person's client send the data of a button, and return the id of the press. As on
        Telegram, the message need not have such a button."""
        message = self.chats.message(chat, message_id)
        self._numbers["click"] += 1
        query = str(self._numbers["click"])
        person = {"id": user or chat, "is_bot": False, "first_name": "Ada"}
        click = {"id": query, "from": person, "message": message, "data": data}
        self.push(callback_query={**click, "chat_instance": "1"})
        return query

    def press_stop(self, chat: int) -> None:
        """Let a person press stop under the draft that is shown."""
        stopped = {"chat": self.chats.chat(chat), "draft_id": self.chats.drafts[chat].id}
        self.push(stopped_message_generation=stopped)

    def pass_a_quiet_week(self) -> None:
        """End the poll under way without an answer to it, and number later updates from a lower
        number on, as Telegram does after a week without updates."""
        self._numbers["update"] //= 2
        self._weeks += 1
        self._wake()

    def fail(self, method: str, fault: BotApiFault) -> None:
        """Let the next call of this method fail like this. Several faults of a method are used in
        their order."""
        self._faults[method].append(fault)

    def made(self, method: str) -> list[Mapping[str, Any]]:
        """Return the parameters of the calls of a method."""
        return [call.params for call in self.calls if call.method == method]

    async def shown(self, chat: int) -> list[ShownMessage]:
        """Return the bot's messages in a chat, oldest first."""
        return self.chats.shown(chat)

    async def wait_shown(
        self, chat: int, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until the bot's messages in a chat are accepted, and return them."""
        return await wait_until(lambda: self.shown(chat), accept, clock=self._clock)

    async def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until the condition is true."""

        async def look() -> bool:
            return is_so()

        await wait_until(look, bool, clock=self._clock)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one call, unless a fault hangs it or breaks its connection."""
        method = request.match_info["method"]
        try:
            if request.match_info["token"] != self.token:
                raise BotApiProblem(401, "Unauthorized")
            params, uploads = await _read(request)
            self.calls.append(BotApiCall(method, params, uploads))
            fault = self._next_fault(method)
            result = await self._answer(method, params, uploads)
        except BotApiProblem as problem:
            return _refused(problem)
        if fault is not None and fault.is_hung:
            await asyncio.Event().wait()
        if fault is not None:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"ok": True, "result": result})

    def _next_fault(self, method: str) -> BotApiFault | None:
        """Return the fault that the call meets after it was performed, or None. Raises the refusal
        of a fault that is met before."""
        is_waiting = self._clock.monotonic_s() < self._wait_until_s
        if is_waiting and method != "getUpdates":
            self.impatient += 1
            raise BotApiProblem(429, "Too Many Requests: retry later", retry_after=1)
        fault = self._faults[method].popleft() if self._faults[method] else None
        if fault is None or not fault.status:
            return fault
        if fault.retry_after:
            self._wait_until_s = self._clock.monotonic_s() + fault.retry_after
        raise BotApiProblem(
            fault.status,
            fault.description,
            retry_after=fault.retry_after,
            moved_to=fault.moved_to,
        )

    async def _answer(
        self, method: str, params: Mapping[str, Any], uploads: Mapping[str, UploadedFile]
    ) -> object:
        if method in self._unknown:
            raise BotApiProblem(404, "Not Found: method not found")
        match method:
            case "getMe":
                return BOT
            case "getUpdates":
                return await self._get_updates(params)
            case "setWebhook" | "deleteWebhook":
                self._hook = dict(params)
                self._wake()
                return True
            case "getWebhookInfo":
                pending = len(self.updates) if self._hook.get("url") else 0
                return {"url": self._hook.get("url", ""), "pending_update_count": pending}
            case _:
                return self.chats.perform(method, params, uploads)

    async def _get_updates(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        if self._hook.get("url"):
            raise BotApiProblem(
                409, "Conflict: can't use getUpdates method while webhook is active"
            )
        offset, timeout_s = params.get("offset", 0), params.get("timeout", 0)
        while self.updates and self.updates[0]["update_id"] < offset:
            self.updates.popleft()
        self._poll += 1
        mine, week = self._poll, self._weeks
        self._wake()
        try:
            async with asyncio.timeout(timeout_s):
                while not (told := self._told(params)) and (self._poll, self._weeks) == (
                    mine,
                    week,
                ):
                    await self._news.wait()
        except TimeoutError:
            return []
        if self._poll != mine:
            raise BotApiProblem(409, "Conflict: terminated by other getUpdates request")
        return told[: params.get("limit", 100)]

    def _told(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the updates from the offset on that the bot wants to hear of."""
        kinds = set(params.get("allowed_updates") or ()) | {"update_id"}
        since = params.get("offset", 0)
        return [
            update
            for update in self.updates
            if set(update) <= kinds and update["update_id"] >= since
        ]

    def _wake(self) -> None:
        """Wake all who wait now. Those who begin to wait afterwards wait for the next change."""
        self._news.set()
        self._news = asyncio.Event()

    async def _send_to_hook(self, http: aiohttp.ClientSession) -> None:
        """Send updates to the webhook, one after another. One that is not answered with 200 is sent
        again."""
        while True:
            news = self._news
            if not self.updates or not self._hook.get("url"):
                await news.wait()
                continue
            headers = {"X-Telegram-Bot-Api-Secret-Token": self._hook.get("secret_token", "")}
            if await _delivered(http, self._hook["url"], self.updates[0], headers):
                self.updates.popleft()
            else:
                await self._clock.sleep(_REDELIVERY_S)

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        data = self.chats.files.get(request.match_info["path"])
        if request.match_info["token"] != self.token or data is None:
            return web.Response(status=404)
        return web.Response(body=data)


async def _delivered(
    http: aiohttp.ClientSession, url: str, update: object, headers: Mapping[str, str]
) -> bool:
    """Tell whether the webhook has taken an update."""
    try:
        async with http.post(url, json=update, headers=headers) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def _read(request: web.Request) -> tuple[dict[str, Any], dict[str, UploadedFile]]:
    """Return the parameters of a request, and the files in it."""
    if request.content_type != "multipart/form-data":
        body = await request.read()
        return json.loads(body) if body else {}, {}
    params: dict[str, Any] = {}
    uploads: dict[str, UploadedFile] = {}
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            uploads[name] = UploadedFile(value.filename, value.content_type, value.file.read())
        else:
            params[name] = _unquoted(str(value))
    return params, uploads


def _unquoted(value: str) -> object:
    """Return a field of a form as a value: forms carry text, in which numbers and objects are
    JSON."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _refused(problem: BotApiProblem) -> web.Response:
    body: dict[str, Any] = {"ok": False, "error_code": problem.status, "description": str(problem)}
    if problem.retry_after:
        body["parameters"] = {"retry_after": problem.retry_after}
    if problem.moved_to:
        body["parameters"] = {"migrate_to_chat_id": problem.moved_to}
    return web.json_response(body, status=problem.status)
