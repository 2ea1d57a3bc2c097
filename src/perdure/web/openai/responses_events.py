"""Writes the answers of the Responses API: whole responses, and the events by which they grow.

A response holds items: one message with all the text, and one item for each call of the caller's
functions. Ids are derived from the turn's and its calls' ids, so a repeat shows the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from perdure.domain.journal.events import ToolCall
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import Outcome, StopReason
from perdure.ports.gateway import Ended
from perdure.web.openai.replies import CallFailure, calls_of, encoder

Json = dict[str, Any]
COMPLETED: Final = "completed"
INCOMPLETE: Final = "incomplete"
IN_PROGRESS: Final = "in_progress"
# Reasons for which the API calls a response incomplete.
_CUT: Final = {
    StopReason.LENGTH: "max_output_tokens",
    StopReason.CONTENT_FILTER: "content_filter",
}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what stays the same from a response's first event to its last. `tools` is JSON in the
    format of chat completions."""

    id: str
    created: int
    model: str
    instructions: str = ""
    tools: str = ""
    previous: str | None = None
    metadata: Json | None = None


@dataclass(slots=True)
class Events:
    """Writes a reply in the format of the Responses API."""

    head: Head
    _number: int = 0
    _texts: list[str] = field(default_factory=list)

    def whole(self, text: str, ended: Ended) -> Json:
        status = _status(ended)
        calls = calls_of(ended)
        said = [self._message(text, status)] if text or not calls else []
        return self._response(
            status,
            [*said, *(_call_item(call) for call in calls)],
            usage=_usage(ended.usage),
            incomplete_details=_incomplete(ended),
        )

    def under_way(self, text: str, *, status: str) -> Json:
        """Return a response that has not ended."""
        return self._response(status, [self._message(text, IN_PROGRESS)] if text else [])

    def failed(self, text: str, ended: Ended, failure: CallFailure) -> Json:
        """Return a response that has failed, with the text up to there."""
        code = "rate_limit_exceeded" if failure.status == 429 else "server_error"
        return self._response(
            "failed",
            [self._message(text, INCOMPLETE)] if text else [],
            usage=_usage(ended.usage),
            error={"code": code, "message": failure.message},
        )

    def begin(self) -> bytes:
        response = self.under_way("", status=IN_PROGRESS)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def grow(self, text: str) -> bytes:
        begun = b"" if self._texts else self._begin_message()
        self._texts.append(text)
        return begun + self._text_event("delta", delta=text, logprobs=[])

    def end(self, ended: Ended) -> bytes:
        calls, text = calls_of(ended), "".join(self._texts)
        said = self._end_message(text, _status(ended)) if text or not calls else b""
        first = int(bool(said))
        asked = [self._call(call, first + n) for n, call in enumerate(calls)]
        response = self.whole(text, ended)
        return b"".join(
            [said, *asked, self._event(f"response.{_status(ended)}", response=response)]
        )

    def fail(self, ended: Ended, failure: CallFailure) -> bytes:
        """Return the events that end a stream with an error. It is said twice: clients that read
        events see the response fail, and clients that only collect text are stopped by the error
        event."""
        text = "".join(self._texts)
        said = self._end_message(text, INCOMPLETE) if text else b""
        response = self.failed(text, ended, failure)
        error = failure.body()
        told = {"code": error["code"], "message": error["message"], "param": None, "error": error}
        return (
            said + self._event("response.failed", response=response) + self._event("error", **told)
        )

    def _begin_message(self) -> bytes:
        item = {**self._message("", IN_PROGRESS), "content": []}
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._part_event("added", "")

    def _end_message(self, text: str, status: str) -> bytes:
        begun = b"" if self._texts else self._begin_message()
        item = self._message(text, status)
        return b"".join(
            [
                begun,
                self._text_event("done", text=text, logprobs=[]),
                self._part_event("done", text),
                self._event("response.output_item.done", output_index=0, item=item),
            ]
        )

    def _text_event(self, name: str, **more: object) -> bytes:
        return self._event(f"response.output_text.{name}", **self._place, **more)

    def _part_event(self, name: str, text: str) -> bytes:
        return self._event(f"response.content_part.{name}", **self._place, part=_part(text))

    @property
    def _place(self) -> Json:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def _call(self, call: ToolCall, index: int) -> bytes:
        """Return the events of one tool call. Its arguments are complete, because a call is durable
        before anyone is told of it."""
        item = _call_item(call)
        place = {"item_id": item["id"], "output_index": index}
        begun = {**item, "arguments": "", "status": IN_PROGRESS}
        arguments = "response.function_call_arguments"
        return b"".join(
            [
                self._event("response.output_item.added", output_index=index, item=begun),
                self._event(f"{arguments}.delta", **place, delta=call.arguments),
                self._event(f"{arguments}.done", **place, name=call.name, arguments=call.arguments),
                self._event("response.output_item.done", output_index=index, item=item),
            ]
        )

    def _event(self, kind: str, **more: object) -> bytes:
        body = {"type": kind, "sequence_number": self._number, **more}
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), encoder.encode(body))

    @property
    def _message_id(self) -> str:
        return f"msg_{self.head.id.removeprefix('resp_')}"

    def _message(self, text: str, status: str) -> Json:
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [_part(text)],
        }

    def _response(self, status: str, output: Sequence[Json], **more: object) -> Json:
        head = self.head
        return {
            "id": head.id,
            "object": "response",
            "created_at": head.created,
            "status": status,
            "model": head.model,
            "output": output,
            "instructions": head.instructions or None,
            "previous_response_id": head.previous,
            "metadata": head.metadata or {},
            "tools": _tools(head.tools),
            **_CONSTANT,
            **more,
        }


# Fields that clients expect and that never change here.
_CONSTANT: Final[Json] = {
    "error": None,
    "incomplete_details": None,
    "usage": None,
    "background": False,
    "max_output_tokens": None,
    "parallel_tool_calls": True,
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_p": None,
    "truncation": "disabled",
}


def _status(ended: Ended) -> str:
    is_whole = ended.outcome is Outcome.DONE and ended.reason not in _CUT
    return COMPLETED if is_whole else INCOMPLETE


def _incomplete(ended: Ended) -> Json | None:
    """Return why a response is incomplete, if the API has a word for it. A stopped response says so
    in a header instead."""
    is_cut = ended.outcome is Outcome.DONE and ended.reason in _CUT
    return {"reason": _CUT[StopReason(ended.reason)]} if is_cut else None


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(call: ToolCall) -> Json:
    return {
        "id": f"fc_{call.id.removeprefix('call_')}",
        "type": "function_call",
        "status": COMPLETED,
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


def _tools(tools: str) -> list[Json]:
    given: list[Json] = msgspec.json.decode(tools) if tools else []
    return [
        {"type": "function", "parameters": None, "strict": None, **tool["function"]}
        for tool in given
    ]


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
