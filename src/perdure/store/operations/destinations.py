"""What people call a place, and which one they mean."""

from collections.abc import Sequence
from typing import Final

from perdure.domain.address import HTTP, Address, readings
from perdure.domain.errors import NotFound, Rejected, Transient
from perdure.domain.ids import PrincipalId
from perdure.ports.history import Page
from perdure.ports.places import PlaceView, Sending
from perdure.store.statement import Op, Row, row, rows

HOME: Final = "home"

_ADDRESS = "c.adapter, c.account, c.place, c.thread, c.person"
_KNOWN = f"""
    SELECT {_ADDRESS} FROM conversations c
    WHERE c.adapter = $1 AND c.account = $2 AND c.place = $3 AND c.thread = $4 AND c.person = $5"""
_IS_PLACE = """
    SELECT 1 FROM conversations WHERE adapter = $1 AND account = $2 AND place = $3 LIMIT 1"""
_ACCOUNTS = """
    SELECT (SELECT MIN(account) FROM conversations WHERE adapter = $1),
           (SELECT MAX(account) FROM conversations WHERE adapter = $1)"""
_HOME = f"""
    SELECT {_ADDRESS} FROM principals p JOIN conversations c ON c.id = p.home_conversation_id
    WHERE p.id = $1"""
_HOMES = f"""
    SELECT {_ADDRESS} FROM principals p JOIN conversations c ON c.id = p.home_conversation_id
    WHERE p.role = 'operator' ORDER BY p.id LIMIT 10"""
_MEMBERS_HOMES = """
    SELECT p.name FROM principals p
    WHERE p.home_conversation_id IS NOT NULL AND p.role = 'member' ORDER BY p.id LIMIT 10"""
_PLACES = f"""
    SELECT c.id, c.label, c.kind, c.active_at, {_ADDRESS},
           l.adapter, l.account, l.place, l.thread, l.person
    FROM conversations c LEFT JOIN conversations l ON l.id = c.linked_id
    WHERE c.is_listed = 1"""
_BEFORE = """
      AND (c.active_at < $1 OR (c.active_at = $1 AND c.id < $2))"""
_NEWEST_FIRST = """
    ORDER BY c.active_at DESC, c.id DESC"""
EVERYBODYS = f"{_PLACES} {_BEFORE} {_NEWEST_FIRST} LIMIT $3"
ONES_OWN = f"{_PLACES} {_BEFORE} AND c.principal_id = $3 {_NEWEST_FIRST} LIMIT $4"
_END_OF_TIME = (2**62, "")


def find(sending: Sending) -> Op[tuple[Address, bool]]:
    """The place that is meant, and whether there is a conversation in it yet."""
    if sending.to == HOME:
        return (yield from _home(sending)), True
    adapter, colon, rest = sending.to.partition(":")
    if colon and adapter in sending.accounts:
        return (yield from _on_platform(sending, adapter, rest))
    found = yield from row(_KNOWN, HTTP, sending.by.id, sending.to, "", "")
    if found is not None:
        return _address(found), True
    if colon:
        raise _not_configured(sending, adapter)
    raise NotFound(
        f"you have no conversation {sending.to!r}; give an address such as telegram:123, `home`, "
        "or the name of a conversation of yours (`perdure places` lists what is known)"
    )


def _home(sending: Sending) -> Op[Address]:
    """One's own; else, of operators, who often are known on several surfaces, the only one."""
    found = yield from rows(_HOME, sending.by.id)
    if not found and sending.by.is_operator:
        found = yield from rows(_HOMES)
    if not found:
        raise NotFound((yield from _no_home(sending)))
    if len(found) > 1:
        names = ", ".join(_address(each).name for each in found)
        raise Rejected(
            f"there is more than one home ({names}); name one of them, or say /home in a "
            "conversation of your own",
            code="ambiguous",
        )
    home = _address(found[0])
    if home.adapter != HTTP and home.adapter not in sending.accounts:
        raise _not_configured(sending, home.adapter)
    return home


def _no_home(sending: Sending) -> Op[str]:
    """Say what is missing. People who said /home on a platform without being listed there as
    operators have a home of their own, which is not the operator's."""
    others = (yield from rows(_MEMBERS_HOMES)) if sending.by.is_operator else []
    for (name,) in others:
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


def _on_platform(sending: Sending, adapter: str, rest: str) -> Op[tuple[Address, bool]]:
    """A conversation that is known under this name; else a thread of a place that is known; else
    all of it is the name of a place."""
    if not rest:
        raise Rejected(f"say where on {adapter}: {adapter}:PLACE", code="impossible_address")
    if not any(_may_be(sending, adapter, *reading) for reading in readings(rest)):
        raise _impossible(sending, adapter, rest)
    account = sending.accounts[adapter] or (yield from _account(adapter))
    for place, thread, person in readings(rest):
        found = yield from row(_KNOWN, adapter, account, place, thread, person)
        if found is not None:
            return _address(found), True
    for place, thread, person in readings(rest):
        may_be = thread and not person and _may_be(sending, adapter, place, thread)
        if may_be and (yield from row(_IS_PLACE, adapter, account, place)):
            found_in = Address(adapter=adapter, account=account, place=place, thread=thread)
            return found_in, False
    if not _may_be(sending, adapter, rest):
        raise _impossible(sending, adapter, rest)
    return Address(adapter=adapter, account=account, place=rest), False


def _may_be(sending: Sending, adapter: str, place: str, thread: str = "", person: str = "") -> bool:
    form = sending.forms.get(adapter)
    return form is None or form.takes(place, thread, person)


def _impossible(sending: Sending, adapter: str, rest: str) -> Rejected:
    example = sending.forms[adapter].example
    return Rejected(
        f"no place on {adapter} is called {rest!r}; an address there looks like "
        f"{adapter}:{example} (`perdure places` lists what is known)",
        code="impossible_address",
    )


def _account(adapter: str) -> Op[str]:
    """The only account that conversations of this platform were ever held with."""
    found = yield from row(_ACCOUNTS, adapter)
    assert found is not None
    first, last = found
    if first is None or first != last:
        raise Transient(
            f"{adapter} is not connected yet, so nobody knows the bot's account there; see "
            "`perdure status`, and send it again once it is",
            code="not_connected",
        )
    account: str = first
    return account


def _not_configured(sending: Sending, adapter: str) -> Rejected:
    names = ", ".join(sorted(sending.accounts))
    known = f"configured are: {names}" if names else "none is configured"
    return Rejected(
        f"there is no platform {adapter!r} here; {known}. Correct the address, or add the platform "
        "to perdure.toml",
        code="unknown_adapter",
    )


def known(*, principal: PrincipalId | None, page: Page) -> Op[list[PlaceView]]:
    at, last = page.after or _END_OF_TIME
    if principal is None:
        found = yield from rows(EVERYBODYS, at, last, page.limit)
    else:
        found = yield from rows(ONES_OWN, at, last, principal, page.limit)
    return [_view(each) for each in found]


def _view(found: Row) -> PlaceView:
    place, label, kind, at, *columns = found
    address, linked = _address(columns[:5]), columns[5:]
    return PlaceView(
        id=place,
        adapter=address.adapter,
        address=address.name,
        label=label,
        kind=kind,
        at=at,
        linked=_address(linked).name if linked[0] else "",
    )


def _address(columns: Sequence[str]) -> Address:
    adapter, account, place, thread, person = columns
    return Address(adapter=adapter, account=account, place=place, thread=thread, person=person)
