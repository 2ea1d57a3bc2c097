"""Checks how addresses of servers are shown."""

import pytest

from perdure.domain.urls import below, secrets_in_url, shown_database, shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
        ("https://me:secret@host/v1?key=secret#secret", "https://host/v1"),
        ("https://host/k/secret/v1", "https://host/…/…/v1"),
        ("https://[::1]:8080/API/v1/", "https://[::1]:8080/API/v1/"),
        ("https://host", "https://host"),
        ("http://host:secret/v1", "an address that cannot be shown"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@[::1]:5432/db?password=secret", "postgresql://[::1]:5432/db"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db"),
    ],
)
def test_a_database_is_shown_by_its_name(url: str, shown: str) -> None:
    assert shown_database(url) == shown


def test_what_may_be_secret_is_found_in_both_of_its_forms() -> None:
    found = secrets_in_url(
        "https://some%20one:pass%2Fword@host/v1/folder-key?key=query-key&bare-one"
    )

    for secret in ("some one", "pass%2Fword", "pass/word", "folder-key", "query-key", "bare-one"):
        assert secret in found
    assert "v1" not in found
    assert sorted(found, key=len, reverse=True) == list(found)


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("http://host/v1", "http://host/v1/models"),
        ("http://host/v1/", "http://host/v1/models"),
        ("http://host", "http://host/models"),
        ("http://me:word@host/v1?key=1", "http://me:word@host/v1/models?key=1"),
    ],
)
def test_a_path_goes_before_the_query(base: str, address: str) -> None:
    assert below(base, "models") == address
