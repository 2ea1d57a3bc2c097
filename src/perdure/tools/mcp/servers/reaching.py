"""Makes a link to a server as it is configured. Only here are the secrets for it revealed, also to
take them out of what it says, and the word that stands for the person in whose name it runs is
filled in."""

import asyncio
from pathlib import Path
from typing import Final, Protocol

from perdure.domain.errors import Rejected
from perdure.domain.secret import Secret
from perdure.ports.system.children import ChildProgram, Children
from perdure.ports.system.outgoing import Outgoing
from perdure.tools.mcp.connecting import connect_address, connect_program
from perdure.tools.mcp.link import LinkTerms, ServerLink
from perdure.tools.mcp.servers.settings import ServerSettings

# What stands in the configuration for the id of the person, and for whom a server is tried.
PERSON: Final = "{person}"
NOBODY: Final = "nobody"
# A shorter value, such as "1" or "debug", is no secret, and part of many words.
_SECRET_MIN: Final = 8


class ReachServer(Protocol):
    """Makes a link to a server for a person. Raises the errors of `connecting.py`."""

    async def __call__(
        self, settings: ServerSettings, *, person: str, terms: LinkTerms
    ) -> ServerLink: ...


async def reach(
    settings: ServerSettings,
    *,
    children: Children,
    outgoing: Outgoing,
    terms: LinkTerms,
    person: str = NOBODY,
) -> ServerLink:
    """Start the server, or connect to its address. Raises `Rejected` or `Transient`."""

    def filled(text: str) -> str:
        return text.replace(PERSON, person)

    if settings.url:
        headers = {name: filled(value.reveal()) for name, value in settings.headers.items()}
        return await connect_address(settings.url, headers, outgoing=outgoing, terms=terms)
    env = {name: filled(value.reveal()) for name, value in settings.env.items()}
    argv, cwd = tuple(map(filled, settings.command)), filled(settings.cwd)
    if PERSON in settings.cwd:
        await asyncio.to_thread(_make_folder, Path(cwd))
    program = ChildProgram(argv=argv, env=env, cwd=cwd)
    return await connect_program(program, children=children, terms=terms)


def without_secrets(text: str, settings: ServerSettings) -> str:
    """Return a text of a server without the secrets that are configured for it. Some servers repeat
    what they refuse."""
    values = [each.reveal() for each in (*settings.env.values(), *settings.headers.values())]
    words = {word for value in values for word in (value, *value.split()) if word}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= _SECRET_MIN:
            text = text.replace(word, f"{Secret(word)}")
    return text


def _make_folder(folder: Path) -> None:
    """Make a person's own folder, if it is not there yet."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise Rejected(f"the folder {folder} cannot be made: {why}") from error
