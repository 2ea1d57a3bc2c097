"""Checks what is configured about tools: their names in lists and rules, and the folders in which
they work.

A rule that can never match is refused, because whoever wrote it relies on it. That a folder exists
is checked only by those who use it (`check_folders`): the other commands work without it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from perdure.app.config.toml_errors import ConfigError, Problem, in_quotes, instead, nearest
from perdure.app.config.toml_positions import KeyPath, Positions
from perdure.app.config.toml_words import key_text
from perdure.app.config.values import (
    FILE_ACTS,
    FILES,
    MCP,
    RESULT,
    TOOLS,
    TOOLS_TO_COME,
    AgentConfig,
    Config,
    RuleSection,
)
from perdure.domain.tools.globs import is_match

_Finding = tuple[KeyPath, str]
_FOLDERS: Final[KeyPath] = ("tools", "files", "roots")
# The names of calls that are about a path, so that a rule can match it.
_WITH_PATHS: Final = (FILES, *FILE_ACTS)


def tool_findings(config: Config, name: str, agent: AgentConfig) -> Iterator[_Finding]:
    """Yield what is wrong with the tools of an agent, each with the key to look at."""
    path: KeyPath = ("agents", name)
    for index, tool in enumerate(agent.tools):
        yield from _listed(config, tool, (*path, "tools", index))
    for tool in agent.approve:
        at = (*path, "approve", tool)
        known = [*TOOLS, RESULT, *TOOLS_TO_COME, *_servers(config)]
        if tool not in known:
            advice = instead(tool, known, noun="tools")
            yield at, f"{key_text(at)} is about the unknown tool {in_quotes(tool)}; {advice}"
    for index, rule in enumerate(agent.rules):
        yield from _rule(config, rule, (*path, "rules", index))


def folder_findings(config: Config) -> Iterator[_Finding]:
    """Yield a complaint for each folder whose path depends on where the gateway was started."""
    for index, root in enumerate(config.tools.files.roots):
        at = (*_FOLDERS, index)
        if not root.startswith(("/", "~")):
            rule = 'must be a whole path such as "/srv/work" or "~/work"'
            yield at, f"{key_text(at)} {rule}, not {in_quotes(root)}"


def check_folders(config: Config, path: Path) -> None:
    """Refuse folders that the tool `files` cannot use, with the line that names them. `path` is the
    configuration file. Raises `ConfigError`."""
    found = list(_unusable(config.tools.files.roots))
    if found:
        positions = Positions(path.read_text(encoding="utf-8-sig"))
        raise ConfigError(
            [Problem(str(path), positions.line(at), f"{key_text(at)} {why}") for at, why in found]
        )


def _unusable(roots: Sequence[str]) -> Iterator[_Finding]:
    """Yield why folders cannot be used: one is missing, or is inside of another one."""
    usable: list[Path] = []
    for index, root in enumerate(roots):
        at = (*_FOLDERS, index)
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


def _listed(config: Config, tool: str, path: KeyPath) -> Iterator[_Finding]:
    """Yield a complaint if an agent's tool is unknown, is on a tool server that is not configured,
    or has no folder to work in."""
    server = tool.removeprefix(MCP)
    if server != tool:
        if server not in config.tools.mcp:
            advice = _add_server(config, server)
            yield path, f"{key_text(path)} names an unknown tool server; {advice}"
    elif tool not in (*TOOLS, *TOOLS_TO_COME):
        known = [*TOOLS, *TOOLS_TO_COME, *_servers(config)]
        advice = instead(tool, known, noun="tools")
        yield path, f"{key_text(path)} names the unknown tool {in_quotes(tool)}; {advice}"
    elif tool == FILES and not config.tools.files.roots:
        advice = 'add [tools.files] with roots = ["/the/folder"], or leave "files" out'
        yield path, f"{key_text(path)} names {in_quotes(FILES)}, which has no folder; {advice}"


def _servers(config: Config) -> list[str]:
    return [f"{MCP}{name}" for name in config.tools.mcp]


def _add_server(config: Config, name: str) -> str:
    add = f"add [tools.mcp.{name}]"
    meant = nearest(name, config.tools.mcp)
    return add if meant is None else f"did you mean {in_quotes(f'{MCP}{meant}')}? Else {add}"


def _rule(config: Config, rule: RuleSection, path: KeyPath) -> Iterator[_Finding]:
    """Yield a complaint if a rule can match no call."""
    names = [*TOOLS, *FILE_ACTS, RESULT, *TOOLS_TO_COME]
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
    elif rule.match and not is_of_server and not any(name in _WITH_PATHS for name in meant):
        at = (*path, "match")
        which = f"calls of {in_quotes(rule.tool)} are not about a path"
        yield at, f"{key_text(at)} can never match, because {which}; leave it out"
