"""Finds the place that a person means by a name or an address."""

from typing import Final, NamedTuple

from perdure.domain.address import HTTP, Address, readings
from perdure.domain.errors import NotFound, Rejected, Transient
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.ports.people.places import OutgoingMessage, PlaceView
from perdure.ports.records.history import Page
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.sessions import relocating
from perdure.store.operations.sessions.recency import follows, newest_first
from perdure.store.statement import Op, exists, many, one

HOME: Final = "home"

# Finds a conversation by its address.
_KNOWN = f"""
    SELECT {ADDRESS} FROM conversations c
    WHERE c.adapter = $1 AND c.account = $2 AND c.place = $3 AND c.thread = $4 AND c.person = $5"""
# Finds a conversation in a place.
_IS_PLACE = """
    SELECT 1 FROM conversations WHERE adapter = $1 AND account = $2 AND place = $3 LIMIT 1"""
# Finds the first and the last account of an adapter in order; if they are equal there is only one.
_ACCOUNTS = """
    SELECT (SELECT MIN(account) FROM conversations WHERE adapter = $1),
           (SELECT MAX(account) FROM conversations WHERE adapter = $1)"""
# Tells whether somebody owns a conversation, or has spoken among the last turns of its session.
_TAKES_PART = """
    SELECT 1 FROM conversations c
    WHERE c.adapter = $1 AND c.account = $2 AND c.place = $3 AND c.thread = $4 AND c.person = $5
      AND (c.principal_id = $6
           OR EXISTS (SELECT 1 FROM (SELECT t.principal_id FROM turns t
                                     WHERE t.session_id = c.session_id
                                     ORDER BY t.queued_seq DESC LIMIT 1000) lately
                      WHERE lately.principal_id = $6))"""
# Reads the home of a principal.
_HOME = f"""
    SELECT {ADDRESS} FROM principals p JOIN conversations c ON c.id = p.home_conversation_id
    WHERE p.id = $1"""
# Reads the homes of operators.
_HOMES = f"""
    SELECT {ADDRESS} FROM principals p JOIN conversations c ON c.id = p.home_conversation_id
    WHERE p.role = 'operator' ORDER BY p.id LIMIT 10"""
# Names members who have a home.
_MEMBERS_HOMES = """
    SELECT p.name FROM principals p
    WHERE p.home_conversation_id IS NOT NULL AND p.role = 'member' ORDER BY p.id LIMIT 10"""
# Reads places, each with the one it is linked to; the caller appends which.
_PLACES = f"""
    SELECT c.id, c.label, c.kind, c.active_at, {ADDRESS},
           l.adapter, l.account, l.place, l.thread, l.person
    FROM conversations c LEFT JOIN conversations l ON l.id = c.linked_id
    WHERE c.is_listed = 1"""
# Leaves out what was on earlier pages.
_BEFORE = f"AND {follows('c', '$1', '$2')}"
# The order in which places are listed.
_NEWEST_FIRST = f"ORDER BY {newest_first('c')}"
# Reads a page of all places.
EVERYBODYS = f"{_PLACES} {_BEFORE} {_NEWEST_FIRST} LIMIT $3"
# Reads a page of the places of a principal.
ONES_OWN = f"{_PLACES} {_BEFORE} AND c.principal_id = $3 {_NEWEST_FIRST} LIMIT $4"
_END_OF_TIME = (2**62, "")


class _Accounts(NamedTuple):
    """Holds the first and the last account of an adapter, or None if there are none."""

    first: str | None
    last: str | None


class _Place(NamedTuple):
    """Holds a place, and the address of the one it is linked to."""

    id: ConversationId
    label: str
    kind: str
    at: int
    adapter: str
    account: str
    place: str
    thread: str
    person: str
    linked_adapter: str | None
    linked_account: str
    linked_place: str
    linked_thread: str
    linked_person: str


def find(sending: OutgoingMessage) -> Op[tuple[Address, bool]]:
    """Return the address that is meant, and whether there is a conversation at it yet. Raises
    `NotFound` or `Rejected` with a hint if there can be none."""
    if sending.to == HOME:
        return (yield from _home(sending)), True
    adapter, colon, rest = sending.to.partition(":")
    if colon and adapter in sending.accounts:
        return (yield from _on_platform(sending, adapter, rest))
    found = yield from _conversation_at(HTTP, sending.by.id, sending.to)
    if found is not None:
        return found, True
    if colon:
        raise _not_configured(sending, adapter)
    raise NotFound(
        f"you have no conversation {sending.to!r}; give an address such as telegram:123, `home`, "
        "or the name of a conversation of yours (`perdure places` lists what is known)"
    )


def _conversation_at(
    adapter: str, account: str, place: str, thread: str = "", person: str = ""
) -> Op[Address | None]:
    """Return an address, if there is a conversation at it."""
    return (yield from one(address_of, _KNOWN, adapter, account, place, thread, person))


def takes_part(principal: PrincipalId, address: Address) -> Op[bool]:
    """Tell whether a person takes part in the conversation at this address: it is theirs, or they
    have spoken there lately."""
    return (
        yield from exists(
            _TAKES_PART, address.adapter, address.account, address.place, address.thread,
            address.person, principal,
        )
    )  # fmt: skip


def _home(sending: OutgoingMessage) -> Op[Address]:
    """Return the sender's own home. An operator without one gets the only operators' home:
    operators are often known under several names, one for each surface."""
    found = yield from many(address_of, _HOME, sending.by.id)
    if not found and sending.by.is_operator:
        found = yield from many(address_of, _HOMES)
    if not found:
        raise NotFound((yield from _no_home(sending)))
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise Rejected(
            f"there is more than one home ({names}); name one of them, or say /home in a "
            "conversation of your own",
            code="ambiguous",
        )
    home = found[0]
    if home.adapter != HTTP and home.adapter not in sending.accounts:
        raise _not_configured(sending, home.adapter)
    return home


def _no_home(sending: OutgoingMessage) -> Op[str]:
    """Return the error text for a missing home. A common cause: a person chose a home on a platform
    without being listed there as an operator."""
    others = (yield from many(str, _MEMBERS_HOMES)) if sending.by.is_operator else []
    for name in others:
        adapter, colon, person = name.partition(":")
        if colon and adapter in sending.accounts:
            return (
                f"there is no operator's home conversation yet. {name} has chosen a home, but is "
                f"no operator: add {person!r} to `operators` of [adapters.{adapter}] in "
                "perdure.toml"
            )
    return (
        "there is no home conversation yet; say /home in the conversation that is to be it (on a "
        "platform, as somebody who is listed in its `operators`)"
    )


def _on_platform(sending: OutgoingMessage, adapter: str, rest: str) -> Op[tuple[Address, bool]]:
    """Return the known conversation with this name; otherwise a thread of a known place; otherwise
    the whole name as a new place."""
    if not rest:
        raise Rejected(f"say where on {adapter}: {adapter}:PLACE", code="impossible_address")
    if not any(_may_be(sending, adapter, *reading) for reading in readings(rest)):
        raise _impossible(sending, adapter, rest)
    account = sending.accounts[adapter] or (yield from _account(adapter))
    for place, thread, person in readings(rest):
        found = yield from _conversation_at(adapter, account, place, thread, person)
        if found is not None:
            return found, True
    for place, thread, person in readings(rest):
        moved = yield from relocating.place_now(adapter, place)
        found = yield from _conversation_at(adapter, account, moved or "", thread, person)
        if found is not None:
            return found, True
    for place, thread, person in readings(rest):
        may_be = thread and not person and _may_be(sending, adapter, place, thread)
        if may_be and (yield from exists(_IS_PLACE, adapter, account, place)):
            found_in = Address(adapter=adapter, account=account, place=place, thread=thread)
            return found_in, False
    if not _may_be(sending, adapter, rest):
        raise _impossible(sending, adapter, rest)
    return Address(adapter=adapter, account=account, place=rest), False


def _may_be(
    sending: OutgoingMessage, adapter: str, place: str, thread: str = "", person: str = ""
) -> bool:
    """Tell whether such an address can exist on a platform."""
    form = sending.forms.get(adapter)
    return form is None or form.takes(place, thread, person)


def _impossible(sending: OutgoingMessage, adapter: str, rest: str) -> Rejected:
    """Return the error for an address that cannot exist on a platform."""
    example = sending.forms[adapter].example
    return Rejected(
        f"no place on {adapter} is called {rest!r}; an address there looks like "
        f"{adapter}:{example} (`perdure places` lists what is known)",
        code="impossible_address",
    )


def _account(adapter: str) -> Op[str]:
    """Return the only account of this platform that conversations were ever held with. Raises
    `Transient` if there is not exactly one: the platform must connect first."""
    accounts = yield from one(_Accounts, _ACCOUNTS, adapter)
    assert accounts is not None
    if accounts.first is None or accounts.first != accounts.last:
        raise Transient(
            f"{adapter} is not connected yet, so nobody knows the bot's account there; see "
            "`perdure status`, and send it again once it is",
            code="not_connected",
        )
    return accounts.first


def _not_configured(sending: OutgoingMessage, adapter: str) -> Rejected:
    """Return the error for a platform that is not in the configuration."""
    names = ", ".join(sorted(sending.accounts))
    known = f"configured are: {names}" if names else "none is configured"
    return Rejected(
        f"there is no platform {adapter!r} here; {known}. Correct the address, or add the platform "
        "to perdure.toml",
        code="unknown_adapter",
    )


def known(*, principal: PrincipalId | None, page: Page) -> Op[list[PlaceView]]:
    """Return a page of the places of a principal, or of everybody; newest first."""
    at, last = page.after or _END_OF_TIME
    if principal is None:
        found = yield from many(_Place, EVERYBODYS, at, last, page.limit)
    else:
        found = yield from many(_Place, ONES_OWN, at, last, principal, page.limit)
    return [_view(each) for each in found]


def _view(found: _Place) -> PlaceView:
    """Return a place as it is shown."""
    address = address_of(found.adapter, found.account, found.place, found.thread, found.person)
    return PlaceView(
        id=found.id,
        adapter=found.adapter,
        address=address.name,
        label=found.label,
        kind=found.kind,
        active_at=found.at,
        linked=_linked_name(found),
    )


def _linked_name(found: _Place) -> str:
    """Return the name of the place that this one is linked to, or an empty string."""
    if not found.linked_adapter:
        return ""
    return address_of(
        found.linked_adapter,
        found.linked_account,
        found.linked_place,
        found.linked_thread,
        found.linked_person,
    ).name
