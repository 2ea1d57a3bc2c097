"""Asks for what a server without a handshake needs before it runs a call.

Such a server answers a call with its questions and a state of its own, and keeps nothing. The call
is sent again with all answers. What was asked and answered so far is in `InputNeeded.state`, so
that this works on another link too, after a restart.
"""

from typing import Any, Final

import mcp_types as types
import msgspec
from pydantic import ValidationError

from perdure.domain.errors import Permanent, Rejected
from perdure.tools.mcp.link import InputGiven, InputNeeded, Sampler

_ROUNDS_MAX: Final = 10
_QUESTIONS_MAX: Final = 32
_STATE_BYTES_MAX: Final = 200_000


class CallState(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how far a call has come: what the server wants back, what it asks, and the answers so
    far. With `is_visit` it wants nothing back, and asks to look at addresses before it is called
    again."""

    v: int = 1
    server: str | None = None
    asked: dict[str, dict[str, Any]] = {}
    given: dict[str, dict[str, Any]] = {}
    rounds: int = 0
    is_visit: bool = False

    @property
    def open(self) -> str | None:
        """Return the key of the first question without an answer."""
        return next((key for key in self.asked if key not in self.given), None)

    @property
    def responses(self) -> types.InputResponses | None:
        """Return the answers as the package sends them."""
        if not self.given or self.is_visit:
            return None
        return {key: _response(self.asked[key], answer) for key, answer in self.given.items()}

    def with_answer(self, key: str, answer: dict[str, Any]) -> "CallState":
        """Return the state with one more answer."""
        return msgspec.structs.replace(self, given={**self.given, key: answer})


NEW_CALL: Final = CallState()


def asked_for(result: types.InputRequiredResult, before: CallState) -> CallState:
    """Return the state of a call that the server has answered with questions."""
    asked = {
        key: each.model_dump(by_alias=True, mode="json", exclude_none=True)
        for key, each in (result.input_requests or {}).items()
    }
    if before.rounds >= _ROUNDS_MAX or len(asked) > _QUESTIONS_MAX:
        raise Rejected("the server asks again and again; the call was not made")
    return CallState(server=result.request_state, asked=asked, rounds=before.rounds + 1)


def visits_of(error: types.ErrorData) -> CallState:
    """Return the state of a call that the server refuses until addresses were looked at."""
    data = error.data if isinstance(error.data, dict) else {}
    listed = data.get("elicitations")
    asked = {}
    for index, each in enumerate(listed[:_QUESTIONS_MAX] if isinstance(listed, list) else ()):
        try:
            params = types.ElicitRequestURLParams.model_validate(each, by_name=False)
        except ValidationError as problem:
            raise Permanent("the server asks for something that nobody understands") from problem
        request = types.ElicitRequest(params=params)
        asked[f"{index}"] = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    return CallState(asked=asked, is_visit=True)


async def next_question(state: CallState, sampler: Sampler | None) -> CallState | InputNeeded:
    """Answer what needs no person. Returns what the person is asked, or the state with all
    answers."""
    while (key := state.open) is not None:
        request = state.asked[key]
        params = request.get("params") or {}
        match request.get("method"):
            case "elicitation/create":
                return needed_of(params, state=_written(state))
            case "sampling/createMessage":
                if sampler is None:
                    raise Rejected(
                        "the server asks for a model's words, which is not allowed; the call was "
                        "not made"
                    )
                state = state.with_answer(key, await sampler(params))
            case _:
                state = state.with_answer(key, {"roots": []})
    return state


def needed_of(params: dict[str, Any], *, state: str = "") -> InputNeeded:
    """Return what a server asks the person."""
    schema = params.get("requestedSchema")
    return InputNeeded(
        message=str(params.get("message", "")),
        schema="" if schema is None else msgspec.json.encode(schema).decode(),
        url=str(params.get("url", "")),
        state=state,
    )


def is_kept_by_us(state: str) -> bool:
    """Tell whether a state is one of this module, so that the server keeps nothing for it."""
    return state.startswith("{")


def answered(given: InputGiven) -> CallState:
    """Return the state of a call with the person's answer. Raises `Rejected` if it is none."""
    try:
        state = msgspec.json.decode(given.state, type=CallState)
    except msgspec.MsgspecError as error:
        raise Rejected("this answer belongs to no question of a server") from error
    key = state.open
    if key is None:
        raise Rejected("this answer belongs to no question of a server")
    if state.is_visit and given.action != "accept":
        raise Rejected("the person did not look at the address, so the call was not made")
    return state.with_answer(key, result_of(given).model_dump(mode="json", exclude_none=True))


def result_of(given: InputGiven) -> types.ElicitResult:
    """Return a person's answer as the package sends it."""
    is_accepted = given.action == "accept"
    try:
        content = dict(given.content) if is_accepted else None
        return types.ElicitResult(action=given.action, content=content)
    except ValidationError as error:
        raise Rejected("the answer holds more than plain fields") from error


def _response(request: dict[str, Any], answer: dict[str, Any]) -> types.InputResponse:
    kind: type[types.ElicitResult | types.CreateMessageResult | types.ListRootsResult]
    match request.get("method"):
        case "elicitation/create":
            kind = types.ElicitResult
        case "sampling/createMessage":
            kind = types.CreateMessageResult
        case _:
            kind = types.ListRootsResult
    return kind.model_validate(answer)


def _written(state: CallState) -> str:
    written = msgspec.json.encode(state)
    if len(written) > _STATE_BYTES_MAX:
        raise Permanent("the server's questions are too long to be kept; the call was not made")
    return written.decode()
