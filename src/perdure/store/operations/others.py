"""Finds other people's conversations over HTTP, for operators.

Each person has names of their own, so another person's conversation is called `http:PERSON:NAME`.
"""

from typing import Final, NamedTuple

import msgspec

from perdure.domain.address import HTTP, WORDS_MAX
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.ports.records.history import Snapshot
from perdure.store.operations.reading import history
from perdure.store.statement import Op, many, one

# How many people are named who have conversations of the same name.
HOLDERS_MAX: Final = 5
# Finds the id of a person.
_PERSON: Final = "SELECT id FROM principals WHERE name = $1"
# Finds the people who have a conversation of this name over HTTP. Only who has a token can have
# one, so this is a look-up for each of them.
_HOLDERS: Final = """
    SELECT c.id, p.name FROM conversations c JOIN principals p ON p.id = c.account
    WHERE c.adapter = $1 AND c.account IN (SELECT principal_id FROM tokens) AND c.place = $2
      AND c.thread = '' AND c.person = ''
    ORDER BY p.name LIMIT $3"""
# Finds a person's conversation over HTTP by its name.
_NAMED: Final = """
    SELECT id FROM conversations
    WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = '' AND person = ''"""


class _Holder(NamedTuple):
    """Names somebody who has a conversation of a certain name."""

    conversation: ConversationId
    person: str


def find(name: str, *, principal: PrincipalId, sees_all: bool) -> Op[Snapshot]:
    """Return a conversation of this principal, one on a platform, or, for those who see all, one of
    somebody else. Raises `NotFound`."""
    adapter, _, rest = name.partition(":")
    try:
        return (yield from history.find(name, principal=principal, sees_all=sees_all))
    except NotFound:
        theirs = (yield from _of_person(rest)) if sees_all and adapter == HTTP else None
        if theirs is None:
            raise
        return theirs


def _of_person(rest: str) -> Op[Snapshot | None]:
    """Return the conversation over HTTP that `PERSON:NAME` means, or None. Both may contain
    colons."""
    words = rest.split(":")[:WORDS_MAX]
    for end in range(1, len(words)):
        person = ":".join(words[:end])
        account = yield from one(PrincipalId, _PERSON, person)
        place = rest[len(person) + 1 :]
        found = yield from one(ConversationId, _NAMED, HTTP, account, place)
        if account is not None and found is not None:
            return _theirs((yield from history.snapshot(found)), person)
    return None


def anybodys(name: str) -> Op[Snapshot]:
    """Return the conversation of one person over HTTP. Raises `NotFound`, and `Conflict` if several
    people have one of that name."""
    people = yield from many(_Holder, _HOLDERS, HTTP, name, HOLDERS_MAX)
    if not people:
        raise NotFound(f"there is no conversation {name!r}; a first message creates it")
    if len(people) > 1:
        names = ", ".join(f"{HTTP}:{each.person}:{name}" for each in people)
        raise Conflict(f"several people have a {name!r}; choose: {names}", code="ambiguous_name")
    found = yield from history.snapshot(people[0].conversation)
    return _theirs(found, people[0].person)


def _theirs(found: Snapshot, person: str) -> Snapshot:
    """Return another person's conversation, with a name that says whose it is."""
    name = f"{HTTP}:{person}:{found.view.name}"
    return msgspec.structs.replace(found, view=msgspec.structs.replace(found.view, name=name))
