"""Serves OpenAI's Responses API: `/v1/responses`.

A response is a turn, and its id is derived from the turn's id. So nothing about responses is
stored: the id leads to the turn, its session and its conversation, also after a restart. Continuing
a response of a named conversation adds a message to that conversation. A response of a call without
a conversation is continued by another such call, which brings everything said so far as context. So
one response can be continued several times, in different ways.
"""

import re
from base64 import b64encode
from contextlib import aclosing
from typing import Final, NamedTuple

import msgspec
from aiohttp import web

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.attachments import as_fetched, places_of
from perdure.domain.journal.events import Attachment, Recorded, TurnQueued
from perdure.domain.journal.records import TurnView
from perdure.domain.journal.transcript import reply_text
from perdure.domain.reading.kinds import HEAD_BYTES, kind_of
from perdure.domain.turn.turn import State
from perdure.ports.gateway import Ended
from perdure.ports.people.principals import Principal
from perdure.ports.records.history import Explanation, Snapshot
from perdure.web.access import PRINCIPAL
from perdure.web.audiences import audience_of
from perdure.web.http.answers import body_of, json_response
from perdure.web.long_reads import one_of_few
from perdure.web.openai.calls import Calls, OpenAiCall, is_answered, named_conversation
from perdure.web.openai.completions_wire import read_completion
from perdure.web.openai.replies import calls_of, failure_of, headers_of, heard, outcome_header
from perdure.web.openai.responses_events import IN_PROGRESS, Events, Head
from perdure.web.openai.responses_wire import (
    Json,
    ResponseIn,
    exchange,
    messages,
    response_options,
    response_tools,
)
from perdure.web.services import Services

_RESPONSE: Final = "resp_"
_TURN: Final = "trn_"
_SESSION: Final = "ses_"
_MESSAGE: Final = "msg_"
_OF_TURN: Final = re.compile(r"resp_([0-9a-z]{26})")
_OF_COMMAND: Final = re.compile(r"resp_([0-9a-z]{26})_[0-9a-z]{26}")


class _ContinuedCall(NamedTuple):
    """Holds what a call continues: a conversation by its name, or the messages of a call without
    one."""

    conversation: str | None
    messages: list[Json]


class _FoundResponse(NamedTuple):
    """Holds everything stored about the turn behind a response."""

    explanation: Explanation
    exchange: list[Recorded]
    turn: TurnView
    queued: TurnQueued
    snapshot: Snapshot
    accepted: Accepted


class ResponsesApi:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._calls = Calls(services)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/responses", self.create),
            web.get("/v1/responses/{id}", one_of_few(self.retrieve)),
        ]

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Answer a new response."""
        body = await body_of(request, ResponseIn)
        before = await self._before(request, body)
        agent = self._services.control.resolve_agent(body.model)
        asked = read_completion(
            [*before.messages, *messages(body)], has_conversation=before.conversation is not None
        )
        if len(asked.context) > self._services.body_bytes_max:
            raise Rejected(
                "what was said before is over the limit set by [limits] body_bytes; go on in a "
                "conversation with a name, whose history is the gateway's",
                code="body_too_large",
            )
        call = OpenAiCall(
            asked=asked,
            agent=agent if body.model else "",
            conversation=before.conversation,
            tools=response_tools(body.tools),
            options=response_options(body),
            is_streamed=bool(body.stream),
        )

        def new_form(accepted: Accepted | None, created: int) -> Events:
            head = Head(
                id=_response_id(accepted),
                created=created,
                model=agent,
                instructions=asked.instructions,
                tools=call.tools,
                previous=body.previous_response_id,
                metadata=body.metadata,
            )
            return Events(head)

        return await self._calls.answer(request, call, new_form)

    async def _before(self, request: web.Request, body: ResponseIn) -> _ContinuedCall:
        """Return what a call continues. Raises `Rejected` if it names two different
        conversations."""
        named = named_conversation(request, body.metadata)
        if not body.previous_response_id:
            return _ContinuedCall(named, [])
        before = await self._continued(body.previous_response_id, request[PRINCIPAL])
        if named not in (None, before.conversation):
            raise Rejected(
                "`previous_response_id` is not of the conversation that the call names; leave "
                "one of the two out",
                code="other_conversation",
            )
        return before

    async def _continued(self, response: str, principal: Principal) -> _ContinuedCall:
        """Return what is continued by a call that names an earlier response."""
        commanded = _OF_COMMAND.fullmatch(response)
        if commanded is not None:
            return _ContinuedCall(await self._name(response, commanded[1], principal), [])
        found = await self._find(response, principal)
        # The external id of a call without a conversation ends with an empty name; see
        # `external_id`.
        if any(update.external_id.endswith("\n") for update in found.explanation.updates):
            return _ContinuedCall(None, await self._said(found))
        return _ContinuedCall(found.explanation.conversation, [])

    async def _name(self, response: str, session: str, principal: Principal) -> str:
        """Return the conversation of a command's answer. Raises `NotFound` if it is not the
        caller's."""
        try:
            view = await self._services.archive.session(
                SessionId(_SESSION + session), principal=principal.id
            )
            await self._services.conversations.find(view.conversation, principal=principal.id)
        except NotFound:
            raise _unknown(response) from None
        return view.conversation

    async def _said(self, found: _FoundResponse) -> list[Json]:
        """Return all messages up to the end of a response. Waits if it is still growing."""
        queued = found.queued
        text, ended = await self._heard(found)
        earlier: list[Json] = msgspec.json.decode(queued.context) if queued.context else []
        attachments = as_fetched(queued, places_of(found.exchange))
        pictures = [url for each in attachments if (url := await self._url(each))]
        return [*earlier, *exchange(queued.text, pictures, text, calls_of(ended))]

    async def _heard(self, found: _FoundResponse) -> tuple[str, Ended]:
        watching = self._services.watchers.turn(found.accepted, is_fresh=False)
        async with aclosing(watching) as growing:
            return await heard(growing)

    async def _url(self, attachment: Attachment) -> str:
        """Return a link to an attachment; a stored file becomes a data URL."""
        if attachment.media is None:
            return attachment.url or ""
        media, mime = self._services.media, attachment.mime
        if attachment.shown:
            data = await media.read_kept(attachment.shown)
            mime = kind_of(data[:HEAD_BYTES])
        else:
            data = await media.read(attachment.media)
        return f"data:{mime};base64,{b64encode(data).decode()}"

    async def _find(self, response: str, principal: Principal) -> _FoundResponse:
        """Return a response of the caller's own. Operators cannot find those of others here,
        because a continuation is written to the caller's own conversations."""
        matched = _OF_TURN.fullmatch(response)
        if matched is None:
            raise _unknown(response)
        turn = TurnId(_TURN + matched[1])
        try:
            explanation = await self._services.diagnostics.explain(turn, principal=principal.id)
            found = explanation.turn
            assert found is not None, "it was asked for by its turn"
            name = explanation.conversation
            snapshot = await self._services.conversations.find(name, principal=principal.id)
        except NotFound:
            raise _unknown(response) from None
        accepted = Accepted(
            conversation=snapshot.view.id,
            session=found.session,
            turn=turn,
            message=found.message,
        )
        asked = await self._services.conversations.exchange(turn)
        queued = next(each.event for each in asked if isinstance(each.event, TurnQueued))
        return _FoundResponse(explanation, asked, found, queued, snapshot, accepted)

    async def retrieve(self, request: web.Request) -> web.Response:
        """Return a response, finished or not."""
        if request.query.get("stream") == "true":
            raise Rejected(
                "a response is streamed by its call alone; repeat that with its Idempotency-Key",
                code="unsupported",
            )
        response = request.match_info["id"]
        found = await self._find(response, request[PRINCIPAL])
        queued, turn = found.queued, found.turn
        head = Head(
            id=_response_id(found.accepted),
            created=turn.queued_at // 1000,
            model=queued.agent or self._services.control.resolve_agent(""),
            instructions=queued.instructions,
            tools=queued.tools,
        )
        form, headers = Events(head), headers_of(found.accepted)
        if turn.outcome is None:
            status = "queued" if turn.state == State.QUEUED else IN_PROGRESS
            return json_response(form.under_way(_so_far(found), status=status), headers=headers)
        text, ended = await self._heard(found)
        failure = failure_of(ended, audience_of(request[PRINCIPAL]), found.accepted.turn)
        body = form.failed(text, ended, failure) if failure else form.whole(text, ended)
        return json_response(body, headers={**headers, **outcome_header(ended)})


def _unknown(response: str) -> NotFound:
    return NotFound(f"there is no response {response}; give the id of one that you were given")


def _response_id(accepted: Accepted | None) -> str:
    """Return the id of a response. A command's answer is no turn; its id holds its session, so that
    it can be continued like one."""
    if accepted is None:
        return f"{_RESPONSE}chore"
    if is_answered(accepted):
        session = accepted.session.removeprefix(_SESSION)
        return f"{_RESPONSE}{session}_{accepted.message.removeprefix(_MESSAGE)}"
    assert accepted.turn is not None
    return _RESPONSE + accepted.turn.removeprefix(_TURN)


def _so_far(found: _FoundResponse) -> str:
    """Return the text that watchers have been told of a turn that has not ended."""
    running = found.snapshot.running
    texts = [reply_text(found.exchange)]
    if running is not None and running.turn == found.accepted.turn:
        texts.append(running.text)
    return "\n\n".join(text for text in texts if text.strip())
