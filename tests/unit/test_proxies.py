"""Checks which proxy a server is reached over, and what is told of settings that name none."""

import os
import ssl
from pathlib import Path
from urllib.parse import quote

import pytest

from perdure.app.config.loading import ConfigError, parse
from perdure.app.config.network import NetworkSettings, network_of
from perdure.app.network.proxies import (
    Proxies,
    UnusableProxy,
    exemptions_of,
    is_this_machine,
    proxy_of,
)
from perdure.app.wiring.storage import database_address

PASSWORD = "hunter2secret"


def settings_of(tmp_path: Path, section: str = "", **environ: str) -> NetworkSettings:
    file = tmp_path / "perdure.toml"
    text = f"[network]\n{section}\n" if section else ""
    file.write_text(text)
    return network_of(parse(text.encode(), file, environ), file, environ)


def way(proxies: Proxies, scheme: str, host: str, port: int | None = None) -> str:
    proxy = proxies.between(scheme, host, port)
    return "" if proxy is None else proxy.shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        ("HTTP://Proxy.Example.:3128/", "http://proxy.example:3128"),
        ("proxy.example:3128", "http://proxy.example:3128"),
        ("https://proxy.example", "https://proxy.example:443"),
        ("socks://10.0.0.1", "socks5://10.0.0.1:1080"),
        ("socks5h://[::1]:9050", "socks5h://[::1]:9050"),
        ("socks4a://p:1", "socks4a://p:1"),
        ("http://ada:p%40ss@p:1", "http://p:1"),
        ("http://ada:@p:1", "http://p:1"),
        ("ada:pass@p:1", "http://p:1"),
    ],
)
def test_an_address_names_a_proxy(text: str, shown: str) -> None:
    assert proxy_of(text).shown == shown


def test_user_and_password_are_decoded_and_never_shown() -> None:
    proxy = proxy_of("socks5://a%3Ada:p%40ss%25@p:1")
    assert proxy.user is not None
    assert (proxy.user.reveal(), proxy.password.reveal()) == ("a:da", "p@ss%")
    assert "p@ss" not in repr(proxy) + proxy.shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "3128",
        "proxy.example",
        "ftp://proxy.example:21",
        "http//proxy.example:3128",
        "http:/proxy.example:3128",
        "http://:3128",
        "http://p:0",
        "http://p:65536",
        "http://p:x",
        "http://p:1/path",
        "http://p:1?q",
        f"http://ada:{PASSWORD}/more@p:1",
        f"http://ada:{PASSWORD} @p:1",
        f"http://a%3Ada:{PASSWORD}@p:1",
        "socks5://a:" + "x" * 256 + "@p:1",
        "http://[::1:3128",
        "http://1.2.3:1",
        "http://a\nb:1",
    ],
)
def test_another_text_names_none_and_is_not_quoted(text: str) -> None:
    with pytest.raises(UnusableProxy) as refused:
        proxy_of(text)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("entries", "covered", "others"),
    [
        ("*", ["a", "10.0.0.1", "::1"], []),
        ("example.com", ["example.com", "EXAMPLE.com.", "a.b.example.com"], ["badexample.com"]),
        (".example.com", ["example.com", "a.example.com"], ["badexample.com"]),
        ("*.example.com", ["a.example.com"], ["badexample.com", "com"]),
        ("10.0.0.0/8", ["10.2.3.4", "::ffff:10.2.3.4"], ["11.0.0.1", "ten.example"]),
        ("169.254/16", ["169.254.169.254"], ["169.253.0.1"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.11", "110.0.0.1"]),
        ("fd00::/8", ["fd12::1", "[fd12::1]"], ["fe80::1"]),
        ("::1", ["::1", "[::1]", "0:0:0:0:0:0:0:1"], ["::2"]),
        ("[::1]", ["::1"], ["::2"]),
        ("http://example.com/", ["example.com"], ["example.org"]),
        ("a, b  c,,d", ["a", "b", "c", "d"], ["e"]),
        ("bücher.example", ["xn--bcher-kva.example", "bücher.example"], ["bucher.example"]),
        ("0.1", [], ["10.0.0.1"]),
        ("10.0.0.0/99", [], ["10.0.0.1"]),
        ("", [], ["a", "127.0.0.1"]),
    ],
)
def test_an_entry_exempts_what_it_names(
    entries: str, covered: list[str], others: list[str]
) -> None:
    exemptions = exemptions_of(entries)
    assert [each for each in covered if not exemptions.cover(each, 443)] == []
    assert [each for each in others if exemptions.cover(each, 443)] == []


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        ("example.com:8443", "a.example.com"),
        ("10.0.0.0/8:8443", "10.1.1.1"),
        ("[::1]:8443", "::1"),
        ("*:8443", "anything"),
        ("*.example.com:8443", "a.example.com"),
    ],
)
def test_an_entry_with_a_port_exempts_that_port_only(entry: str, host: str) -> None:
    exemptions = exemptions_of(entry)
    assert exemptions.cover(host, 8443)
    assert not exemptions.cover(host, 443)


def test_entries_that_cannot_be_read_are_remembered() -> None:
    assert exemptions_of("a, 10.0.0.0/99, [::1").unread == ("10.0.0.0/99", "[::1")


@pytest.mark.parametrize("host", ["localhost", "a.localhost.", "127.9.9.9", "::1", "[::1]", "::"])
def test_an_address_of_this_machine_is_asked_of_no_other(host: str) -> None:
    far, near = proxy_of("http://10.0.0.1:3128"), proxy_of("http://127.0.0.1:3128")
    assert is_this_machine(host)
    assert Proxies(http=far).between("http", host, 1) is None
    assert Proxies(http=near).between("http", host, 1) == near
    assert Proxies(http=far).between("http", "192.168.0.1", 1) == far


def test_each_scheme_has_its_variable(tmp_path: Path) -> None:
    proxies = settings_of(
        tmp_path, HTTPS_PROXY="http://s:1", HTTP_PROXY="http://h:1", ALL_PROXY="socks5://a:1"
    ).proxies
    for scheme, shown in (
        ("https", "http://s:1"),
        ("wss", "http://s:1"),
        ("http", "http://h:1"),
        ("ws", "http://h:1"),
    ):
        assert way(proxies, scheme, "example.com") == shown
    proxies = settings_of(tmp_path, HTTPS_PROXY="http://s:1", ALL_PROXY="socks5://a:1").proxies
    assert way(proxies, "http", "example.com") == "socks5://a:1"
    proxies = settings_of(tmp_path, HTTPS_PROXY="http://s:1").proxies
    assert way(proxies, "http", "example.com") == ""
    assert settings_of(tmp_path).proxies.named == ()


def test_small_letters_win_and_an_empty_variable_is_unset(tmp_path: Path) -> None:
    both = settings_of(tmp_path, https_proxy="http://small:1", HTTPS_PROXY="http://big:1")
    assert way(both.proxies, "https", "a.example") == "http://small:1"
    empty = settings_of(tmp_path, https_proxy=" ", HTTPS_PROXY="http://big:1")
    assert way(empty.proxies, "https", "a.example") == "http://big:1"
    exempt = settings_of(tmp_path, ALL_PROXY="http://p:1", no_proxy="a.example")
    assert way(exempt.proxies, "https", "a.example") == ""


def test_the_file_wins_over_variables_and_still_obeys_the_exemptions(tmp_path: Path) -> None:
    found = settings_of(
        tmp_path,
        'proxy = "socks5://f:1"',
        HTTPS_PROXY="http://v:1",
        HTTP_PROXY="no proxy at all",
        NO_PROXY="10.0.0.0/8",
    )
    assert way(found.proxies, "https", "a.example") == "socks5://f:1"
    assert way(found.proxies, "http", "a.example") == "socks5://f:1"
    assert way(found.proxies, "https", "10.1.2.3") == ""


def test_a_wrong_proxy_is_told_with_its_line_or_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_of(tmp_path, f'\nproxy = "htp://ada:{PASSWORD}@p:1"')
    assert f"{tmp_path / 'perdure.toml'}:3: [network] proxy must be" in str(refused.value)
    assert PASSWORD not in str(refused.value)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"):
        with pytest.raises(ConfigError) as refused:
            settings_of(tmp_path, **{name: f"htp://ada:{PASSWORD}@p:1"})
        assert str(refused.value).startswith(f"{name}: must be an address")
        assert PASSWORD not in str(refused.value)


def test_a_proxy_is_read_from_a_variable_or_a_file_like_any_secret(tmp_path: Path) -> None:
    found = settings_of(tmp_path, 'proxy = { env = "MY_PROXY" }', MY_PROXY="http://p:1")
    assert way(found.proxies, "https", "a.example") == "http://p:1"


def test_authorities_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    broken, folder = tmp_path / "broken.pem", tmp_path / "folder"
    broken.write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    folder.mkdir()
    empty = tmp_path / "empty.pem"
    empty.touch()
    for file in (broken, folder, empty, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError) as refused:
            settings_of(tmp_path, f'\n\nca_file = "{file.name}"')
        assert f"perdure.toml:4: [network] ca_file: {file} cannot be used" in str(refused.value)
    for file in (broken, folder, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError) as refused:
            settings_of(tmp_path, SSL_CERT_FILE=str(file))
        assert str(refused.value).startswith(f"SSL_CERT_FILE: {file} cannot be used")


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("postgresql://u:p%40@db/x?sslmode=verify-full", "&sslrootcert={}"),
        ("postgresql://db/x?application_name=a&sslmode=verify-ca", "&sslrootcert={}"),
        ("postgresql://db/x?sslmode=verify-full&sslrootcert=/own.pem", ""),
        ("postgresql://db/x?sslmode=require", ""),
        ("postgresql:///x", ""),
    ],
)
def test_the_authorities_verify_a_database_that_asks_for_it(
    tmp_path: Path, url: str, more: str
) -> None:
    text = f'[store]\nurl = "{url}"\n[network]\nca_file = "own.pem"\n'
    file = tmp_path / "perdure.toml"
    expected = url + more.format(quote(str(tmp_path / "own.pem"), safe=""))
    assert database_address(parse(text.encode(), file, {}), file) == expected
    without = text.replace('ca_file = "own.pem"', "")
    assert database_address(parse(without.encode(), file, {}), file) == url


def test_an_empty_file_in_the_variable_trusts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, os.devnull)
    trusted = settings_of(tmp_path, SSL_CERT_FILE=os.devnull).trusted
    assert isinstance(trusted, ssl.SSLContext)
    assert trusted.get_ca_certs() == []
    assert settings_of(tmp_path).trusted is None
