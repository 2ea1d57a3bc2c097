"""Declares what is configured of tools, and names them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from perdure.domain.secret import Secret
from perdure.ports.platform.settings import (
    CommandWords,
    Count,
    Name,
    NonEmptyText,
    Seconds,
    Section,
    Url,
    WaitSeconds,
)

MEMORY: Final = "memory"
SCHEDULE: Final = "schedule"
SEND: Final = "send"
DELEGATE: Final = "delegate"
FILES: Final = "files"
SHELL: Final = "shell"
FETCH: Final = "fetch"
SEARCH: Final = "search"
# What an external agent may ask to do by itself, as rules name it.
PERMISSION: Final = "permission"
PERMISSION_ACTS: Final = tuple(
    f"{PERMISSION}.{kind}"
    for kind in (
        *("read", "edit", "delete", "move", "search", "execute"),
        *("think", "fetch", "switch_mode", "other"),
    )
)
# The tools that agents can have.
TOOLS: Final = (
    *(MEMORY, "sessions", "todo", FILES, SHELL, FETCH, SEARCH),
    *("ask", SCHEDULE, SEND, DELEGATE),
)
# The names that rules may use for what a call of `files` or `shell` does, and the tool that every
# agent with tools has.
FILE_ACTS: Final = ("files.read", "files.write", "files.edit", "files.list", "files.search")
SHELL_ACTS: Final = ("shell.run", "shell.list", "shell.log", "shell.end")
RESULT: Final = "result"
_NOTHING: Final[Mapping[str, Secret]] = MappingProxyType({})
# How the tools of a server begin in lists, rules and `approve`: `mcp.time`.
MCP: Final = "mcp."

ApproveChoice = Literal["always", "once", "never"]
RepeatChoice = Literal["pure", "repeatable", "once"]


class McpServer(Section, frozen=True, kw_only=True):
    """Configures a tool server: a program to start, or the address of a running one. `args` are
    appended to `command`. `tools` are names or globs of the tools to take; one that begins with !
    is left out. `repeat` says of all tools, or of those that a glob names, whether a call may be
    made twice. A `shared` server serves all people over one connection; otherwise each person has
    one of their own. With `sampling` it may ask the model of the agent that calls it for words."""

    command: CommandWords | None = None
    args: tuple[str, ...] = ()
    env: Mapping[NonEmptyText, Secret] = _NOTHING
    cwd: NonEmptyText | None = None
    url: Url | None = None
    headers: Mapping[NonEmptyText, Secret] = _NOTHING
    tools: tuple[NonEmptyText, ...] = ()
    approve: ApproveChoice | None = None
    timeout_s: WaitSeconds = 120.0
    repeat: RepeatChoice | Mapping[NonEmptyText, RepeatChoice] = MappingProxyType({})
    shared: bool = False
    sampling: bool = False


class ToolSection(Section, frozen=True, kw_only=True):
    """Holds when people are asked about the calls of a built-in tool. Without a value, it depends
    on what a call touches."""

    approve: ApproveChoice | None = None


class FilesSection(ToolSection, frozen=True, kw_only=True):
    """Holds the folders in which the tool `files` works."""

    roots: tuple[NonEmptyText, ...] = ()


class ShellSection(ToolSection, frozen=True, kw_only=True):
    """Holds the folders in which commands of the tool `shell` work, whether they reach the network,
    whether they run in a sandbox, and what one of them may use. `timeout_s` is for commands that
    the agent waits for."""

    roots: tuple[NonEmptyText, ...] = ()
    network: bool = False
    sandbox: Literal["auto", "off"] = "auto"
    timeout_s: WaitSeconds = 600.0
    memory_bytes: Count = 2_000_000_000
    processes: Count = 256


class DelegateSection(ToolSection, frozen=True, kw_only=True):
    """Holds how agents may give work to others: through how many hands it may go, how many pieces a
    turn waits for at once and a person may have under way, and how long a turn waits; 0 means for
    ever."""

    depth: Count = 1
    at_once: Count = 4
    per_person: Count = 16
    wait_s: Seconds = 3600.0


class SearchSection(ToolSection, frozen=True, kw_only=True):
    """Holds the search engine that the tool `search` asks. Without `url` it is the one of the
    maker."""

    kind: Literal["searxng", "brave", "tavily"] | None = None
    url: Url | None = None
    api_key: Secret | None = None


class ToolsConfig(Section, frozen=True, kw_only=True):
    """Holds the settings of the built-in tools, and the tool servers by name. `answer_wait_s` is
    how long a question to a person stays open; 0 means for ever."""

    answer_wait_s: Seconds = 3600.0
    memory: ToolSection = ToolSection()
    sessions: ToolSection = ToolSection()
    todo: ToolSection = ToolSection()
    schedule: ToolSection = ToolSection()
    ask: ToolSection = ToolSection()
    send: ToolSection = ToolSection()
    delegate: DelegateSection = DelegateSection()
    files: FilesSection = FilesSection()
    shell: ShellSection = ShellSection()
    fetch: ToolSection = ToolSection()
    search: SearchSection = SearchSection()
    mcp: Mapping[Name, McpServer] = MappingProxyType({})

    @property
    def approve(self) -> dict[str, str]:
        """Return when people are asked about each tool, where that is configured."""
        sections: dict[str, ToolSection | McpServer] = {
            **{name: getattr(self, name) for name in TOOLS},
            **{f"{MCP}{name}": server for name, server in self.mcp.items()},
        }
        return {name: each.approve for name, each in sections.items() if each.approve}


NO_TOOL_SETTINGS: Final = ToolsConfig()
