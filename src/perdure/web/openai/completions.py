"""Serves OpenAI's chat completions and models: `/v1/chat/completions` and `/v1/models`."""

from typing import Final

from aiohttp import web

from perdure.domain.inbound.updates import Accepted
from perdure.domain.outcomes import Outcome
from perdure.ports.gateway import Ended
from perdure.web.http.answers import body_of, json_response
from perdure.web.openai.calls import Calls, OpenAiCall, is_answered, named_conversation
from perdure.web.openai.completions_wire import (
    Completion,
    CompletionIn,
    completion_options,
    completion_tools,
    read_completion,
)
from perdure.web.openai.replies import CallFailure, calls_of, encoder
from perdure.web.services import Services

_DONE: Final = b"data: [DONE]\n\n"


class OpenAiApi:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._calls = Calls(services)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/chat/completions", self.complete),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{id}", self.model),
        ]

    async def models(self, request: web.Request) -> web.Response:
        """List the agents as models."""
        data = [self._model(agent.name) for agent in self._services.control.agents()]
        return json_response({"object": "list", "data": data})

    async def model(self, request: web.Request) -> web.Response:
        """Return one agent as a model."""
        name = self._services.control.resolve_agent(request.match_info["id"])
        return json_response(self._model(name))

    def _model(self, name: str) -> dict[str, object]:
        created = self._services.info.started_at // 1000
        return {"id": name, "object": "model", "created": created, "owned_by": "perdure"}

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat completion."""
        body = await body_of(request, CompletionIn)
        conversation = named_conversation(request, body.metadata)
        agent = self._services.control.resolve_agent(body.model)
        call = OpenAiCall(
            asked=read_completion(body.messages, has_conversation=conversation is not None),
            agent=agent if body.model else "",
            conversation=conversation,
            tools=completion_tools(body.tools),
            options=completion_options(body),
            is_streamed=bool(body.stream),
        )
        wants_usage = bool(body.stream_options and body.stream_options.include_usage)

        def new_form(accepted: Accepted | None, created: int) -> Chunks:
            completion = Completion(id=_name(accepted), created=created, model=agent)
            return Chunks(completion, wants_usage=wants_usage)

        return await self._calls.answer(request, call, new_form)


def _name(accepted: Accepted | None) -> str:
    if accepted is None:
        return "chatcmpl-chore"
    return f"chatcmpl-{accepted.message if is_answered(accepted) else accepted.turn}"


class Chunks:
    """Writes a reply in the format of chat completions."""

    def __init__(self, completion: Completion, *, wants_usage: bool) -> None:
        self._completion = completion
        self._wants_usage = wants_usage

    def whole(self, text: str, ended: Ended) -> object:
        return self._completion.whole(text, _finish(ended), calls_of(ended), ended.usage)

    def begin(self) -> bytes:
        return _data(self._completion.chunk({"role": "assistant", "content": ""}))

    def grow(self, text: str) -> bytes:
        return _data(self._completion.chunk({"content": text}))

    def end(self, ended: Ended) -> bytes:
        completion = self._completion
        calls = calls_of(ended)
        chunks = [completion.calls_chunk(calls)] if calls else []
        chunks.append(completion.chunk({}, _finish(ended)))
        if self._wants_usage:
            chunks.append(completion.usage_chunk(ended.usage))
        return b"".join(_data(chunk) for chunk in chunks) + _DONE

    def fail(self, ended: Ended, failure: CallFailure) -> bytes:
        return _data({"error": failure.body()})


def _data(body: object) -> bytes:
    return b"data: " + encoder.encode(body) + b"\n\n"


def _finish(ended: Ended) -> str:
    return ended.reason if ended.outcome is Outcome.DONE else "stop"
