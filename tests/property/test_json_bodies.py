"""Checks that a request's text arrives whole, whatever half characters its JSON holds."""

import json

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.domain.text import storable
from perdure.web.http.bodies import whole_characters

ANY = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cs"]),
        st.sampled_from('\\"ud83dDC00😀\ufffd'),
    )
)


@given(ANY, st.booleans())
@example("end \ud83d", True)
@example("\ud83d\ud83d\ude00\ude00", True)
@example("\\ud83d \\\ud83d", True)
def test_half_characters_become_replacements_and_nothing_else_changes(
    text: str, is_upper: bool
) -> None:
    raw = json.dumps({"text": text}).encode()
    if is_upper:
        raw = raw.replace(b"\\ud83", b"\\uD83")

    got = msgspec.json.decode(whole_characters(raw))

    assert storable(got["text"]) == storable(json.loads(raw)["text"])
    assert not any("\ud800" <= each <= "\udfff" for each in got["text"])
