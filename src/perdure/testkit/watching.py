"""Hearing what a watcher is told, one thing after the other."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from perdure.domain.turn.watching import Told


async def one_by_one(
    watching: AsyncGenerator[Sequence[Told], None],
) -> AsyncGenerator[Told | None, None]:
    """What is told, each alone; None where nothing came for a while. Closes what it hears."""
    async with aclosing(watching) as stream:
        async for told in stream:
            if not told:
                yield None
            for each in told:
                yield each
