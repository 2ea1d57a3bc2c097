"""Hands a test what a watcher is told, one item after the other."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from perdure.domain.turn.watching import Told


async def one_by_one(
    watching: AsyncGenerator[Sequence[Told], None],
) -> AsyncGenerator[Told | None, None]:
    """Yield each item that a watcher is told, or None where nothing came for a while. Closes the
    stream that it reads."""
    async with aclosing(watching) as stream:
        async for told in stream:
            if not told:
                yield None
            for each in told:
                yield each
