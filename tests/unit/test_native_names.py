"""Checks which names of conversations and ids of messages the native API takes."""

from collections.abc import Callable

import pytest

from perdure.domain.errors import Rejected
from perdure.web.api.native import ID_MAX, NAME_MAX, client_id, conversation_name

BOTH = [(conversation_name, NAME_MAX), (client_id, ID_MAX)]


@pytest.mark.parametrize(("stored", "most"), BOTH)
def test_a_name_may_be_as_long_as_the_error_says(stored: Callable[[str], str], most: int) -> None:
    longest = "x" * most
    assert stored("x") == "x"
    assert stored(longest) == longest
    with pytest.raises(Rejected, match=f"1 to {most} characters"):
        stored(f"{longest}x")


@pytest.mark.parametrize(("stored", "_"), BOTH)
@pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "\x7f"])
def test_an_empty_name_and_control_characters_are_refused(
    stored: Callable[[str], str], _: int, name: str
) -> None:
    with pytest.raises(Rejected, match="no control characters"):
        stored(name)
