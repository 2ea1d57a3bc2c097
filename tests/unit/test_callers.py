"""Checks where a request is believed to come from, and which host names are accepted."""

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from perdure.web.http.callers import Callers


def request(remote: str, headers: Mapping[str, str]) -> Any:
    return make_mocked_request("GET", "/", headers=headers).clone(remote=remote)


@pytest.mark.parametrize(
    ("remote", "forwarded", "address"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("10.1.2.3", "198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "127.0.0.1, 198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "198.51.100.1, 10.9.9.9", "198.51.100.1"),
        ("10.1.2.3", "198.51.100.1, nonsense", "10.1.2.3"),
        ("::ffff:10.1.2.3", "2001:db8::1", "2001:db8::1"),
    ],
)
def test_only_a_trusted_proxy_says_who_is_behind_it(
    remote: str, forwarded: str, address: str
) -> None:
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}

    assert Callers(proxies=["10.0.0.0/8"]).address(request(remote, headers)) == address


@pytest.mark.parametrize(
    ("remote", "headers", "is_local"),
    [
        ("127.0.0.1", {}, True),
        ("127.0.0.1", {"Host": "127.0.0.1:8585"}, True),
        ("::1", {"Host": "[::1]:8585"}, True),
        ("::ffff:127.0.0.1", {"Host": "localhost"}, True),
        ("127.0.0.1", {"Host": "evil.example"}, False),
        ("127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}, False),
        ("127.0.0.1", {"Forwarded": "for=203.0.113.9"}, False),
        ("127.0.0.1", {"X-Real-IP": "203.0.113.9"}, False),
        ("127.0.0.1", {"Via": "1.1 proxy"}, False),
        ("203.0.113.9", {}, False),
    ],
)
def test_local_is_who_asks_from_this_machine_for_itself(
    remote: str, headers: Mapping[str, str], is_local: bool
) -> None:
    assert Callers().is_local(request(remote, headers)) is is_local


def test_a_proxy_on_this_machine_never_asks_for_itself() -> None:
    assert not Callers(proxies=["127.0.0.1"]).is_local(request("127.0.0.1", {}))


@pytest.mark.parametrize(
    ("host", "is_meant"),
    [
        ("", True),
        ("localhost:8585", True),
        ("app.localhost", True),
        ("192.0.2.7:8585", True),
        ("[2001:db8::1]:8585", True),
        ("Chat.Example:443", True),
        ("chat.example.", True),
        ("evil.example", False),
        ("chat.example.evil", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8585", False),
        ("notlocalhost:8585", False),
    ],
)
def test_a_name_that_nobody_gave_us_is_not_meant(host: str, is_meant: bool) -> None:
    headers = {"Host": host} if host else {}

    assert Callers(hosts=["chat.example"]).is_meant(request("127.0.0.1", headers)) is is_meant
    assert Callers(hosts=["*"]).is_meant(request("127.0.0.1", headers))
