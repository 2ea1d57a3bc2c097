"""Answers what a server with a handshake asks in the middle of a call."""

from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext
from pydantic import ValidationError

from perdure.domain.errors import PerdureError
from perdure.tools.mcp.link import LinkTerms
from perdure.tools.mcp.wire.questions import needed_of, result_of
from perdure.tools.mcp.wire.running import RunningCalls


class ServerQuestions:
    """Finds out whom a server means, and asks."""

    def __init__(self, calls: RunningCalls, terms: LinkTerms) -> None:
        self._calls = calls
        self._terms = terms

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the person whose call it is."""
        running = self._calls.who_is_meant()
        if running is None:
            self._terms.log.note(
                "a question to a person was declined: it belongs to no call, or to one of several"
            )
            return types.ElicitResult(action="decline")
        given = await running.ask(needed_of(_plain(params)))
        try:
            return result_of(given)
        except PerdureError as error:
            return types.ErrorData(code=types.INTERNAL_ERROR, message=error.message)

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Ask the model of the agent whose call it is."""
        running = self._calls.who_is_meant()
        if running is None or running.sampler is None:
            self._terms.log.note(
                "a question to a model was declined: it belongs to no call, or to one of several"
            )
            return types.ErrorData(
                code=types.INVALID_REQUEST,
                message="Sampling is possible only while exactly one call is known to need it",
            )
        try:
            given = await running.sampler(_plain(params))
            return types.CreateMessageResult.model_validate(given)
        except PerdureError as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=error.message)
        except ValidationError:
            return types.ErrorData(code=types.INTERNAL_ERROR, message="The model did not answer")


def _plain(params: types.ElicitRequestParams | types.CreateMessageRequestParams) -> dict[str, Any]:
    return params.model_dump(by_alias=True, mode="json", exclude_none=True)
