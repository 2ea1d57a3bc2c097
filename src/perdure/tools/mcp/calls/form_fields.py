"""Reads the fields of a form that a server wants filled in, and checks what is put into them.

A form is a JSON Schema of an object whose properties are plain values: texts, numbers, yes or no,
one of a list, or several of a list.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.text import harmless_line

FIELDS_MAX: Final = 20
OPTIONS_MAX: Final = 200
_NAME_MAX: Final = 60
_TOLD_MAX: Final = 200
_DEFAULT_MAX: Final = 100
_VALUE_MAX: Final = 10_000
_YES: Final = frozenset({"true", "yes", "y", "on"})
_NO: Final = frozenset({"false", "no", "n", "off"})
Kind = Literal["text", "number", "whole", "yes_no", "one", "several"]
_KINDS: Final[Mapping[str, Kind]] = {
    "string": "text",
    "number": "number",
    "integer": "whole",
    "boolean": "yes_no",
    "array": "several",
}
# What is wrong with a value, or the value as it is sent.
_Checked = tuple[Any, str]


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one field. `options` are pairs of a value and its label. `low` and `high` bound the
    number, the length of the text, or how many options are chosen."""

    name: str
    kind: Kind
    title: str = ""
    description: str = ""
    is_required: bool = False
    options: tuple[tuple[str, str], ...] = ()
    low: float = -math.inf
    high: float = math.inf
    format: str = ""
    default: Any = None

    @property
    def wants(self) -> str:
        """Return what may be put in, in words."""
        what = {
            "text": self.format or "text",
            "number": "a number",
            "whole": "a whole number",
            "yes_no": "yes or no",
            "one": f"one of {self._labels}",
            "several": f"some of {self._labels}, with commas between",
        }[self.kind]
        return f"{what}{self._bounds}"

    @property
    def told_default(self) -> str:
        """Return what is sent if nothing is put in, as a person would put it."""
        labels = dict(self.options)
        values = self.default if isinstance(self.default, list) else [self.default]
        if labels and all(isinstance(each, str) and each in labels for each in values):
            return ", ".join(labels[each] for each in values)[:_TOLD_MAX] or "none of them"
        return harmless_line(msgspec.json.encode(self.default).decode()[:_DEFAULT_MAX])

    @property
    def _labels(self) -> str:
        shown = [label for _, label in self.options[:25]]
        more = len(self.options) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")

    @property
    def _bounds(self) -> str:
        unit = {"text": " characters", "several": " of them"}.get(self.kind, "")
        low = self.low if self.kind in ("number", "whole") or self.low > 0 else -math.inf
        if math.isfinite(low) and math.isfinite(self.high):
            return (
                f" from {low:g} to {self.high:g}"
                if not unit
                else f", {low:g} to {self.high:g}{unit}"
            )
        if math.isfinite(low):
            return f", at least {low:g}{unit}"
        return f", at most {self.high:g}{unit}" if math.isfinite(self.high) else ""

    def checked(self, said: Any) -> _Checked:
        """Return the value that somebody has put in, or what is wrong with it. Words are read as
        the field's kind."""
        match self.kind:
            case "text":
                return self._text(said)
            case "yes_no":
                return _yes_no(said)
            case "number" | "whole":
                return self._number(said)
            case "one":
                return self._one(said)
            case "several":
                return self._several(said)

    def _text(self, said: Any) -> _Checked:
        if not isinstance(said, str):
            return None, "must be text"
        limit = min(self.high, _VALUE_MAX)
        if not self.low <= len(said) <= limit:
            return None, f"must have {max(self.low, 0):g} to {limit:g} characters"
        return said, ""

    def _number(self, said: Any) -> _Checked:
        if isinstance(said, bool) or not isinstance(said, str | int | float):
            return None, f"must be {self.wants}"
        try:
            number = float(said.strip()[:100] if isinstance(said, str) else said)
        except (ValueError, OverflowError):
            return None, f"must be {self.wants}"
        is_whole = math.isfinite(number) and number == int(number)
        if not math.isfinite(number) or not self.low <= number <= self.high:
            return None, f"must be {self.wants}"
        if self.kind == "whole" and not is_whole:
            return None, f"must be {self.wants}"
        return (int(number) if is_whole else number), ""

    def _one(self, said: Any) -> _Checked:
        value = self._option(said)
        return (value, "") if value is not None else (None, f"must be {self.wants}")

    def _several(self, said: Any) -> _Checked:
        words = said.split(",") if isinstance(said, str) else said
        if not isinstance(words, list) or len(words) > OPTIONS_MAX:
            return None, f"must be {self.wants}"
        chosen = [self._option(each) for each in words if not isinstance(each, str) or each.strip()]
        if any(each is None for each in chosen) or not self.low <= len(chosen) <= self.high:
            return None, f"must be {self.wants}"
        return list(dict.fromkeys(chosen)), ""

    def _option(self, said: Any) -> str | None:
        """Return the value of the option that somebody names by its value or its label."""
        if not isinstance(said, str):
            return None
        values = [value for value, _ in self.options]
        if said in values:
            return said
        word = said.strip().casefold()
        named = (v for v, label in self.options if word in (v.casefold(), label.casefold()))
        return next(named, None)


def fields_of(schema: str) -> tuple[FormField, ...]:
    """Return the fields of a form. Raises `Rejected` if nobody can fill it in."""
    try:
        found = msgspec.json.decode(schema or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Rejected("its form is no JSON Schema of an object") from error
    properties, required = found.get("properties", {}), found.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise Rejected("its form is no JSON Schema of an object")
    if len(properties) > FIELDS_MAX:
        raise Rejected(f"its form has more than {FIELDS_MAX} fields")
    wanted = [each for each in required if isinstance(each, str)]
    return tuple(_field(name, each, wanted) for name, each in properties.items())


def _field(name: str, schema: Any, required: Sequence[str]) -> FormField:
    if not isinstance(schema, dict) or not name or len(name) > _NAME_MAX:
        raise Rejected(f"the field {harmless_line(name[:_NAME_MAX])!r} of its form makes no sense")
    items = schema.get("items")
    options = _options(items if isinstance(items, dict) else schema, schema)
    kind = _KINDS.get(str(schema.get("type", "string" if options else "")))
    if kind is None or (kind == "several" and not options):
        raise Rejected(f"the field {harmless_line(name)!r} of its form is of no plain type")
    if kind == "text" and options:
        kind = "one"
    low, high = _bounds(kind, schema)
    return FormField(
        name=name,
        kind=kind,
        title=_line(schema.get("title")),
        description=_line(schema.get("description")),
        is_required=name in required,
        options=options if kind in ("one", "several") else (),
        low=low,
        high=high,
        format=_format(schema.get("format")),
        default=schema.get("default"),
    )


def _options(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the values of a list to choose from, each with its label."""
    values = schema.get("enum")
    if isinstance(values, list):
        names = whole.get("enumNames")
        labels = names if isinstance(names, list) and len(names) == len(values) else values
        pairs = list(zip(values, labels, strict=True))
    else:
        listed = schema.get("oneOf") or schema.get("anyOf")
        titled = (
            [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        )
        pairs = [(each.get("const"), each.get("title", each.get("const"))) for each in titled]
    if len(pairs) > OPTIONS_MAX:
        raise Rejected(f"a field of its form has more than {OPTIONS_MAX} choices")
    return tuple((value, _line(label) or value) for value, label in pairs if isinstance(value, str))


def _bounds(kind: Kind, schema: Mapping[str, Any]) -> tuple[float, float]:
    low, high = {
        "text": ("minLength", "maxLength"),
        "several": ("minItems", "maxItems"),
    }.get(kind, ("minimum", "maximum"))
    return _limit(schema.get(low), -math.inf), _limit(schema.get(high), math.inf)


def _limit(value: Any, usual: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if is_number else usual
    except OverflowError:
        return usual


def _format(value: Any) -> str:
    return {
        "email": "an e-mail address",
        "uri": "an address such as https://example.org",
        "date": "a date such as 2030-12-31",
        "date-time": "a time such as 2030-12-31T23:59:00Z",
        "password": "a password",
    }.get(str(value), "")


def _line(value: Any) -> str:
    return harmless_line(value[:_TOLD_MAX]) if isinstance(value, str) else ""


def _yes_no(said: Any) -> _Checked:
    if isinstance(said, bool):
        return said, ""
    word = said.strip().rstrip(".!").lower() if isinstance(said, str) else ""
    if word in _YES | _NO:
        return word in _YES, ""
    return None, "must be yes or no"
