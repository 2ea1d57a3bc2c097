"""The columns that say where a conversation is, and the address that is made of them."""

from typing import Final

from perdure.domain.address import Address

# The columns of an address, in a query that calls the conversation `c`.
ADDRESS: Final = "c.adapter, c.account, c.place, c.thread, c.person"


def address_of(adapter: str, account: str, place: str, thread: str, person: str) -> Address:
    """Return the address that these columns name."""
    return Address(adapter=adapter, account=account, place=place, thread=thread, person=person)
