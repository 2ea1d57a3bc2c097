"""Declares endpoints: what a Perdure can be asked. Each endpoint is one function, for every caller.

`web/routes.py` serves endpoints over HTTP, `app/operate/client.py` asks a running node for them,
and where no node runs, `app/operate/offline.py` calls them on the opened store.

The function's signature defines its HTTP request. Positional parameters are taken from the path, in
that order. A keyword called `body` is the request's body, and every other keyword is a query
parameter. Nothing here may import the HTTP server, because the command line would load it too.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, get_type_hints

import msgspec

from perdure.domain.address import AddressForm
from perdure.domain.errors import Rejected
from perdure.domain.schedule.jobs import NO_TERMS, ScheduleTerms
from perdure.domain.text import storable
from perdure.domain.turn.rebuilding import StoredRequest
from perdure.ports.delivery.parked import Parked
from perdure.ports.gateway import Orders, Overseer
from perdure.ports.people.access import AccessRecords
from perdure.ports.people.places import Places
from perdure.ports.people.principals import Principal, Principals
from perdure.ports.records.audit import Audit
from perdure.ports.records.history import Archive, Conversations, Diagnostics, Page
from perdure.ports.schedule.schedule import Fired, Schedule
from perdure.ports.system.entropy import Entropy
from perdure.ports.turns.questions import Effects, Grants, Questions
from perdure.ports.turns.wakes import Wakes

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
S_contra = TypeVar("S_contra", bound="OperatorServices", contravariant=True)
PageLimit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
BODY: Final = "body"
# How long a client waits for an answer that is not said to take longer.
ANSWER_S: Final = 60.0
# Every list takes its `next` back under this name. Some lists also have an older name for it.
CURSOR: Final = "cursor"
OLDER_CURSORS: Final = frozenset({"after", "before"})
# The value of a query parameter that turns something on.
WANTED: Final = "true"
# A moment in milliseconds. A number with more digits than the databases hold was never handed out.
_MOMENT: Final = re.compile(r"[0-9]{1,18}")


async def _nothing_revoked() -> None:
    """Do nothing: without a running node, no connection can be using a revoked token."""


async def _nothing_encoded(asked: StoredRequest) -> bytes | None:
    """Return None: without a running node, no agent can encode a request."""


def _nothing_happens(fired: Fired) -> None:
    """Do nothing: without a running node, the next start finds what was queued."""


class OperatorServices(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what endpoints work with, whether a node runs or not. `end_revoked` cuts the
    connections of revoked tokens. `encoded_again` returns the messages of a request as its agent's
    wire encodes them, or None if that agent does not exist. `schedule_terms` says on what terms
    people have jobs, `now_ms` what time it is, and `happened` tells the node that a job has run."""

    conversations: Conversations
    archive: Archive
    diagnostics: Diagnostics
    principals: Principals
    access: AccessRecords
    places: Places
    parked: Parked
    questions: Questions
    grants: Grants
    effects: Effects
    schedule: Schedule
    audit: Audit
    door: Orders
    control: Overseer
    wakes: Wakes
    entropy: Entropy
    forms: Mapping[str, AddressForm] = MappingProxyType({})
    end_revoked: Callable[[], Awaitable[None]] = _nothing_revoked
    schedule_terms: Callable[[], ScheduleTerms] = lambda: NO_TERMS
    now_ms: Callable[[], int]
    happened: Callable[[Fired], None] = _nothing_happens
    encoded_again: Callable[[StoredRequest], Awaitable[bytes | None]] = _nothing_encoded


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[S_contra, P, T]):
    """Names a function and its place in the HTTP API. `is_long` means that the answer may be large,
    so each principal gets only a few of them at a time. `within_s` is how long it may take."""

    answer: Callable[Concatenate[S_contra, Principal, P], Awaitable[T]]
    method: str
    path: str
    summary: str
    status: int = 200
    is_long: bool = False
    is_for_operators: bool = False
    within_s: float = ANSWER_S

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.answer, include_extras=True)

    @property
    def gives(self) -> type[T]:
        """Return the type of the answer."""
        given: type[T] = self._hints["return"]
        return given

    @property
    def takes(self) -> inspect.Parameter | None:
        """Return the parameter that is the request's body, with its type, or None."""
        return next((each for each in self._keywords if each.name == BODY), None)

    @property
    def query(self) -> list[inspect.Parameter]:
        """Return the query parameters, with their types."""
        return [each for each in self._keywords if each.name != BODY]

    @property
    def _keywords(self) -> list[inspect.Parameter]:
        return [
            each.replace(annotation=self._hints[each.name])
            for each in inspect.signature(self.answer).parameters.values()
            if each.kind is inspect.Parameter.KEYWORD_ONLY
        ]


def endpoint(  # noqa: PLR0913 - what is known of an endpoint
    method: str,
    path: str,
    summary: str,
    *,
    status: int = 200,
    is_long: bool = False,
    is_for_operators: bool = False,
    within_s: float = ANSWER_S,
) -> Callable[
    [Callable[Concatenate[S_contra, Principal, P], Awaitable[T]]], Endpoint[S_contra, P, T]
]:
    """Declare a function as an endpoint."""

    def declared(
        answer: Callable[Concatenate[S_contra, Principal, P], Awaitable[T]],
    ) -> Endpoint[S_contra, P, T]:
        return Endpoint(
            answer=answer,
            method=method,
            path=path,
            summary=summary,
            status=status,
            is_long=is_long,
            is_for_operators=is_for_operators,
            within_s=within_s,
        )

    return declared


def require_operator(by: Principal) -> None:
    """Raise `Rejected` if the caller is not an operator."""
    if not by.is_operator:
        raise Rejected("only the operator's token may do this", code="forbidden")


def page_of(cursor: str | None, limit: int) -> Page:
    """Return the page that a list's cursor asks for. Raises `Rejected` for an invalid cursor."""
    if cursor is None:
        return Page(limit=limit)
    at, _, last = cursor.partition(":")
    return Page(after=(moment_of(at), storable(last)), limit=limit)


def moment_of(cursor: str) -> int:
    """Return the number in a cursor. Raises `Rejected` for a text that was never handed out as
    one."""
    if not _MOMENT.fullmatch(cursor):
        raise Rejected("the cursor must be the `next` of an earlier page", code="invalid_query")
    return int(cursor)


def next_of(views: Sequence[V], asked: Page, place: Callable[[V], tuple[int, str]]) -> str | None:
    """Return the cursor of the next page, made from the last view of this one. Returns None if this
    page is not full, because it is the last then."""
    if len(views) < asked.limit:
        return None
    at, last = place(views[-1])
    return f"{at}:{last}"
