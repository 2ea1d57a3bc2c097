"""Fills templates with the content of a request: `{body}`, `{json.path.to.field}`,
`{headers.name}`.

Plain braces are written twice. Inserted content is never read as a template again. Pure.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from perdure.domain.errors import Rejected

_PLACE: Final = r"\{(?:body|json(?:\.[^{}.]+)+|headers\.[A-Za-z0-9_-]+)\}"
_LITERAL: Final = r"[^{}]|\{\{|\}\}"
TEMPLATE: Final = rf"^(?:{_LITERAL}|{_PLACE})*\Z"
TEMPLATE_WITH_PLACE: Final = rf"(?:{_LITERAL})*{_PLACE}(?:{_LITERAL}|{_PLACE})*"
_TOKEN: Final = re.compile(rf"\{{\{{|\}}\}}|{_PLACE}")


class Payload:
    """Holds the body and headers of one request. They are decoded only if a template asks for
    them."""

    def __init__(self, body: bytes, headers: Mapping[str, str]) -> None:
        self._body = body
        self._headers = headers

    @cached_property
    def text(self) -> str:
        """Return the body as text. Raises `Rejected` if it is not UTF-8."""
        try:
            return self._body.decode()
        except UnicodeDecodeError as error:
            raise Rejected(
                f"the body is not UTF-8 text (byte {error.start}); send text or JSON in UTF-8",
                code="invalid_body",
            ) from error

    @cached_property
    def json(self) -> object:
        """Return the body as JSON. Raises `Rejected` if it is no JSON."""
        try:
            return msgspec.json.decode(self._body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Rejected(f"the body is not JSON: {error}", code="malformed_json") from error
        except RecursionError as error:
            message = "the body is nested too deeply; send it flatter"
            raise Rejected(message, code="malformed_json") from error

    def field(self, path: str) -> str:
        """Return a field of the JSON body: strings as they are, other values as JSON. Raises
        `Rejected` if the field is missing."""
        value = self.json
        for step in path.split("."):
            match value:
                case dict() if step in value:
                    value = value[step]
                case list() if step.isascii() and step.isdigit() and int(step) < len(value):
                    value = value[int(step)]
                case _:
                    raise _missing(f"field {path}")
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    def header(self, name: str) -> str:
        """Return a header. Raises `Rejected` if it is missing."""
        try:
            return self._headers[name.lower()]
        except KeyError:
            raise _missing(f"header {name}") from None


def filled(template: str, payload: Payload) -> str:
    """Return the template with its fields filled in."""
    return _TOKEN.sub(lambda token: _value(token.group(), payload), template)


def _value(token: str, payload: Payload) -> str:
    if token in {"{{", "}}"}:
        return token[0]
    kind, _, name = token[1:-1].partition(".")
    match kind:
        case "json":
            return payload.field(name)
        case "headers":
            return payload.header(name)
        case _:
            return payload.text


def _missing(what: str) -> Rejected:
    return Rejected(
        f"the request has no {what}, which this route asks for; send it, or change the route",
        code="invalid_body",
    )
