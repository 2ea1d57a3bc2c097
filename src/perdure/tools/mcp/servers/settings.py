"""Holds what is configured of a tool server, and how patient the gateway is with it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from perdure.domain.secret import Secret
from perdure.tools.mcp.calls.traits import RepeatRule

_NO_SECRETS: Final[Mapping[str, Secret]] = MappingProxyType({})


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Configures one server: the command of a program, or an address. `takes` are globs of the
    tools to use, and `repeat` says which of them may be called twice. A server that `is_shared`
    serves all people over one link, and one that `may_sample` gets words of the agents' models. Two
    settings are equal if they mean the same server."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, Secret] = _NO_SECRETS
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, Secret] = _NO_SECRETS
    takes: tuple[str, ...] = ()
    repeat: tuple[RepeatRule, ...] = ()
    timeout_s: float = 120.0
    is_shared: bool = False
    may_sample: bool = False

    @property
    def kind(self) -> Literal["program", "address"]:
        return "address" if self.url else "program"


class ServerTimings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how long a server is waited for, and how often it is tried.

    A turn waits for the list of a server that nobody has needed before (`first_wait_s`), and less
    for one that is in trouble or whose list has changed (`again_wait_s`); meanwhile and afterwards
    the server has `connect_s` to start. `rest_s` and `rest_max_s` bound the pause after a failure,
    which doubles each time; a server has recovered once it has answered, or lived for `steady_s`.
    A person's link is closed after `idle_s` without a call, and the one that was not used for the
    longest time if there are more than `links_max`. An idle link to an address is tested every
    `ping_s`. A list without any link counts for `listed_s`. A call waits for a person for at
    most `waits_s`.
    """

    first_wait_s: float = 10.0
    again_wait_s: float = 2.0
    connect_s: float = 60.0
    answer_s: float = 30.0
    waits_s: float = 3600.0
    rest_s: float = 1.0
    rest_max_s: float = 300.0
    steady_s: float = 30.0
    idle_s: float = 900.0
    ping_s: float = 240.0
    listed_s: float = 3600.0
    links_max: int = 100
    connects_max: int = 4
    close_s: float = 8.0
