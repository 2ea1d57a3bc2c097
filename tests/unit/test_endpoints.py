"""Checks that each endpoint's signature says how it is called, in ways that can be documented."""

import inspect
import re
from typing import Any

import msgspec
import pytest

from perdure.domain.ids import SessionId
from perdure.domain.journal.records import SessionView
from perdure.ports.people.principals import Principal
from perdure.web.endpoints import Endpoint, OperatorServices
from perdure.web.routes import ENDPOINTS
from perdure.web.services import Services

POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


def name_of(endpoint: Endpoint[Any, ..., object]) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=name_of)
class TestEveryEndpoint:
    def test_is_given_its_services_the_caller_and_the_names_of_its_path(
        self, endpoint: Endpoint[Any, ..., object]
    ) -> None:
        parameters = inspect.signature(endpoint.answer).parameters.values()
        services, by, *named = [each for each in parameters if each.kind is POSITIONAL]

        assert services.annotation in (OperatorServices, Services)
        assert by.annotation is Principal
        assert len(named) == len(re.findall(r"\{\w+\}", endpoint.path))
        assert all(each.annotation is str for each in named)

    def test_takes_texts_and_bounded_numbers_that_may_be_left_out(
        self, endpoint: Endpoint[Any, ..., object]
    ) -> None:
        for each in endpoint.query:
            bounds = getattr(each.annotation, "__metadata__", [None])[0]
            assert each.default is not inspect.Parameter.empty, each.name
            if isinstance(each.default, int):
                assert bounds.ge <= each.default <= bounds.le, each.name
            else:
                assert bounds is None, each.name

    def test_refuses_what_it_does_not_know_in_its_body(
        self, endpoint: Endpoint[Any, ..., object]
    ) -> None:
        body = endpoint.takes
        if body is None:
            return
        assert endpoint.method in ("POST", "PATCH")
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.json.decode(b'{"nobody_knows_this": 1}', type=body.annotation)


def test_each_place_in_the_api_has_one_endpoint() -> None:
    names = [name_of(each) for each in ENDPOINTS]

    assert sorted(set(names)) == sorted(names)


def test_what_a_port_shows_comes_back_from_json_as_it_was() -> None:
    # The command line gets the same values from a node, as JSON, and directly from a store.
    view = SessionView(
        id=SessionId("ses_1"), conversation="home", state="open", title="", parent=None,
        is_live=True, events=3, opened_at=1, active_at=2,
    )  # fmt: skip
    sent = msgspec.json.encode(view)

    assert b'"live":true' in sent
    assert msgspec.json.decode(sent, type=SessionView) == view
