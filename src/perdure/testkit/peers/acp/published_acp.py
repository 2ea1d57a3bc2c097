"""Names the commands of agents that people use, Gemini CLI and Codex, and of a client, `acpx`."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec

# What these agents can do by themselves. Without it they have the tools of their client only.
_OWN_TOOLS: Final = (
    *("activate_skill", "ask_user", "enter_plan_mode", "exit_plan_mode", "get_internal_docs"),
    *("glob", "google_web_search", "grep_search", "invoke_agent", "list_directory"),
    *("list_mcp_resources", "read_file", "read_many_files", "read_mcp_resource", "replace"),
    *("run_shell_command", "update_topic", "web_fetch", "write_file", "write_todos"),
)
_CODEX: Final = """
model = "gpt-5.4"
model_provider = "tests"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.tests]
name = "Tests"
base_url = "{url}/v1"
env_key = "MODEL_KEY"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 1
stream_max_retries = 1
"""


class AgentProgram(msgspec.Struct, frozen=True):
    """Holds the command of an agent and the environment that it needs beside `PATH`."""

    command: tuple[str, ...]
    environ: dict[str, str]


class PublishedAcp:
    """Makes the commands, whose programs are among `modules` and run with `node`. `kind` names the
    machine, such as `linux-x64`.

    Every agent has a home of its own, asks the model at a URL, and tells nobody else anything.
    """

    def __init__(self, modules: Path, node: Path, *, kind: str) -> None:
        self._node = node
        self._gemini = modules / "@google" / "gemini-cli" / "bundle" / "gemini.js"
        self._codex = modules / "@zed-industries" / f"codex-acp-{kind}" / "bin" / "codex-acp"
        self._acpx = modules / "acpx" / "dist" / "cli.js"

    @property
    def programs(self) -> list[Path]:
        """Return the files that must be there."""
        return [self._gemini, self._codex, self._acpx]

    def gemini(
        self, home: Path, model_url: str, *, has_own_tools: bool = False, **settings: Any
    ) -> AgentProgram:
        """Return Gemini CLI, which answers a second and a half after its start. `settings` are
        added to the file in its home."""
        excluded = {} if has_own_tools else {"tools": {"exclude": _OWN_TOOLS}}
        written = {
            "general": {"enableAutoUpdate": False, "maxAttempts": 1},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"folderTrust": {"enabled": False}},
            **excluded,
            **settings,
        }
        _write(home / ".gemini" / "settings.json", json.dumps(written))
        environ = {
            **_environ(home),
            "GEMINI_API_KEY": "key-of-the-tests",
            # Without it the program starts itself again, and the process that is known is a shell.
            "GEMINI_CLI_NO_RELAUNCH": "true",
            "GEMINI_CLI_HOME": str(home),
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_MODEL": "gemini-2.5-flash",
            "GEMINI_TELEMETRY_ENABLED": "false",
            "GOOGLE_GEMINI_BASE_URL": model_url,
        }
        return AgentProgram((str(self._node), str(self._gemini), "--acp"), environ)

    def codex(self, home: Path, model_url: str) -> AgentProgram:
        """Return Codex as Zed has made it an agent. It is one native program, which answers after
        a fifth of a second."""
        _write(home / ".codex" / "config.toml", _CODEX.format(url=model_url))
        environ = {
            **_environ(home),
            "CODEX_HOME": str(home / ".codex"),
            "MODEL_KEY": "key-of-the-tests",
            "NO_BROWSER": "1",
            "OPENAI_API_KEY": "key-of-the-tests",
            "RUST_LOG": "error",
        }
        return AgentProgram((str(self._codex),), environ)

    def acpx(self, home: Path, *words: str) -> AgentProgram:
        """Return the client with these words behind its name."""
        home.mkdir(parents=True, exist_ok=True)
        # It starts an agent with the Node that it finds first.
        return AgentProgram((str(self._node), str(self._acpx), *words), _environ(home))


def _environ(home: Path) -> dict[str, str]:
    own = {"HOME": str(home), "LANG": "C.UTF-8", "NO_COLOR": "1", "TERM": "dumb"}
    return {**own, "NO_PROXY": "127.0.0.1,localhost"}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
