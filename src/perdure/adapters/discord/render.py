"""Writes markdown in Discord's dialect. Pure.

Discord knows three levels of headings, but no tables, no horizontal rules and no nested quotes, and
it turns some plain text into mentions, spoilers and timestamps. So plain text is escaped, tables
become code blocks, and the rest is written out. Lengths are those of the result, in code points.
"""

import re
from typing import Final, assert_never

from perdure.domain.markdown.parse import parse
from perdure.domain.markdown.plain import to_plain
from perdure.domain.markdown.tree import (
    Block,
    Break,
    Code,
    Emphasis,
    Heading,
    HorizontalRule,
    Image,
    Inline,
    InlineCode,
    Link,
    List,
    ListItem,
    Paragraph,
    Quote,
    RawHtml,
    Strong,
    Struck,
    Table,
    Text,
)

# Discord's limit for one message.
TEXT_MAX: Final = 2000
# A zero-width space. It separates characters that together would mean something to Discord.
_GAP: Final = "\u200b"
_FENCE: Final = "```"
_RULE: Final = "\u2014\u2014\u2014"

_ADDRESS: Final = re.compile(r"https?://[^\s<>]+")
# Characters that mean something to Discord inside a line, and so get a backslash.
_MARKS: Final = re.compile(
    r"[\\*_`~]"
    r"|\|(?=\|)|(?<=\|)\|"  # spoilers
    r"|<(?=@[!&]?\d|#\d|a?:\w+:\d|t:-?\d|id:|/[^<>:\n]+:\d)"  # mentions, emoji, times, commands
    r"|(?<=\])\("  # links
)
_GROUP: Final = re.compile(r"@(?=everyone|here)")
# What begins a heading, a list, small text or a quote at the start of a line.
_LINE_START: Final = re.compile(r"^([ \t]*)(#{1,3}[ \t]|-#?[ \t]|>)", re.MULTILINE)
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9_+.#-]{1,30}\Z")
_LINKABLE: Final = re.compile(r"https?://\S", re.IGNORECASE)


def render(text: str) -> str:
    """Return a markdown text in Discord's dialect."""
    return _blocks(parse(text)) or _text(text.strip())


def plain(text: str) -> str:
    """Return the text with everything escaped, so that it is shown letter by letter.

    If that makes it too long for one message, only mentions of groups are broken up.
    """
    shown = _lines(_text(text))
    return shown if len(shown) <= TEXT_MAX else _GROUP.sub(f"@{_GAP}", text)


def size(text: str) -> int:
    """Return the length of the rendered text, in code points."""
    return len(render(text))


def _blocks(blocks: tuple[Block, ...]) -> str:
    shown = ""
    before: Block | None = None
    for block in blocks:
        piece = _block(block)
        if not piece:
            continue
        # Discord draws space below a heading, so one line break is enough.
        gap = "" if before is None else "\n" if isinstance(before, Heading) else "\n\n"
        shown, before = shown + gap + piece, block
    return shown


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return _lines(_inlines(block.children))
        case Heading():
            words = _inlines(block.children).replace("\n", " ")
            return f"{'#' * block.level} {words}" if block.level <= 3 else _around("**", words)
        case Code():
            return _code(block.text, block.language)
        case Quote():
            return _quote(block)
        case List():
            return _list(block)
        case Table():
            return _code(to_plain((block,)), "")
        case HorizontalRule():
            return _RULE
        case RawHtml():
            return _lines(_text(block.text.strip()))
        case _:
            assert_never(block)


def _lines(text: str) -> str:
    """Escape the line starts of a paragraph that would begin a heading, a list or a quote."""
    return _LINE_START.sub(r"\1\\\2", text)


def _code(text: str, language: str) -> str:
    # Discord knows no longer fence, so three backquotes inside the code are separated.
    body = text.replace(_FENCE, f"`{_GAP}``").rstrip("\n")
    known = language if _LANGUAGE.match(language) else ""
    return f"{_FENCE}{known}\n{body or _GAP}\n{_FENCE}"


def _quote(quote: Quote) -> str:
    inner = _blocks(_flat(quote.blocks))
    return "\n".join(f"> {line}" for line in inner.split("\n")) if inner else ""


def _flat(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Move quotes inside quotes to the outer level: Discord would show the inner mark as text."""
    flat: list[Block] = []
    for block in blocks:
        flat += _flat(block.blocks) if isinstance(block, Quote) else (block,)
    return tuple(flat)


def _list(items: List) -> str:
    return "\n".join(
        _item(item, f"{items.start + index}." if items.is_ordered else "-")
        for index, item in enumerate(items.items)
    )


def _item(item: ListItem, mark: str) -> str:
    box = {None: "", True: "\u2611 ", False: "\u2610 "}[item.is_done]
    first, *rest = [piece for piece in map(_block, item.blocks) if piece] or [""]
    if first.startswith(_FENCE):
        first, rest = "", [first, *rest]
    body = "\n".join([f"{box}{first}".rstrip(), *rest])
    return f"{mark} {_indented(body)}".rstrip()


def _indented(text: str) -> str:
    """Indent all lines but the first by two spaces, except code, which would show them."""
    head, *tail = text.split("\n")
    shown, is_code = [head], False
    for line in tail:
        is_fence = line.lstrip().startswith(_FENCE)
        shown.append(line if is_code or is_fence or not line else f"  {line}")
        is_code ^= is_fence
    return "\n".join(shown)


def _inlines(children: tuple[Inline, ...]) -> str:
    shown = ""
    for child in children:
        piece = _inline(child)
        # Without a gap, two marks side by side would be read as one.
        is_joined = shown.endswith("*") and piece.startswith("*")
        shown += _GAP + piece if is_joined else piece
    return shown


def _inline(child: Inline) -> str:
    match child:
        case Text():
            return _text(child.text)
        case Emphasis():
            return _around("*", _inlines(child.children))
        case Strong():
            return _around("**", _inlines(child.children))
        case Struck():
            return _around("~~", _inlines(child.children))
        case InlineCode():
            return _inline_code(child.text)
        case Link():
            return _link(_inlines(child.children), child.target)
        case Image():
            return _link(_text(child.alt or "image"), child.target)
        case Break():
            return "\n"
        case _:
            assert_never(child)


def _around(mark: str, words: str) -> str:
    return f"{mark}{words}{mark}" if words.strip() else words


def _inline_code(text: str) -> str:
    words = text.replace("\n", " ").replace("``", f"`{_GAP}`")
    if "`" not in words:
        return f"`{words}`" if words.strip() else f"`{_GAP}`"
    return f"`` {words} ``"


def _link(words: str, target: str) -> str:
    address = re.sub(r"\s", "%20", target)
    if not words or words in (address, _text(address)):
        return address
    if not address or _text(address) == f"mailto:{words}":
        return words
    # Discord does not render a link whose words look like a URL, since they could lie about the
    # target.
    if not _LINKABLE.match(address) or "://" in words:
        return f"{words} ({address})"
    return f"[{words}]({address.replace('(', '%28').replace(')', '%29')})"


def _text(text: str) -> str:
    """Escape plain text but leave URLs alone: a backslash inside a URL would change it."""
    shown, end = "", 0
    for address in _ADDRESS.finditer(text):
        shown += _escaped(text[end : address.start()]) + address.group()
        end = address.end()
    return shown + _escaped(text[end:])


def _escaped(text: str) -> str:
    return _GROUP.sub(f"@{_GAP}", _MARKS.sub(r"\\\g<0>", text))
