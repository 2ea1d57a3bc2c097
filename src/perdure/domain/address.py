"""Where a conversation lives.

An address is five typed columns, never a positional string: two chats can share a display name, a
separator or a topic and still be two addresses.
"""

import msgspec

HTTP = "http"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """One place where people talk to an agent.

    `account` is the bot's stable id (over HTTP: the principal's), never its token. `thread` and
    `person` are empty where the platform or the configuration does not divide a place further.
    """

    adapter: str
    account: str
    place: str
    thread: str = ""
    person: str = ""

    @property
    def name(self) -> str:
        """The name people use: a plain word over HTTP, `telegram:123` elsewhere."""
        if self.adapter == HTTP:
            return self.place
        rest = [part for part in (self.place, self.thread, self.person) if part]
        return ":".join([self.adapter, *rest])
