"""Checks how web pages become text, and that no page takes more time than its length is worth."""

import time

import pytest

from perdure.domain.reading.markup import MarkupTag, parts_of
from perdure.domain.reading.pages import MARKUP_MAX, PAGE_TEXT_MAX, in_html
from perdure.domain.reading.texts import CUT, TEXT_MAX

ADDRESS = "https://garden.example/a/b"


def read(page: str) -> str:
    return in_html(page.encode(), address=ADDRESS)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<title>Beans &amp; peas</title><p>Sow.", "Beans & peas\n\nSow."),
        ("<h1>One</h1>a<h3>Two <em>three</em></h3>b", "# One\n\na\n\n### Two three\n\nb"),
        ("<p>one\n  two</p><p>three<br>four", "one two\n\nthree\nfour"),
        ("<ul><li>a<li><p>b</p></ul><ol><li>c</li><li>d</ol>", "- a\n- b\n\n1. c\n2. d"),
        ("<ul><li>a<ul><li>b</ul></ul>", "- a\n\n  - b"),
        ("<table><tr><th>x<th>y<tr><td>1<td>2</table>", "x | y\n1 | 2"),
        ("<pre>if x:\n    y()</pre>", "```\nif x:\n    y()\n```"),
        ("use <code>a = 1</code>, then <b>b</b>", "use `a = 1`, then b"),
        ("<a href='../c?d=1&amp;e'> May</a>.", "[May](https://garden.example/c?d=1&e)."),
        ("<a href=#top>up</a> <a href='javascript:x()'>do</a> <a>no</a>", "up do no"),
        ("<base href='https://other.example/x/'><a href=y>z</a>", "[z](https://other.example/x/y)"),
        ("<a href=//h/p(1)>x</a>", "[x](https://h/p(1%29)"),
        ("<img src=x alt='A bean'><img src=y>", "[picture: A bean]"),
        ("a<script>if (a</b) '<p>'</script><style>p{}</style><svg><p>x</svg>b", "ab"),
        ("<nav><a href=/>Home</a></nav><p>Text", "Text"),
        ("<nav>open<main>Text</main>", "Text"),
        ("<p class=it's>Don't <!-- <p>no --> <!doctype x> stop", "Don't stop"),
        ("1 < 2 && 3 > 2 <3", "1 < 2 && 3 > 2 <3"),
        ("&#8364; &euro; &#x20ac &#99999999999; &nosuch;", "€ € € \ufffd &nosuch;"),
        ("&#" + "1" * 10_000 + ";", "\ufffd"),
        ("<P>one</P\n><BR/>two<a b", "one\n\ntwo"),
        ("<button>Buy</button><select><option>1</select>left", "left"),
    ],
)
def test_a_page_is_told_in_words(page: str, text: str) -> None:
    assert read(page) == text


def test_without_an_address_only_whole_links_are_told() -> None:
    page = b"<a href=/x>a</a> <a href=https://h/y>b</a>"
    assert in_html(page) == "a [b](https://h/y)"


def test_attributes_are_read_as_browsers_read_them() -> None:
    (tag,) = parts_of("<A HREF='x>y' href=z a=\"'\" b = c/d e>")
    assert isinstance(tag, MarkupTag)
    assert tag.name == "a"
    assert tag.attributes == {"href": "x>y", "a": "'", "b": "c/d", "e": ""}


def test_a_long_page_is_cut_and_says_so() -> None:
    long = "word " * 1_000_000
    assert in_html(long.encode()).removesuffix(f"\n{CUT}") == long[:TEXT_MAX].rstrip()
    assert read(long).endswith(CUT)
    assert len(read(long)) < PAGE_TEXT_MAX + 100
    hidden = "<i >" * (MARKUP_MAX // 4 + 1)
    assert read(hidden) == f"\n{CUT}"


MANY = 20_000
HOSTILE = {
    "comments": "<!--",
    "declarations": "<!",
    "questions": "<?",
    "cdata": "<![CDATA[",
    "ends": "</",
    "signs": "<",
    "tags": "<a ",
    "tags within tags": "<a <",
    "open quotes": '<a b="',
    "both quotes": "<a b='\"",
    "equals": "<a =",
    "slashes": "<a / ",
    "elements": "<div>",
    "unseen": "<nav>",
    "raw": "<script>",
    "titles": "<title>",
    "lists": "<ul><li>",
    "tables": "<table><tr><td>",
    "links": "<a href=x>",
    "code": "<pre>",
    "references": "&#1",
    "signs and": "&",
    "blanks": " \n",
    "names": "<a" + " " * 50,
}


def seconds(page: str) -> float:
    """Return the processor time of this thread: others use this machine too."""
    begun = time.thread_time()
    read(page)
    return time.thread_time() - begun


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE.keys())
def test_eight_times_the_markup_takes_about_eight_times_as_long(piece: str) -> None:
    # The best of three tries, because a busy machine makes some of them slow.
    short = min(seconds(piece * MANY) for _ in range(3))
    tries = (seconds(piece * MANY * 8) for _ in range(3))
    assert any(long < 8 * 3 * short + 0.2 for long in tries)


@pytest.mark.parametrize("begin", ["<a href='", "<", "<!--", "&", "&#", "<a b=", "<script>", "</x"])
def test_a_megabyte_in_one_place_takes_no_time(begin: str) -> None:
    assert seconds(begin + "1" * 1_000_000) < 1
