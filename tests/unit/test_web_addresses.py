"""Checks that an address of the web is written in one way, whatever way it came."""

import pytest

from perdure.tools.web.addresses import is_same_site, web_address


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("HTTPS://Docs.Python.org", "https://docs.python.org/"),
        (" https://docs.python.org:443/3#top ", "https://docs.python.org/3"),
        ("https://docs.python.org./3", "https://docs.python.org/3"),
        ("http://h:8080/a/../b/./c", "http://h:8080/b/c"),
        ("http://h/3/%2e%2e/%2E%2e/secret", "http://h/secret"),
        ("http://h/%7eada/%2f?q=a+b%20c", "http://h/~ada/%2F?q=a+b%20c"),
        ("http://h?x", "http://h/?x"),
        ("http://h//a", "http://h//a"),
        ("http://\u0430pple.com/", "http://xn--pple-43d.com/"),
        ("http://ab。com/ü", "http://ab.com/%C3%BC"),
        ("http://[::FFFF:1.2.3.4]:80/", "http://[::ffff:102:304]/"),
    ],
)
def test_an_address_is_written_in_one_way(given: str, written: str) -> None:
    assert web_address(given) == written


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("https://h/a", "https://h/b", True),
        ("http://h/a", "https://h/a", True),
        ("https://h/a", "https://www.h/a", True),
        ("http://www.h/", "https://h/", True),
        ("https://h/a", "http://h/a", False),
        ("https://h/", "https://h:8443/", False),
        ("http://h:8080/", "https://h/", False),
        ("https://h.org/", "https://h.org.evil.com/", False),
        ("https://h.org/", "https://sub.h.org/", False),
    ],
)
def test_a_redirect_stays_on_a_site_or_leaves_it(one: str, other: str, *, is_same: bool) -> None:
    assert is_same_site(one, other) is is_same
