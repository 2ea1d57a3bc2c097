"""Knows agents by others: how each is started, kept quiet and kept from acting by itself.

Their own telemetry, updates and second starts are switched off, because the gateway counts, updates
and starts. `{home}` stands for the folder that is the home of the process.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_MEGABYTE: Final = 1_000_000


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is special about one agent.

    `sessions` is how many it bears at once in a process, and `unclosable` how many it may keep that
    could not be closed, before the process is replaced; so it is when it holds more than
    `memory_bytes`. `without_tools` are what it needs in addition (words behind its command,
    variables, files in its home, `_meta` of a session) to do without its own tools for files and
    commands, and `may_lose_tools` tells whether it can.
    """

    name: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = _NOTHING
    files: Mapping[str, str] = _NOTHING
    sessions: int = 32
    unclosable: int = 200
    memory_bytes: int = 1_500 * _MEGABYTE
    takes_tools: bool = True
    is_load_safe: bool = False
    may_lose_tools: bool = False
    words_without_tools: tuple[str, ...] = ()
    env_without_tools: Mapping[str, str] = _NOTHING
    files_without_tools: Mapping[str, str] = _NOTHING
    meta_without_tools: Mapping[str, Any] = MappingProxyType({})


_GEMINI_TOOLS: Final = (
    *("activate_skill", "ask_user", "enter_plan_mode", "exit_plan_mode", "get_internal_docs"),
    *("glob", "google_web_search", "grep_search", "invoke_agent", "list_background_processes"),
    *("list_directory", "list_mcp_resources", "read_background_output", "read_file"),
    *("read_many_files", "read_mcp_resource", "replace", "run_shell_command", "save_memory"),
    *("search_file_content", "update_topic", "web_fetch", "write_file", "write_todos"),
)
_GEMINI_SETTINGS: Final[Mapping[str, Any]] = {
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "security": {"folderTrust": {"enabled": False}},
}
_QWEN_TOOLS: Final = (
    *("cron_create", "cron_delete", "cron_list", "enter_plan_mode", "enter_worktree"),
    *("exit_worktree", "list_agents", "loop_wakeup", "record_artifact", "report_findings"),
    *("send_message", "task_stop", "update_goal", "get_goal", "ask_user_question"),
    *("edit", "exit_plan_mode", "glob", "grep_search", "list_directory", "ls", "lsp", "read_file"),
    *("read_many_files", "run_shell_command", "save_memory", "skill", "task", "todo_write"),
    *("web_fetch", "web_search", "write_file"),
)
_QWEN_SETTINGS: Final[Mapping[str, Any]] = {
    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "security": {"folderTrust": {"enabled": False}},
}
# These settings win over those of the person, so they stand in a file of their own.
_SETTINGS_FILE: Final = "perdure-settings.json"
_NODE_CACHE: Final = {"NODE_COMPILE_CACHE": "{home}/.cache/node-compile"}

GEMINI: Final = Preset(
    name="gemini",
    command=("gemini", "--acp"),
    env={
        **_NODE_CACHE,
        "GEMINI_CLI_HOME": "{home}",
        # Without it the program starts itself again, and twice the memory is held.
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_SYSTEM_SETTINGS_PATH": "{home}/" + _SETTINGS_FILE,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
    },
    files={_SETTINGS_FILE: json.dumps(_GEMINI_SETTINGS)},
    unclosable=100,
    may_lose_tools=True,
    files_without_tools={
        _SETTINGS_FILE: json.dumps({**_GEMINI_SETTINGS, "tools": {"exclude": _GEMINI_TOOLS}})
    },
)
CLAUDE: Final = Preset(
    name="claude",
    command=("claude-agent-acp",),
    env={
        **_NODE_CACHE,
        "CLAUDE_CONFIG_DIR": "{home}/.claude",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_COST_WARNINGS": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        # The model would look for tools before it uses them.
        "ENABLE_TOOL_SEARCH": "false",
        "IS_SANDBOX": "1",
    },
    # Each session is a process of its own, of about 200 MB.
    sessions=6,
    memory_bytes=3_000 * _MEGABYTE,
    may_lose_tools=True,
    meta_without_tools={"claudeCode": {"options": {"tools": []}}},
)
CODEX: Final = Preset(
    name="codex",
    command=("codex-acp",),
    env={
        "CODEX_HOME": "{home}/.codex",
        "INITIAL_AGENT_MODE": "read-only",
        "NO_BROWSER": "1",
        "RUST_LOG": "error",
    },
    may_lose_tools=True,
    # Without a place to work it offers its model no tool for commands, files or pictures.
    env_without_tools={"CODEX_EXEC_SERVER_URL": "none"},
    words_without_tools=(
        *("-c", "features.shell_tool=false"),
        *("-c", "features.multi_agent=false"),
        *("-c", "features.goals=false"),
        # The model would look for tools before it uses them.
        *("-c", "features.tool_search=false"),
        *("-c", 'web_search="disabled"'),
    ),
)
_OPENCODE_TOOLS: Final = (
    *("bash", "codesearch", "edit", "external_directory", "glob", "grep", "list", "lsp", "patch"),
    *("question", "read", "skill", "task", "todoread", "todowrite", "webfetch", "websearch"),
    "write",
)
OPENCODE: Final = Preset(
    name="opencode",
    command=("opencode", "acp"),
    env={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_PERMISSION": json.dumps({"*": "ask"}),
        "XDG_CACHE_HOME": "{home}/.cache",
        "XDG_CONFIG_HOME": "{home}/.config",
        "XDG_DATA_HOME": "{home}/.local/share",
        "XDG_STATE_HOME": "{home}/.local/state",
    },
    sessions=8,
    may_lose_tools=True,
    env_without_tools={
        "OPENCODE_CONFIG_CONTENT": json.dumps(
            {"autoupdate": False, "share": "disabled", "snapshot": False}
        ),
        # A tool that is denied is not told to the model. The last word about a tool counts.
        "OPENCODE_PERMISSION": json.dumps({"*": "ask", **dict.fromkeys(_OPENCODE_TOOLS, "deny")}),
    },
)
QWEN: Final = Preset(
    name="qwen",
    # Not `qwen`, which starts a second process that outlives the first.
    command=("qwen", "--acp", "--approval-mode", "default"),
    env={
        **_NODE_CACHE,
        "QWEN_CODE_NO_RELAUNCH": "1",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": "{home}/" + _SETTINGS_FILE,
        "GEMINI_TELEMETRY_ENABLED": "false",
    },
    files={
        _SETTINGS_FILE: json.dumps({**_QWEN_SETTINGS, "tools": {"toolSearch": {"enabled": False}}})
    },
    unclosable=100,
    may_lose_tools=True,
    files_without_tools={
        _SETTINGS_FILE: json.dumps(
            {**_QWEN_SETTINGS, "tools": {"exclude": _QWEN_TOOLS, "toolSearch": {"enabled": False}}}
        )
    },
)
VIBE: Final = Preset(
    name="vibe",
    command=("vibe-acp",),
    env={"VIBE_HOME": "{home}/.vibe"},
    # It ignores the tools that it is offered, and says nothing about it.
    takes_tools=False,
)
# Any other command that speaks ACP. Nobody knows what it can do by itself.
OTHER: Final = Preset(sessions=16)
PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {each.name: each for each in (GEMINI, CLAUDE, CODEX, OPENCODE, QWEN, VIBE)}
)
