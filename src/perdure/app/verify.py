"""Is everything stored sound? The database's own check, then every session against the rules."""

from collections.abc import Callable
from typing import Final

from perdure.domain.checker import violations
from perdure.domain.errors import Corrupt
from perdure.domain.ids import SessionId
from perdure.ports.gateway import Report
from perdure.ports.history import Archive, Diagnostics, Page

PAGE: Final = 200


async def verify(
    archive: Archive, diagnostics: Diagnostics, *, tell: Callable[[int], None] | None = None
) -> Report:
    """Look at everything once; `tell` hears how many sessions have been looked at."""
    found = [f"database: {each}" for each in await diagnostics.integrity()]
    page, looked_at = Page(limit=PAGE, with_unlisted=True), 0
    while views := await archive.sessions(principal=None, page=page):
        for view in views:
            found += await _session(diagnostics, view.id)
            looked_at += not view.kind  # people count the sessions they talk in
            if tell is not None:
                tell(looked_at)
        after = (views[-1].active_at, views[-1].id)
        page = Page(after=after, limit=PAGE, with_unlisted=True)
    return Report(looked_at, found)


async def _session(diagnostics: Diagnostics, session: SessionId) -> list[str]:
    try:
        return violations(await diagnostics.record(session))
    except Corrupt as error:
        return [f"{session}: {error.message}"]
