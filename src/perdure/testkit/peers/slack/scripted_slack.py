"""Serves those parts of Slack that no imitation by others has: streams, refusals, lost answers,
redelivery.

It follows Slack's documentation: how a stream refuses what it does not accept, which error comes
with which status, and that an envelope comes again until it is acknowledged. So it proves what a
client does with such answers, not that Slack gives them.
"""

import asyncio
import html
import json
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import msgspec
from aiohttp import WSMsgType, web

from perdure.ports.system.clock import Clock
from perdure.testkit.peers.shown import ShownMessage, wait_until

TEAM: Final = "T01"
BOT: Final = "U0BOT"
ALICE: Final = "U01"
CHANNEL: Final = "C01"
PRIVATE: Final = "D01"
BOT_TOKEN: Final = "xoxb-scripted"  # noqa: S105 it opens nothing
APP_TOKEN: Final = "xapp-scripted"  # noqa: S105 likewise

_GROWING: Final = "in_progress"
Params = dict[str, Any]


class Bare(msgspec.Struct, frozen=True):
    """Holds an answer that is not in Slack's form."""

    status: int
    body: str = ""
    mime: str = "text/plain"
    headers: dict[str, str] = {}


SlackAnswer = Params | Bare | None


class _Refusal(Exception):
    """Refuses a call with Slack's word for the reason."""


class ScriptedSlack:
    """Serves a workspace. `script` holds answers for the next calls of a method, of the "socket" or
    of an "upload". Such a call is not performed; None as the answer breaks the connection. A method
    in `lost` is performed, and then the connection breaks. A method in `held` is performed and
    never answered."""

    def __init__(self, clock: Clock) -> None:
        self.url = ""
        self.calls: list[tuple[str, Params]] = []
        self.script: dict[str, list[SlackAnswer]] = {}
        self.lost: list[str] = []
        self.held: list[str] = []
        self.messages: dict[str, Params] = {}
        self.files: dict[str, tuple[int, str, bytes]] = {}
        self._places: dict[str, str] = {}
        self.unacknowledged: dict[str, Params] = {}
        self.connections: list[web.WebSocketResponse] = []
        self.connection_count = 0
        self.answers_pings = True
        self._clock = clock
        self._numbers = count(1)
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/api/{method}", self._call)
        app.router.add_get("/socket", self._socket)
        app.router.add_get("/files/{name}", self._file)
        app.router.add_post("/upload", self._upload)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/"

    def made(self, *methods: str) -> list[str]:
        """Return the names of the methods that were called, in order: of all, or only these."""
        return [method for method, _ in self.calls if not methods or method in methods]

    def last(self, method: str) -> Params:
        """Return the parameters of the last call of a method."""
        return next(params for name, params in reversed(self.calls) if name == method)

    async def write(
        self, channel: str, text: str, *, user: str = ALICE, thread: str = "", **fields: object
    ) -> str:
        """Let a person write, and return the message's `ts`. `fields` are further fields of Slack's
        own."""
        ts = self._next_ts()
        event: Params = {
            "type": "message",
            "channel": channel,
            "user": user,
            "text": text,
            "ts": ts,
        }
        event |= fields
        if thread:
            event["thread_ts"] = thread
        self.messages[ts] = event
        await self.deliver("events_api", {"type": "event_callback", "event": event})
        return ts

    async def edit(self, ts: str, text: str) -> None:
        """Let its author change a message."""
        before = self.messages[ts]
        now = {**before, "text": text, "edited": {"user": before["user"], "ts": self._next_ts()}}
        self.messages[ts] = now
        await self._change(before, subtype="message_changed", message=now)

    async def delete(self, ts: str) -> None:
        """Let its author delete a message."""
        await self._change(self.messages.pop(ts), subtype="message_deleted", deleted_ts=ts)

    async def _change(self, before: Params, **more: object) -> None:
        """Tell the app that a message was changed."""
        event = {"type": "message", "channel": before["channel"], "ts": self._next_ts()}
        event |= {"previous_message": before, **more}
        await self.deliver("events_api", {"type": "event_callback", "event": event})

    async def deliver(self, kind: str, payload: Params) -> str:
        """Send an envelope now, and on every new connection until it is acknowledged. Returns its
        id."""
        envelope_id = f"envelope-{next(self._numbers)}"
        envelope = {"type": kind, "envelope_id": envelope_id, "payload": payload}
        self.unacknowledged[envelope_id] = envelope
        await self.send(envelope)
        return envelope_id

    async def send(self, frame: Params) -> None:
        """Send a frame on every open connection."""
        for connection in self.connections:
            with suppress(ConnectionError):
                await connection.send_json(frame)

    async def shown(self, channel: str) -> list[ShownMessage]:
        """Return what the bot shows in a channel, oldest first."""
        return [
            ShownMessage(
                id=message["ts"],
                author=BOT,
                text=message["text"],
                thread=message.get("thread_ts", ""),
                is_edited="edited" in message,
                raw=message,
            )
            for message in self.messages.values()
            if message["channel"] == channel and message["user"] == BOT
        ]

    async def wait_shown(
        self, channel: str, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until what the bot shows in a channel is accepted, and return it."""
        return await wait_until(lambda: self.shown(channel), accept, clock=self._clock)

    async def wait(self, accept: Callable[[], bool]) -> None:
        """Wait until the condition is true."""

        async def look() -> bool:
            return accept()

        await wait_until(look, bool, clock=self._clock)

    async def _call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        params = {name: _value(str(value)) for name, value in (await request.post()).items()}
        self.calls.append((method, params))
        if self.script.get(method):
            return _scripted(request, self.script[method].pop(0))
        answer = self._done(method, params)
        if method in self.lost:
            self.lost.remove(method)
            _break(request)
        if method in self.held:
            self.held.remove(method)
            await asyncio.Event().wait()
        return web.json_response(answer)

    def _done(self, method: str, params: Params) -> Params:
        """Perform a call, and return its answer."""
        known: dict[str, Callable[[Params], Params]] = {
            "auth.test": lambda _: {"team_id": TEAM, "user_id": BOT, "bot_id": "B0BOT"},
            "apps.connections.open": lambda _: {"url": f"{self.url}/socket"},
            "users.info": lambda asked: {"user": {"name": asked["user"].lower()}},
            "chat.postMessage": self._post,
            "chat.startStream": lambda asked: self._post(asked, streaming_state=_GROWING),
            "chat.appendStream": self._append,
            "chat.stopStream": self._stop,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "files.getUploadURLExternal": self._place,
            "files.completeUploadExternal": self._share,
            "files.info": lambda _: {"file": {"id": "F01", "url_private": f"{self.url}/files/a"}},
            "reactions.add": lambda _: {},
            "reactions.remove": lambda _: {},
        }
        if method not in known:
            return {"ok": False, "error": "unknown_method"}
        try:
            return {"ok": True, **known[method](params)}
        except _Refusal as refusal:
            return {"ok": False, "error": str(refusal)}

    def _next_ts(self) -> str:
        return f"{self._clock.now_ms() // 1000}.{next(self._numbers):06}"

    def _post(self, params: Params, **more: str) -> Params:
        ts = self._next_ts()
        names = ("metadata", "thread_ts", "blocks")
        kept: Params = {each: params[each] for each in names if each in params}
        text = _text(params)
        message = {"ts": ts, "channel": params["channel"], "user": BOT, "text": text}
        self.messages[ts] = {**message, **kept, **more}
        return {"channel": params["channel"], "ts": ts}

    def _message(self, params: Params) -> Params:
        if params["ts"] not in self.messages:
            raise _Refusal("message_not_found")
        return self.messages[params["ts"]]

    def _stream(self, params: Params) -> Params:
        """Return the message of a stream that is still open. Raises `_Refusal` if it is not."""
        message = self._message(params)
        if message.get("streaming_state") != _GROWING:
            raise _Refusal("message_not_in_streaming_state")
        return message

    def _append(self, params: Params) -> Params:
        self._stream(params)["text"] += params["markdown_text"]
        return {}

    def _stop(self, params: Params) -> Params:
        message = self._stream(params)
        message["text"] += params.get("markdown_text", "")
        message["streaming_state"] = "completed"
        message |= {name: params[name] for name in ("metadata", "blocks") if name in params}
        return {}

    def _update(self, params: Params) -> Params:
        message = self._message(params)
        if message.get("streaming_state") == _GROWING:
            raise _Refusal("streaming_state_conflict")
        message["text"] = _text(params)
        # Blocks that are left out stay as they were; only an empty list removes them.
        message |= {"blocks": params["blocks"]} if "blocks" in params else {}
        message["edited"] = {"user": BOT, "ts": self._next_ts()}
        return {"ts": params["ts"], "channel": params["channel"]}

    def _delete(self, params: Params) -> Params:
        if self._message(params).get("streaming_state") == _GROWING:
            raise _Refusal("cant_delete_message")
        del self.messages[params["ts"]]
        return {}

    def _history(self, params: Params) -> Params:
        """Return the messages of a channel without its threads."""
        shown = self._in_channel(params)
        return {"messages": [each for each in shown if each.get("thread_ts") in (None, each["ts"])]}

    def _replies(self, params: Params) -> Params:
        """Return a message with those of its thread."""
        asked = params["ts"]
        shown = self._in_channel(params)
        return {
            "messages": [each for each in shown if asked in (each["ts"], each.get("thread_ts"))]
        }

    def _in_channel(self, params: Params) -> list[Params]:
        return [each for each in self.messages.values() if each["channel"] == params["channel"]]

    def _place(self, params: Params) -> Params:
        """Reserve a place for an upload."""
        file_id = f"F{len(self._places) + 1:02}"
        self._places[file_id] = params["filename"]
        return {"upload_url": f"{self.url}/upload", "file_id": file_id}

    def _share(self, params: Params) -> Params:
        """Post an uploaded file as a message."""
        ts = self._next_ts()
        files = [{**file, "name": self._places[file["id"]]} for file in params["files"]]
        message = {
            "ts": ts,
            "channel": params["channel_id"],
            "user": BOT,
            "text": params.get("initial_comment", ""),
            "files": files,
        }
        if "thread_ts" in params:
            message["thread_ts"] = params["thread_ts"]
        self.messages[ts] = message
        return {"files": files}

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        """Serve a connection of Socket Mode until it ends."""
        if self.script.get("socket"):
            return _scripted(request, self.script["socket"].pop(0))
        connection = web.WebSocketResponse(autoping=self.answers_pings)
        await connection.prepare(request)
        self.connection_count += 1
        self.connections.append(connection)
        await connection.send_json({"type": "hello"})
        for envelope in list(self.unacknowledged.values()):
            await connection.send_json(envelope)
        try:
            async for frame in connection:
                if frame.type is WSMsgType.TEXT:
                    self.unacknowledged.pop(json.loads(frame.data)["envelope_id"], None)
        finally:
            self.connections.remove(connection)
        return connection

    async def _file(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {BOT_TOKEN}"
        status, mime, body = self.files[request.match_info["name"]]
        return web.Response(status=status, content_type=mime, body=body)

    async def _upload(self, request: web.Request) -> web.Response:
        if self.script.get("upload"):
            return _scripted(request, self.script["upload"].pop(0))
        self.files["uploaded"] = (200, request.content_type, await request.read())
        return web.Response(text="OK")


def _text(params: Params) -> str:
    """Return what people read: the Markdown, or the text blocks, or the text if there are none."""
    if "markdown_text" in params:
        return str(params["markdown_text"])
    words = [each["text"] for each in params.get("blocks", ()) if "text" in each]
    shown = [each if isinstance(each, str) else each["text"] for each in words]
    return "\n".join(shown) or html.unescape(params["text"])


def _value(text: str) -> Any:
    """Return a field of a form as a value. Objects and lists in it are JSON."""
    return json.loads(text) if text[:1] in ("{", "[") else text


def _scripted(request: web.Request, answer: SlackAnswer) -> web.Response:
    """Return an answer of the script, or break the connection."""
    if answer is None:
        _break(request)
    if isinstance(answer, Bare):
        return web.Response(
            status=answer.status,
            text=answer.body,
            content_type=answer.mime,
            headers=answer.headers,
        )
    return web.json_response(answer)


def _break(request: web.Request) -> NoReturn:
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError
