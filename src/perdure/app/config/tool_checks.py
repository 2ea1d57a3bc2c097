"""Checks what is configured about tools: their names in lists and rules, the folders in which they
work, and the search engine that they ask.

A rule that can never match is refused, because whoever wrote it relies on it. That a folder exists
is checked only by those who use it (`check_folders`): the other commands work without it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from perdure.app.config.toml_errors import ConfigError, Problem, in_quotes, instead, nearest
from perdure.app.config.toml_positions import KeyPath, Positions
from perdure.app.config.toml_words import key_text
from perdure.app.config.tool_values import (
    DELEGATE,
    FETCH,
    FILE_ACTS,
    FILES,
    MCP,
    PERMISSION,
    PERMISSION_ACTS,
    RESULT,
    SEARCH,
    SEND,
    SHELL,
    SHELL_ACTS,
    TOOLS,
    McpServer,
)
from perdure.app.config.values import (
    AcpAgent,
    AgentConfig,
    Config,
    RuleSection,
)
from perdure.domain.tools.globs import is_match

_Finding = tuple[KeyPath, str]
_Folder = tuple[KeyPath, str]
# The names of calls that are about a path, an address or a command, so that a rule can match it.
_WITH_MATCH: Final = (
    *(DELEGATE, FILES, *FILE_ACTS, FETCH, SEND, SHELL, SHELL_ACTS[0]),
    *(PERMISSION, *PERMISSION_ACTS),
)
_COMMANDS: Final = "commands"
_ENGINE: Final[KeyPath] = ("tools", SEARCH)
# Matches the beginning of a glob that an address can match.
_ADDRESSES: Final = re.compile(r"https?://|\*|\?|h[a-z]*\*")
_SERVER_NAME: Final = re.compile(r"(?!.*__)(?!.*_\Z)[A-Za-z0-9_-]{1,30}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")


def tool_findings(config: Config, name: str, agent: AgentConfig) -> Iterator[_Finding]:
    """Yield what is wrong with the tools of an agent, each with the key to look at."""
    path: KeyPath = ("agents", name)
    for index, tool in enumerate(agent.tools):
        yield from _listed(config, tool, (*path, "tools", index))
    yield from _delegating(agent, path)
    for tool in agent.approve:
        at = (*path, "approve", tool)
        asked = [PERMISSION] if isinstance(agent, AcpAgent) else []
        known = [*TOOLS, RESULT, *asked, *_servers(config)]
        if tool not in known:
            advice = instead(tool, known, noun="tools")
            yield at, f"{key_text(at)} is about the unknown tool {in_quotes(tool)}; {advice}"
    for index, rule in enumerate(agent.rules):
        own = (PERMISSION, *PERMISSION_ACTS) if isinstance(agent, AcpAgent) else ()
        yield from _rule(config, rule, (*path, "rules", index), own=own)


def is_variable(name: str) -> bool:
    """Tell whether an environment variable may have this name."""
    return _VARIABLE.fullmatch(name) is not None


def server_findings(config: Config) -> Iterator[_Finding]:
    """Yield what is wrong with the configured tool servers."""
    for name, server in config.tools.mcp.items():
        path: KeyPath = ("tools", "mcp", name)
        # A dot would make rules ambiguous: `mcp.a.b` is the tool `b` of the server `a`.
        if _SERVER_NAME.fullmatch(name) is None:
            rule = "letters, digits, - and single _ inside, at most 30"
            yield path, f"{key_text(path)}: the name of a tool server must be made of {rule}"
        if (server.command is None) == (server.url is None):
            which = "both" if server.command else "neither"
            yield path, f"{key_text(path)} takes either command or url, and has {which}"
            continue
        for key, other in _misplaced(server):
            at = (*path, key)
            yield at, f"{key_text(at)} goes only with {other}; leave it out"
        yield from _server_values(server, path)
        if server.shared and (key := _personal_key(server)):
            at = (*path, key)
            yield at, f"{key_text(at)} has {{person}}, which goes only with shared = false"


def _personal_key(server: McpServer) -> str:
    """Return a key whose value depends on the person, or an empty string."""
    given = {
        "command": server.command or (),
        "args": server.args,
        "env": [value.reveal() for value in server.env.values()],
        "cwd": [server.cwd or ""],
        "headers": [value.reveal() for value in server.headers.values()],
    }
    return next((key for key, words in given.items() if any("{person}" in w for w in words)), "")


def _misplaced(server: McpServer) -> Iterator[tuple[str, str]]:
    """Yield each key that does nothing for this kind of server, with the key that it goes with."""
    if server.url is not None:
        given = {"args": server.args, "env": server.env, "cwd": server.cwd}
        yield from ((key, "command") for key, value in given.items() if value)
    elif server.headers:
        yield "headers", "url"


def _server_values(server: McpServer, path: KeyPath) -> Iterator[_Finding]:
    if server.cwd and not server.cwd.startswith(("/", "~")):
        at: KeyPath = (*path, "cwd")
        rule = 'must be a whole path such as "/srv/work" or "~/work"'
        yield at, f"{key_text(at)} {rule}, not {in_quotes(server.cwd)}"
    for index, glob in enumerate(server.tools):
        if glob == "!":
            at = (*path, "tools", index)
            yield at, f'{key_text(at)} leaves out nothing; name a tool behind the !, as in "!now"'
    for name in server.env:
        if not is_variable(name):
            at = (*path, "env", name)
            yield at, f"{key_text(at)} is no name of an environment variable; take one like TOKEN"
    for name in server.headers:
        if _HEADER.fullmatch(name) is None:
            at = (*path, "headers", name)
            yield at, f"{key_text(at)} is no name of a header; take one like Authorization"


def folder_findings(config: Config) -> Iterator[_Finding]:
    """Yield a complaint for each folder whose path depends on where the gateway was started."""
    for tool, roots in _roots(config).items():
        for index, root in enumerate(roots):
            at: KeyPath = ("tools", tool, "roots", index)
            if not root.startswith(("/", "~")):
                rule = 'must be a whole path such as "/srv/work" or "~/work"'
                yield at, f"{key_text(at)} {rule}, not {in_quotes(root)}"


def _roots(config: Config) -> dict[str, tuple[str, ...]]:
    """Return the folders of each tool that works in folders."""
    return {FILES: config.tools.files.roots, SHELL: config.tools.shell.roots}


def search_findings(config: Config) -> Iterator[_Finding]:
    """Yield what the search engine lacks to be asked."""
    search = config.tools.search
    if search.kind is None:
        for key in ("url", "api_key"):
            if getattr(search, key):
                at = (*_ENGINE, key)
                kinds = 'kind = "searxng", "brave" or "tavily"'
                yield at, f"{key_text(at)} has no effect without kind; add {kinds}"
    elif search.kind == "searxng" and not search.url:
        example = 'add url = "https://the.server"'
        yield _ENGINE, f"{key_text(_ENGINE)} does not say where the SearXNG server is; {example}"
    elif search.kind != "searxng" and not search.api_key:
        example = 'add api_key = { env = "NAME" }'
        yield _ENGINE, f"{key_text(_ENGINE)} has no key for {search.kind}; {example}"


def check_folders(config: Config, path: Path) -> None:
    """Refuse folders that the tools cannot use, with the line that names them. `path` is the
    configuration file, in the gateway's home. Raises `ConfigError`."""
    found = [each for tool, roots in _roots(config).items() for each in _unusable(tool, roots)]
    found += _around_home(config, path.parent.resolve())
    if found:
        positions = Positions(path.read_text(encoding="utf-8-sig"))
        raise ConfigError(
            [Problem(str(path), positions.line(at), f"{key_text(at)} {why}") for at, why in found]
        )


def _unusable(tool: str, roots: Sequence[str]) -> Iterator[_Finding]:
    """Yield why folders cannot be used: one is missing, or is inside of another one."""
    usable: list[Path] = []
    for index, root in enumerate(roots):
        at: KeyPath = ("tools", tool, "roots", index)
        try:
            folder = Path(root).expanduser().resolve(strict=True)
        except (OSError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            yield at, f"cannot be used: {root} ({why}); create the folder, or name another one"
            continue
        if not folder.is_dir():
            yield at, f"cannot be used: {root} is not a folder; name one"
        for other in usable:
            if folder.is_relative_to(other) or other.is_relative_to(folder):
                yield at, f"overlap: {other} and {folder}; keep only the outer one"
        usable.append(folder)


def _around_home(config: Config, home: Path) -> Iterator[_Finding]:
    """Yield a complaint for each folder in which commands, or agents in a sandbox, would reach the
    gateway's own files."""
    from perdure.ports.system.sandbox import SYSTEM_FOLDERS  # noqa: PLC0415 - only who needs it

    is_shown = any(home.is_relative_to(Path(folder).resolve()) for folder in SYSTEM_FOLDERS)
    for at, places, who in _confined(config):
        for place, root in places:
            folder = Path(root).expanduser().resolve()
            is_inside = who == _COMMANDS and folder.is_relative_to(home)
            if is_inside or home.is_relative_to(folder):
                why = f"cannot be used: with {root} {who} would reach the gateway's home {home}"
                yield place, f"{why}, where its keys are; name a folder apart from it"
        if is_shown:
            why = f"cannot be used: {who} can read the gateway's home {home}, where its keys are"
            yield at, f"{why}; move the home out of the folders of the system"


def _confined(config: Config) -> Iterator[tuple[KeyPath, list[_Folder], str]]:
    """Yield what is kept away from the gateway's files: where it is configured, the folders that it
    sees, and what it is."""
    at: KeyPath = ("tools", SHELL, "roots")
    roots = config.tools.shell.roots
    if roots:
        yield at, [((*at, index), root) for index, root in enumerate(roots)], _COMMANDS
    for name, agent in config.agents.items():
        if isinstance(agent, AcpAgent) and agent.sandbox != "off":
            at = ("agents", name)
            seen: list[_Folder] = [((*at, "cwd"), agent.cwd)] if agent.cwd else []
            seen += [((*at, "roots", index), root) for index, root in enumerate(agent.roots)]
            yield at, seen, "the agent"


def _listed(config: Config, tool: str, path: KeyPath) -> Iterator[_Finding]:
    """Yield a complaint if an agent's tool is unknown, is on a tool server that is not configured,
    or lacks what it works with."""
    server = tool.removeprefix(MCP)
    if server != tool:
        if server not in config.tools.mcp:
            advice = _add_server(config, server)
            yield path, f"{key_text(path)} names an unknown tool server; {advice}"
    elif tool not in TOOLS:
        known = [*TOOLS, *_servers(config)]
        advice = instead(tool, known, noun="tools")
        yield path, f"{key_text(path)} names the unknown tool {in_quotes(tool)}; {advice}"
    elif not _roots(config).get(tool, ("any",)):
        advice = f'add [tools.{tool}] with roots = ["/the/folder"], or leave {in_quotes(tool)} out'
        yield path, f"{key_text(path)} names {in_quotes(tool)}, which has no folder; {advice}"
    elif tool == SEARCH and config.tools.search.kind is None:
        advice = 'add [tools.search] with kind = "searxng", "brave" or "tavily"'
        yield path, f"{key_text(path)} names {in_quotes(SEARCH)}, which has no engine; {advice}"


def _delegating(agent: AgentConfig, path: KeyPath) -> Iterator[_Finding]:
    """Yield a complaint if an agent has the tool to give work away and nobody to give it to, or the
    other way round."""
    if DELEGATE in agent.tools and not agent.delegates:
        at: KeyPath = (*path, "tools", agent.tools.index(DELEGATE))
        advice = f'add delegates = ["NAME"] to {key_text(path)}, or leave {in_quotes(DELEGATE)} out'
        yield at, f"{key_text(at)} names {in_quotes(DELEGATE)}, and there is no agent to; {advice}"
    elif agent.delegates and DELEGATE not in agent.tools:
        at = (*path, "delegates")
        advice = f"add {in_quotes(DELEGATE)} to the tools of the agent"
        yield at, f"{key_text(at)} has no effect without the tool; {advice}"


def _servers(config: Config) -> list[str]:
    return [f"{MCP}{name}" for name in config.tools.mcp]


def _add_server(config: Config, name: str) -> str:
    add = f"add [tools.mcp.{name}]"
    meant = nearest(name, config.tools.mcp)
    return add if meant is None else f"did you mean {in_quotes(f'{MCP}{meant}')}? Else {add}"


def _rule(
    config: Config, rule: RuleSection, path: KeyPath, *, own: Sequence[str]
) -> Iterator[_Finding]:
    """Yield a complaint if a rule can match no call. `own` are names that only this kind of agent
    has."""
    names = [*TOOLS, *FILE_ACTS, *SHELL_ACTS, *own, RESULT]
    meant = [name for name in names if is_match(rule.tool, name)]
    is_of_server = any(
        is_match(rule.tool, server)
        or is_match(rule.tool, f"{server}.x")
        or rule.tool.startswith(f"{server}.")
        for server in _servers(config)
    )
    at = (*path, "tool")
    if not meant and not is_of_server:
        advice = instead(rule.tool, [*names, *_servers(config)], noun="tools")
        yield at, f"{key_text(at)} matches no tool: {in_quotes(rule.tool)}; {advice}"
    elif rule.match and not any(name in _WITH_MATCH for name in meant):
        at = (*path, "match")
        which = f"calls of {in_quotes(rule.tool)} are about no path and no command"
        yield at, f"{key_text(at)} can never match, because {which}; leave it out"
    elif rule.match and meant == [FETCH] and not _ADDRESSES.match(rule.match):
        at = (*path, "match")
        which = 'addresses begin with http:// or https://, as in "https://docs.python.org/**"'
        yield at, f"{key_text(at)} can never match, because {which}"
