"""Asks a person what a server wants to know in the middle of a call, and reads the answer.

The question says which server asks, and that the answer goes to it. An answer that does not fit is
told to the person, who is asked again; the server never sees it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.text import harmless_line
from perdure.domain.tools.asking import CHOICE_LENGTH_MAX, CHOICES_MAX
from perdure.ports.turns.tools import ToolQuestion, ToolReply
from perdure.tools.mcp.calls.form_fields import FormField, fields_of
from perdure.tools.mcp.link import InputGiven, InputNeeded

ACCEPT: Final = "Accept"
DECLINE: Final = "Decline"
DONE: Final = "Done"
_MESSAGE_MAX: Final = 1_500
_URL_MAX: Final = 2_000
_FORM_MAX: Final = 2_500
# Between the two halves of a link in markdown.
_LINK_MIDDLE: Final = re.compile(r"\](?=[(\[:])")
_WEB_PAGE: Final = re.compile(r"https?://([^/?#]+)", re.IGNORECASE)
# An address that every reader of markdown takes as it is.
_PLAIN_PAGE: Final = re.compile(
    r"https?://[a-z0-9.:-]+(?:[/?#](?:[a-z0-9/.~%?&=+,;:@$#-]|(?<=[a-z0-9])_(?=[a-z0-9]))*)?",
    re.IGNORECASE,
)
_SECRETS: Final = (
    "password",
    "passphrase",
    "secret",
    "token",
    "api key",
    "apikey",
    "api_key",
)


def question_of(server: str, needed: InputNeeded, *, problem: str = "") -> ToolQuestion:
    """Return the question to the person. `problem` says what was wrong with the last answer. Raises
    `Rejected` if nobody can fill in the form."""
    fields = () if needed.url else fields_of(needed.schema)
    choices = _choices(needed, fields)
    parts = [f"That does not fit: {problem}."] if problem else []
    parts.append(f"The tool server **{server}** asks, before it goes on:")
    parts.append(_quoted(needed.message))
    if needed.url:
        parts.append(
            f"It wants you to open this address. Look well where it leads: {_shown_url(needed.url)}"
        )
    elif not choices:
        parts.append(_how(fields))
    if fields:
        parts.append(_whither(fields))
    state = msgspec.json.encode(needed).decode()
    return ToolQuestion(text="\n\n".join(parts), choices=choices, state=state)


def asked_in(state: str) -> InputNeeded:
    """Return what a server has asked, from what was stored with the question."""
    return msgspec.json.decode(state, type=InputNeeded)


def given_by(reply: ToolReply, needed: InputNeeded) -> InputGiven:
    """Return what a person has answered, as the server is told it. Raises `Rejected` that says what
    is wrong with the answer."""
    if reply.reason:
        return InputGiven(action="cancel", state=needed.state)
    said = reply.answer.strip()
    if said.rstrip(".!").casefold() == DECLINE.casefold():
        return declined(needed)
    if needed.url:
        if said.rstrip(".!").casefold() == DONE.casefold():
            return InputGiven(action="accept", state=needed.state)
        raise Rejected(f"say {DONE} once you have been there, or {DECLINE}")
    content = content_of(fields_of(needed.schema), said)
    return InputGiven(action="accept", content=content, state=needed.state)


def declined(needed: InputNeeded) -> InputGiven:
    """Return the answer that says no."""
    return InputGiven(action="decline", state=needed.state)


def content_of(fields: Sequence[FormField], said: str) -> dict[str, Any]:
    """Return the content of a form from a person's words: the words themselves if there is one
    field, else lines such as "size: 3", or JSON. Raises `Rejected` that says what is wrong."""
    if not fields:
        if said.casefold() == ACCEPT.casefold():
            return {}
        raise Rejected(f"say {ACCEPT} or {DECLINE}")
    given = _put_in(fields, said)
    content: dict[str, Any] = {}
    for field in fields:
        if field.name in given:
            value, problem = field.checked(given[field.name])
            if problem:
                raise Rejected(f"{_label(field)} {problem}")
            content[field.name] = value
        elif field.default is not None:
            value, problem = field.checked(field.default)
            if not problem:
                content[field.name] = value
            elif field.is_required:
                raise Rejected(f"{_label(field)} is missing")
        elif field.is_required:
            raise Rejected(f"{_label(field)} is missing")
    return content


def _put_in(fields: Sequence[FormField], said: str) -> Mapping[str, Any]:
    """Return what was put into which field."""
    if said.startswith("{"):
        try:
            found = msgspec.json.decode(said, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise Rejected("it begins like JSON, and is none") from error
        return _known(fields, found)
    if said.casefold() == ACCEPT.casefold() and not any(map(_is_needed, fields)):
        return {}
    lines = [line.partition(":") for line in said.splitlines() if line.strip()]
    names = {word.casefold(): each.name for each in fields for word in (each.title, each.name)}
    is_listed = all(colon and name.strip(" -*").casefold() in names for name, colon, _ in lines)
    if len(fields) == 1 and not is_listed:
        return {fields[0].name: said}
    if not is_listed:
        raise Rejected(f"write one line for each field, such as `{_example(fields)}`")
    return {names[name.strip(" -*").casefold()]: value.strip() for name, _, value in lines}


def _known(fields: Sequence[FormField], given: Mapping[str, Any]) -> Mapping[str, Any]:
    strange = [name for name in given if name not in {field.name for field in fields}]
    if strange:
        raise Rejected(f"there is no field {harmless_line(strange[0][:60])}")
    return given


def _is_needed(field: FormField) -> bool:
    return field.is_required and field.default is None


def _choices(needed: InputNeeded, fields: Sequence[FormField]) -> tuple[str, ...]:
    """Return the buttons, where buttons can say all that may be answered. Where words are needed
    there are none, so that plain words are taken as the answer."""
    if needed.url:
        return (DONE, DECLINE)
    if not fields:
        return (ACCEPT, DECLINE)
    if len(fields) > 1:
        return ()
    (field,) = fields
    if field.kind == "yes_no":
        return ("Yes", "No", DECLINE)
    if field.kind != "one" or len(field.options) >= CHOICES_MAX:
        return ()
    labels = [label for _, label in field.options]
    are_fit = (
        all(0 < len(each) <= CHOICE_LENGTH_MAX for each in labels)
        and len({each.strip().casefold() for each in (*labels, DECLINE)}) == len(labels) + 1
    )
    return (*labels, DECLINE) if are_fit else ()


def _how(fields: Sequence[FormField]) -> str:
    """Return how the fields are filled in."""
    lines = "\n".join(f"- {_told(field)}" for field in fields)[:_FORM_MAX]
    if len(fields) == 1:
        return f"{lines}\n\nSay what it should be, or {DECLINE}."
    can_accept = not any(map(_is_needed, fields))
    accepted = f" {ACCEPT} takes it as it is." if can_accept else ""
    return (
        f"{lines}\n\nAnswer with one line for each field, such as `{_example(fields)}`, or say "
        f"{DECLINE}.{accepted}"
    )


def _told(field: FormField) -> str:
    described = f": {field.description}" if field.description else ""
    if field.default is not None:
        left_out = f"; {field.told_default} if you leave it out"
    else:
        left_out = "" if field.is_required else "; you may leave it out"
    return f"**{_label(field)}**{described} ({field.wants}{left_out})"


def _whither(fields: Sequence[FormField]) -> str:
    """Return where the answer goes, and more if it looks as if a secret is wanted."""
    words = " ".join(
        f"{each.name} {each.title} {each.description} {each.format}" for each in fields
    ).casefold()
    if any(word in words for word in _SECRETS):
        return (
            "⚠️ This looks like a question for a password or a key. Your answer is kept in this "
            f"conversation, and the server reads it. Say {DECLINE} if you do not want that."
        )
    return "Your answer goes to the server."


def _example(fields: Sequence[FormField]) -> str:
    field = next((each for each in fields if _is_needed(each)), fields[0])
    value = {"number": "1.5", "whole": "3", "yes_no": "yes"}.get(field.kind, "…")
    return f"{field.name}: {field.options[0][1] if field.options else value}"


def _label(field: FormField) -> str:
    name = harmless_line(field.name)
    is_same = field.title.casefold() == name.casefold()
    return name if is_same or not field.title else f"{name} ({field.title})"


def _quoted(message: str) -> str:
    """Return the server's words as a quotation that they cannot leave, and in which no link looks
    as if it led elsewhere."""
    cut = message[:_MESSAGE_MAX] + ("…" if len(message) > _MESSAGE_MAX else "")
    cut = _LINK_MIDDLE.sub("] ", cut)
    return "\n".join(f"> {line}" for line in cut.splitlines() or [""])


def _shown_url(url: str) -> str:
    """Return an address as people see it. One that a reader of markdown could take for something
    else is shown as code. Raises `Rejected` for what is no page of the web, and for one with a user
    in it, because that looks like the name of a server."""
    shown = "".join(char for char in url if char.isprintable() and not char.isspace())
    server = _WEB_PAGE.match(shown)
    if server is None or "@" in server[1] or "\\" in server[1]:
        raise Rejected("the server wants an address opened that is no page of the web")
    if len(shown) > _URL_MAX:
        raise Rejected("the server wants an address opened that is too long to be looked at")
    return shown if _PLAIN_PAGE.fullmatch(shown) else f"`{shown.replace('`', '%60')}`"
