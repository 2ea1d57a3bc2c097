"""Names the columns of a conversation's address, and makes an address from them."""

from typing import Final

from perdure.domain.address import Address

# The columns of an address, for a query in which the conversation is called `c`.
ADDRESS: Final = "c.adapter, c.account, c.place, c.thread, c.person"


def address_of(adapter: str, account: str, place: str, thread: str, person: str) -> Address:
    """Return the address that these columns hold."""
    return Address(adapter=adapter, account=account, place=place, thread=thread, person=person)


def address_columns(address: Address) -> tuple[str, str, str, str, str]:
    """Return what these columns hold for an address."""
    return address.adapter, address.account, address.place, address.thread, address.person
