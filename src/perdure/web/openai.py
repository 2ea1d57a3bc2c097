"""The OpenAI-compatible surface: `/v1/chat/completions` and `/v1/models`.

A call that names a conversation adds one message to it; history is the gateway's. A call that names
none is a conversation of its own, with the messages it brought as context.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Final

import msgspec
from aiohttp import web

from perdure.domain.commands import is_beside
from perdure.domain.errors import Rejected
from perdure.domain.events import Attachment, Usage
from perdure.domain.outcomes import Outcome
from perdure.domain.updates import Accepted, Update
from perdure.ports.gateway import Ended, Grown
from perdure.ports.principals import Principal
from perdure.web import chores
from perdure.web.access import PRINCIPAL
from perdure.web.answers import body_of, json_response, problem
from perdure.web.events import KEEP_ALIVE, SSE_HEADERS
from perdure.web.native import conversation_name, external_id, http_address
from perdure.web.openai_wire import Asked, Completion, CompletionIn, read
from perdure.web.services import Services

HEADER: Final = "X-Perdure-Conversation"
_FAILURES: Final = {
    Outcome.FAILED: (502, "provider_failed", False),
    Outcome.REFUSED: (403, "refused", False),
    Outcome.INTERRUPTED: (503, "interrupted", True),
    Outcome.SUSPENDED: (503, "suspended", True),
}
_encoder = msgspec.json.Encoder()


class OpenAiApi:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/chat/completions", self.complete),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{id}", self.model),
        ]

    async def models(self, request: web.Request) -> web.Response:
        data = [self._model(agent.name) for agent in self._services.control.agents()]
        return json_response({"object": "list", "data": data})

    async def model(self, request: web.Request) -> web.Response:
        name = self._services.control.resolve_agent(request.match_info["id"])
        return json_response(self._model(name))

    def _model(self, name: str) -> dict[str, object]:
        created = self._services.info.started_at // 1000
        return {"id": name, "object": "model", "created": created, "owned_by": "perdure"}

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await body_of(request, CompletionIn)
        conversation = self._conversation(request, body)
        asked = read(body, has_conversation=conversation is not None)
        agent = self._services.control.resolve_agent(body.model)
        if chores.is_chore(asked.text):
            text = chores.answer(asked.text)
            return await self._say(request, body, "chatcmpl-chore", text, agent, {})
        if body.tools and conversation is not None:
            raise Rejected(
                "`tools` are taken only by calls without a conversation; in a conversation the "
                "agent has its own",
                code="unsupported",
            )
        update = await self._update(request, body, asked, agent, conversation)
        accepted = await self._services.door.accept(update)
        if accepted.command and (accepted.turn is None or is_beside(accepted.command)):
            name = f"chatcmpl-{accepted.message}"
            headers: dict[str, str] = {"X-Perdure-Session": accepted.session}
            return await self._say(request, body, name, accepted.reply, agent, headers)
        watching = self._services.watchers.turn(accepted, is_fresh=not accepted.is_duplicate)
        answer = Answer(
            accepted,
            Completion(
                id=f"chatcmpl-{accepted.turn}",
                created=self._services.clock.now_ms() // 1000,
                model=agent,
            ),
        )
        async with aclosing(watching) as growing:
            if body.stream:
                wants_usage = bool(body.stream_options and body.stream_options.include_usage)
                return await answer.stream(request, growing, wants_usage=wants_usage)
            return await answer.whole(growing)

    def _conversation(self, request: web.Request, body: CompletionIn) -> str | None:
        named = request.headers.get(HEADER)
        if named is None and body.metadata is not None:
            given = body.metadata.get("conversation")
            if given is not None and not isinstance(given, str):
                raise Rejected("`metadata.conversation` is a name", code="invalid_name")
            named = given
        return None if named is None else conversation_name(named)

    async def _update(
        self,
        request: web.Request,
        body: CompletionIn,
        asked: Asked,
        agent: str,
        conversation: str | None,
    ) -> Update:
        principal = request[PRINCIPAL]
        unique = self._services.entropy.random_bytes(16).hex()
        key = request.headers.get("Idempotency-Key")
        place = conversation or f"call-{unique}"
        return Update(
            address=http_address(principal, place),
            external_id=external_id(conversation or "", key or unique),
            kind="call",
            busy=self._services.busy,
            principal=principal.id,
            text=asked.text,
            attachments=await self._attachments(asked, principal),
            agent=agent if body.model else "",
            instructions=asked.instructions,
            context=asked.context,
            tools=_encoder.encode(body.tools).decode() if body.tools else "",
            is_listed=conversation is not None,
        )

    async def _attachments(self, asked: Asked, principal: Principal) -> tuple[Attachment, ...]:
        stored = [
            await self._services.media.put(
                picture.data, mime=picture.mime, name="", principal=principal.id
            )
            for picture in asked.pictures
        ]
        return (
            *(Attachment(media=media.id, mime=media.mime, name=media.name) for media in stored),
            *(Attachment(url=url) for url in asked.urls),
        )

    async def _say(
        self,
        request: web.Request,
        body: CompletionIn,
        name: str,
        text: str,
        agent: str,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        now_s = self._services.clock.now_ms() // 1000
        completion = Completion(id=name, created=now_s, model=agent)
        if not body.stream:
            return json_response(completion.whole(text, "stop", (), Usage()), headers=headers)
        response = web.StreamResponse(headers={**SSE_HEADERS, **headers})
        await response.prepare(request)
        await response.write(_data(completion.chunk({"role": "assistant", "content": text})))
        await response.write(_data(completion.chunk({}, "stop")))
        await response.write(b"data: [DONE]\n\n")
        return response


class Answer:
    """One turn's reply in OpenAI's shape. The turn goes on whether or not anyone listens."""

    def __init__(self, accepted: Accepted, completion: Completion) -> None:
        self._completion = completion
        self._headers = {
            "X-Perdure-Session": accepted.session,
            "X-Perdure-Turn": accepted.turn or "",
        }

    async def whole(self, growing: AsyncIterator[Grown]) -> web.Response:
        texts: list[str] = []
        async for grown in growing:
            texts.append(grown.text)
            ended = grown.ended
            if ended is None:
                continue
            if ended.outcome in _FAILURES:
                return self._failed(ended)
            headers = {**self._headers, **_outcome_header(ended)}
            text = "".join(texts)
            body = self._completion.whole(text, _finish(ended), ended.calls, ended.usage)
            return json_response(body, headers=headers)
        raise AssertionError("a turn's stream ends with its end")

    def _failed(self, ended: Ended) -> web.Response:
        status, code, retryable = _FAILURES[ended.outcome]
        if ended.reason == "budget":
            status = 429
        response = problem(
            status, code, _words(ended), retryable=retryable, kind=ended.reason or code
        )
        response.headers.update(self._headers)
        return response

    async def stream(
        self, request: web.Request, growing: AsyncIterator[Grown], *, wants_usage: bool
    ) -> web.StreamResponse:
        """Headers wait for the first text or the end, so that an early failure has its status."""
        response: web.StreamResponse | None = None
        async for grown in growing:
            chunk = self._chunk(grown, wants_usage=wants_usage)
            if response is None:
                if not grown.text and grown.ended and grown.ended.outcome in _FAILURES:
                    return self._failed(grown.ended)
                response = await self._begin(request, grown)
                chunk = self._first + chunk
            # What is there at one time leaves at one time: each write is a packet.
            write = response.write_eof if grown.ended else response.write
            with suppress(ConnectionResetError):  # the turn goes on without its listener
                await write(chunk)
        assert response is not None
        return response

    def _chunk(self, grown: Grown, *, wants_usage: bool) -> bytes:
        text = _data(self._completion.chunk({"content": grown.text})) if grown.text else b""
        if grown.ended:
            return text + self._ending(grown.ended, wants_usage=wants_usage)
        return text or KEEP_ALIVE

    async def _begin(self, request: web.Request, grown: Grown) -> web.StreamResponse:
        # With text the headers are those of an answer under way, however soon its end came.
        more = _outcome_header(grown.ended) if grown.ended and not grown.text else {}
        response = _Stream(headers={**SSE_HEADERS, **self._headers, **more})
        await response.prepare(request)
        return response

    @property
    def _first(self) -> bytes:
        return _data(self._completion.chunk({"role": "assistant", "content": ""}))

    def _ending(self, ended: Ended, *, wants_usage: bool) -> bytes:
        if ended.outcome in _FAILURES:
            _, code, retryable = _FAILURES[ended.outcome]
            error = {"code": code, "message": _words(ended), "retryable": retryable}
            return _data({"error": {**error, "type": ended.reason, "param": None}})
        completion = self._completion
        chunks = [completion.calls_chunk(ended.calls)] if ended.calls else []
        chunks.append(completion.chunk({}, _finish(ended)))
        if wants_usage:
            chunks.append(completion.usage_chunk(ended.usage))
        return b"".join(_data(chunk) for chunk in chunks) + b"data: [DONE]\n\n"


class _Stream(web.StreamResponse):
    """Its headers leave with its first chunk; alone they would be one more packet."""

    _send_headers_immediately = False


def _data(body: object) -> bytes:
    return b"data: " + _encoder.encode(body) + b"\n\n"


def _finish(ended: Ended) -> str:
    return ended.reason if ended.outcome is Outcome.DONE else "stop"


def _outcome_header(ended: Ended) -> dict[str, str]:
    return {} if ended.outcome is Outcome.DONE else {"X-Perdure-Outcome": ended.outcome}


def _words(ended: Ended) -> str:
    return ended.detail or f"the turn ended as {ended.outcome} ({ended.reason})"
