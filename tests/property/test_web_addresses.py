"""Checks that an address of the web, once it is written in our way, means the same to everybody."""

from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from perdure.domain.errors import Rejected
from perdure.tools.web.addresses import site_of, web_address

WORDS = "http:// https:// a B.c @ : 80 / // .. %2e % ? # \\ [ ] ::1 xn-- ü 。 &= 127.1 . %25"
PIECES = st.sampled_from([*WORDS.split(), " ", "\t", "\uff20", "\uff0e"])


@given(st.lists(PIECES, max_size=12), st.text(max_size=5))
def test_what_is_written_stays_and_is_what_is_asked_for(pieces: list[str], rest: str) -> None:
    try:
        written = web_address("http://h" + "".join(pieces) + rest)
    except Rejected:
        return
    assert web_address(written) == written
    assert str(URL(written)) == written
    assert URL(written).user is None
    assert written.startswith(f"{site_of(written)}/")
