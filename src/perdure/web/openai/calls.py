"""Answers a call under `/v1`, from either of OpenAI's APIs.

A call that names a conversation adds one message to it, and the gateway supplies the history. A
call that names none becomes a conversation of its own, with the messages it brought as context.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec
from aiohttp import web

from perdure.domain.errors import Rejected
from perdure.domain.inbound.commands import is_beside
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Attachment
from perdure.domain.journal.model.options import Options
from perdure.domain.journal.model.usage import Usage
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.reading.pictures import needs_fitting
from perdure.ports.gateway import Ended, Grown
from perdure.ports.people.principals import Principal
from perdure.web.access import PRINCIPAL
from perdure.web.api.native import conversation_name, external_id, http_address
from perdure.web.audiences import audience_of
from perdure.web.http.answers import IDEMPOTENCY_KEY
from perdure.web.openai import frontend_tasks
from perdure.web.openai.completions_wire import CompletionRequest
from perdure.web.openai.replies import CallReply, ReplyForm, headers_of
from perdure.web.services import Services

HEADER: Final = "X-Perdure-Conversation"


class OpenAiCall(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a request asks for. `agent` is empty if it names none, and `conversation` is None
    if the call is a conversation of its own. `tools` is JSON in the format of chat completions."""

    asked: CompletionRequest
    agent: str
    conversation: str | None
    tools: str
    options: Options
    is_streamed: bool


# Makes the form of a reply from what was accepted (None for a front end's task) and the time in
# seconds.
NewForm = Callable[[Accepted | None, int], ReplyForm]


def is_answered(accepted: Accepted) -> bool:
    """Tell whether the answer exists already: the reply to a command, and not the text of a
    turn."""
    return bool(accepted.command) and (accepted.turn is None or is_beside(accepted.command))


def named_conversation(request: web.Request, metadata: dict[str, Any] | None) -> str | None:
    """Return the conversation that a request names, or None. The `user` field is never used for
    this, because clients set it for other reasons."""
    named = request.headers.get(HEADER)
    if named is None and metadata is not None:
        given = metadata.get("conversation")
        if given is not None and not isinstance(given, str):
            raise Rejected("`metadata.conversation` is a name", code="invalid_name")
        named = given
    return None if named is None else conversation_name(named)


class Calls:
    """Accepts calls and answers them, whole or as a stream."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(
        self, request: web.Request, call: OpenAiCall, new_form: NewForm
    ) -> web.StreamResponse:
        """Accept a call and reply with its turn, a command's reply, or a front end's task."""
        audience = audience_of(request[PRINCIPAL])
        done = None if call.asked.results else frontend_tasks.answer(call.asked.text)
        if done is not None:
            form = new_form(None, self._services.clock.now_ms() // 1000)
            return await _told(
                request, call, CallReply(form, {}, has_key=False, audience=audience), _only(done)
            )
        accepted = await self._services.door.accept(await self._update(request, call))
        if is_answered(accepted):
            form = new_form(accepted, self._services.clock.now_ms() // 1000)
            headers: dict[str, str] = {"X-Perdure-Session": accepted.session}
            has_key = _key(request) is not None
            answer = CallReply(form, headers, has_key=has_key, audience=audience)
            return await _told(request, call, answer, _only(accepted.reply))
        return await self._turn(request, call, accepted, new_form)

    async def _turn(
        self, request: web.Request, call: OpenAiCall, accepted: Accepted, new_form: NewForm
    ) -> web.StreamResponse:
        form = new_form(accepted, await self._asked_at(accepted, request[PRINCIPAL]) // 1000)
        has_key, audience = _key(request) is not None, audience_of(request[PRINCIPAL])
        headers = headers_of(accepted)
        answer = CallReply(
            form,
            headers,
            has_key=has_key,
            audience=audience,
            turn=accepted.turn,
            wait_s=self._services.call_wait_s,
        )
        watching = self._services.watchers.turn(accepted, is_fresh=not accepted.is_duplicate)
        async with aclosing(watching) as growing:
            return await _told(request, call, answer, growing)

    async def _asked_at(self, accepted: Accepted, principal: Principal) -> int:
        """Return when the call was first accepted, in milliseconds; a repeat gets the same time. A
        call that was accepted just now is not read again, because its turn must be watched without
        a pause."""
        if accepted.recorded:
            return accepted.recorded[0].at
        assert accepted.turn is not None
        turn = await self._services.archive.turn(accepted.turn, principal=principal.scope)
        return turn.queued_at

    async def _update(self, request: web.Request, call: OpenAiCall) -> Update:
        principal, asked = request[PRINCIPAL], call.asked
        unique = self._services.entropy.random_bytes(16).hex()
        return Update(
            address=http_address(principal, call.conversation or f"call-{unique}"),
            external_id=external_id(call.conversation or "", _key(request) or unique),
            kind=UpdateKind.CALL,
            busy=self._services.busy,
            principal=principal.id,
            caller=principal.name,
            text=asked.text,
            attachments=await self._attachments(asked, principal),
            agent=call.agent,
            instructions=asked.instructions,
            context=asked.context,
            tools=call.tools,
            options=call.options,
            is_listed=call.conversation is not None,
            results=asked.results,
        )

    async def _attachments(
        self, asked: CompletionRequest, principal: Principal
    ) -> tuple[Attachment, ...]:
        stored = [
            await self._services.media.put(
                picture.data, mime=picture.mime, name="", principal=principal.id
            )
            for picture in asked.pictures
        ]
        return (
            *(
                Attachment(
                    media=media.id,
                    mime=media.mime,
                    name=media.name,
                    is_unfit=needs_fitting(picture.data, media.mime),
                )
                for media, picture in zip(stored, asked.pictures, strict=True)
            ),
            *(Attachment(url=url) for url in asked.urls),
        )


def _key(request: web.Request) -> str | None:
    """Return the key by which a repeat of the call is recognized, or None."""
    return request.headers.get(IDEMPOTENCY_KEY) or None


async def _told(
    request: web.Request, call: OpenAiCall, answer: CallReply, growing: AsyncIterator[Grown]
) -> web.StreamResponse:
    if call.is_streamed:
        return await answer.stream(request, growing)
    return await answer.whole(growing)


async def _only(text: str) -> AsyncIterator[Grown]:
    """Yield a text of the gateway's own, as the reply of a turn that has ended."""
    over = Ended(outcome=Outcome.DONE, reason=StopReason.STOP, detail="", usage=Usage())
    yield Grown(text, over)
