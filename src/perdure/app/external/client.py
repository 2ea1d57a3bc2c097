"""Makes what an external agent may ask the gateway for as its client: files and terminals.

They are offered only where the agent may use the gateway's own tools for the same: `files` and
`shell` are among its tools, its configuration gives it folders, and no rule denies them altogether.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from perdure.app.config.tool_values import FILES, SHELL
from perdure.app.config.values import AcpAgent
from perdure.app.external.agents import roots_of
from perdure.domain.tools.policy import Do, ToolPolicy, default_for
from perdure.domain.tools.traits import CallTraits
from perdure.ports.agents.client import ClientCalls, ClientOffers
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.tool import traits_of_file_call
from perdure.tools.client.files import AgentFilesTool
from perdure.tools.client.shell import AgentShellTool
from perdure.tools.shell.jobs import ShellJobs
from perdure.tools.shell.tool import ShellTool, traits_of_command
from perdure.tools.tool import Tool
from perdure.tools.workroom import Workroom


def client_offers(config: AcpAgent, policy: ToolPolicy, *, home: Path) -> ClientOffers:
    """Return what an agent is told that it can ask its client for. Folders that hold the gateway's
    home are none of these."""
    roots = roots_of(config)
    has_roots = bool(roots) and not any(
        home.resolve().is_relative_to(root.resolve()) for root in roots
    )
    has_files, has_shell = has_roots and FILES in config.tools, has_roots and SHELL in config.tools
    return ClientOffers(
        reads=has_files and _is_possible(traits_of_file_call("read"), policy),
        writes=has_files and _is_possible(traits_of_file_call("write"), policy),
        terminals=has_shell and _is_possible(traits_of_command("run"), policy),
    )


def client_tools(
    config: AcpAgent,
    offers: ClientOffers,
    calls: ClientCalls,
    *,
    work: Workroom,
    make_shell: Callable[[tuple[Path, ...]], ShellTool],
    jobs: ShellJobs,
) -> Iterator[Tool]:
    """Yield the hidden tools that serve what an agent is offered. `make_shell` makes the tool
    `shell` for some folders."""
    roots = roots_of(config)
    if offers.reads or offers.writes:
        yield AgentFilesTool(roots, calls, bounds=FilesBounds(), work=work)
    if offers.terminals:
        yield AgentShellTool(roots, calls, make=make_shell, jobs=jobs)


def _is_possible(kind: CallTraits, policy: ToolPolicy) -> bool:
    """Tell whether a call of this kind may ever run."""
    return default_for(kind, policy) is not Do.DENY
