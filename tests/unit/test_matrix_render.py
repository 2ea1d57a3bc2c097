"""Checks how Markdown is rendered for a Matrix room."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.adapters.matrix import render
from perdure.domain.markdown.split import split

TORTURE = (Path(__file__).parents[1] / "golden" / "torture.md").read_text("utf-8")
# The tags that the client-server API allows in a message, as far as the adapter writes them.
TAGS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "code", "blockquote", "ul", "ol", "li"),
    *("table", "thead", "tbody", "tr", "th", "td", "hr", "br", "em", "strong", "del", "a"),
}


def sent(content: object) -> Any:
    """Return the content as the server gets it."""
    return msgspec.json.decode(msgspec.json.encode(content))


def test_a_message_is_words_and_html_and_rings_no_bell() -> None:
    assert sent(render.message("Is **that** so, @room?")) == {
        "msgtype": "m.text",
        "body": "Is that so, @room?",
        "format": "org.matrix.custom.html",
        "formatted_body": "<p>Is <strong>that</strong> so, @room?</p>",
        "m.mentions": {},
    }


def test_an_edit_says_it_for_old_clients_and_for_new_ones() -> None:
    content = sent(render.edit("*better*", of="$first"))
    assert content["body"] == "* better"
    assert content["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$first"}
    assert content["m.new_content"]["formatted_body"] == "<p><em>better</em></p>"
    assert content["m.mentions"] == content["m.new_content"]["m.mentions"] == {}


@pytest.mark.parametrize(
    ("thread", "reply_to", "relation"),
    [
        ("", "", None),
        ("", "$asked", {"m.in_reply_to": {"event_id": "$asked"}}),
        (
            "$root",
            "",
            {
                "rel_type": "m.thread",
                "event_id": "$root",
                "is_falling_back": True,
                "m.in_reply_to": {"event_id": "$root"},
            },
        ),
        (
            "$root",
            "$asked",
            {
                "rel_type": "m.thread",
                "event_id": "$root",
                "is_falling_back": True,
                "m.in_reply_to": {"event_id": "$asked"},
            },
        ),
    ],
)
def test_a_message_names_its_thread_and_what_it_answers(
    thread: str, reply_to: str, relation: object
) -> None:
    content = sent(render.message("x", thread=thread, reply_to=reply_to))
    assert content.get("m.relates_to") == relation


@pytest.mark.parametrize(
    ("mime", "kind"),
    [
        ("image/png", "m.image"),
        ("audio/ogg", "m.audio"),
        ("video/mp4", "m.video"),
        ("text/plain", "m.file"),
        ("", "m.file"),
    ],
)
def test_a_file_says_what_it_is(mime: str, kind: str) -> None:
    file = render.Attached(name="a b.bin", mime=mime, size=3, url="mxc://x/y")
    content = sent(render.file_message(file, keys=None, caption="", relates_to=None))
    assert (content["msgtype"], content["url"]) == (kind, "mxc://x/y")
    assert content["body"] == content["filename"] == "a b.bin"
    assert content["info"]["size"] == 3


def test_a_sealed_file_has_no_address_in_the_open() -> None:
    file = render.Attached(name="a", mime="image/png", size=3, url="mxc://x/y")
    content = sent(
        render.file_message(file, keys={"iv": "i"}, caption="the *map*", relates_to=None)
    )
    assert "url" not in content
    assert content["file"] == {"iv": "i", "url": "mxc://x/y"}
    assert (content["body"], content["filename"]) == ("the map", "a")


class Tags(HTMLParser):
    """Collects the tags and link targets of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.targets += [value or "" for name, value in attrs if name == "href"]


def test_the_torture_text_brings_no_tags_of_its_own() -> None:
    parser = Tags()
    parser.feed(render.message(TORTURE).formatted_body)
    assert parser.seen <= TAGS
    assert all(
        target.startswith(("http://", "https://", "mailto:", "matrix:"))
        for target in parser.targets
    )


@pytest.mark.parametrize("is_escaped", [False, True])
def test_every_piece_fits_an_event_even_as_an_edit_that_is_sealed(is_escaped: bool) -> None:
    text = (TORTURE + "\n\n") * 12
    pieces = split(text, size=lambda piece: render.size(piece, is_escaped=is_escaped), limit=16_000)
    assert len(pieces) > 1
    for piece in pieces:
        event = msgspec.json.encode(render.edit(piece, of="$" + "x" * 43))
        assert len(event) * 4 / 3 < 60_000


def test_what_renders_to_nothing_is_shown_as_it_was_written() -> None:
    assert render.message("[a]: http://example.org").body.strip()
