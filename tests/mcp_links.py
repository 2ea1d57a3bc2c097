"""Makes links to the hostile tool server for tests, in every way in which it is reached."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from perdure.app.children.children import LaunchedChildren
from perdure.ports.system.children import ChildProgram
from perdure.ports.system.outgoing import DIRECT
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief
from perdure.tools.mcp.connecting import connect_address, connect_program
from perdure.tools.mcp.link import (
    InputNeeded,
    LinkTerms,
    Sampler,
    ServerAnswer,
    ServerLink,
    WordsPiece,
)

Kind = Literal["stdio", "modern", "http"]
KINDS: tuple[Kind, ...] = ("stdio", "modern", "http")


class Links:
    """Connects to the hostile server. `modern` is the version without a handshake, which it speaks
    over standard input and output."""

    def __init__(self, hostile: HostileMcp, children: LaunchedChildren) -> None:
        self.children = children
        self._hostile = hostile

    @asynccontextmanager
    async def __call__(
        self,
        kind: Kind,
        *mischief: str,
        amount: int = 0,
        calls: Path | None = None,
        headers: dict[str, str] | None = None,
        token: str = "",
        **terms: Any,
    ) -> AsyncIterator[ServerLink]:
        """Yield a link, and close it in the end. `terms` are those of the link."""
        given = LinkTerms(**terms)
        kinds = (*mischief, "modern") if kind == "modern" else mischief
        wrong = Mischief(*kinds, amount=amount, calls=calls)
        if kind == "http":
            async with self._hostile.over_http(wrong, token=token) as server:
                link = await connect_address(
                    server.url, headers or {}, outgoing=DIRECT, terms=given
                )
                try:
                    yield link
                finally:
                    await link.close()
            return
        program = ChildProgram(argv=tuple(self._hostile.command(wrong)))
        link = await connect_program(program, children=self.children, terms=given)
        try:
            yield link
        finally:
            await link.close()


def unheard(words: str) -> None:
    """Listen to no progress."""


async def answer_of(
    link: ServerLink, tool: str, *, sampler: Sampler | None = None, **arguments: Any
) -> ServerAnswer:
    """Call a tool, and return its answer."""
    answer = await link.call(f"call-{tool}", tool, arguments, report=unheard, sampler=sampler)
    assert isinstance(answer, ServerAnswer)
    return answer


async def said(
    link: ServerLink, tool: str, *, sampler: Sampler | None = None, **arguments: Any
) -> str:
    """Call a tool, and return its text."""
    return text_of(await answer_of(link, tool, sampler=sampler, **arguments))


def text_of(answer: ServerAnswer | InputNeeded) -> str:
    """Return the only text of an answer."""
    assert isinstance(answer, ServerAnswer)
    (piece,) = answer.pieces
    assert isinstance(piece, WordsPiece)
    return piece.text


async def until(is_true: Callable[[], bool], *, within_s: float = 5.0) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(within_s):
        while not is_true():
            await asyncio.sleep(0.01)
