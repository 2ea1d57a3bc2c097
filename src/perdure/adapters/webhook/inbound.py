"""Turns a signed request into an arrival. Pure."""

from typing import Final

from perdure.adapters.webhook.manifest import EACH, ONE, Route, sender_of
from perdure.adapters.webhook.template import Payload, filled
from perdure.domain.errors import Rejected
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.text import storable

CONVERSATION_CHARS_MAX: Final = 200


def external_id_of(route: str, message: str) -> str:
    """Return the external id of a message."""
    return f"{route}/{message}"


def message_of(external_id: str) -> str:
    """Return the id that the sender gave to a message."""
    return external_id.partition("/")[2]


def arrival_of(name: str, route: Route, *, message: str, payload: Payload) -> Arrival:
    """Return the arrival of a request. Raises `Rejected` if the route's templates do not fit it."""
    return Arrival(
        external_id=external_id_of(name, message),
        place=name,
        place_kind=PlaceKind.PRIVATE,
        sender=Sender(id=sender_of(name), name=name),
        thread=_conversation(route, message, payload),
        label=name,
        text=_text(route, payload),
        is_addressed=True,
        agent=route.agent or "",
        deliver_to=route.deliver_to or "",
    )


def _text(route: Route, payload: Payload) -> str:
    text = storable(filled(route.prompt, payload) if route.prompt else payload.text)
    if not text.strip():
        raise Rejected("there is no text in this request; send a body", code="empty_message")
    if not route.prompt or route.prompt.lstrip().startswith("/"):
        return text
    # The prompt says what to do with the content of the request. If the content comes first, as
    # with the title of an issue that a stranger wrote, it must not be able to give a command.
    return f"\\{text.lstrip()}" if text.lstrip().startswith("/") else text


def _conversation(route: Route, message: str, payload: Payload) -> str:
    """Return the key of the conversation within the route; empty if all requests share one."""
    if route.conversation == EACH:
        return message
    if route.conversation == ONE:
        return ""
    key = storable(filled(route.conversation, payload)).strip()
    if not 0 < len(key) <= CONVERSATION_CHARS_MAX:
        raise Rejected(
            f"{route.conversation} names the conversation and must be 1 to "
            f"{CONVERSATION_CHARS_MAX} characters long, not {len(key)}",
            code="invalid_body",
        )
    return key
