"""Lists the deliberate bugs in what agents may call: the tools, the programs that they start, and
the way to the web."""

from typing import Final

from tests.mutants.mutant import Mutant

CHILDREN: Final = "tests/contract/test_children.py"
FETCH: Final = "tests/contract/test_fetch_tool.py"
LINK_ASKING: Final = "tests/contract/test_mcp_link_asking.py"
LISTING: Final = "tests/unit/test_mcp_listing.py"
MCP_CALLS: Final = "tests/unit/test_mcp_calls.py"
MCP_SERVERS: Final = "tests/contract/test_mcp_servers.py"
SAMPLING: Final = "tests/e2e/test_sampling.py"
TOOLS: Final = "tests/contract/test_tools.py"

MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="sent_call_made_again",
        promise="P7",
        bug="A call that was sent to a tool server is made again when its link ends.",
        file="tools/mcp/servers/server.py",
        symbol="ToolServer._tried",
        old="if isinstance(lost.error, Ambiguous) and not may_repeat:",
        new="if isinstance(lost.error, Ambiguous) and not may_repeat and not call:",
        killed_by=(f"{MCP_SERVERS}::test_a_server_that_dies_costs_one_call",),
    ),
    Mutant(
        name="one_link_for_all_people",
        promise="P12",
        bug="All people use one process of a server that keeps what each of them says.",
        file="tools/mcp/servers/kept_links.py",
        symbol="KeptLinks._key",
        old="return SHARED if self._settings.is_shared else person",
        new="return SHARED",
        killed_by=(f"{MCP_SERVERS}::test_two_people_share_one_server_or_have_one_each",),
    ),
    Mutant(
        name="question_of_a_server_to_anybody",
        promise="P12",
        bug="A question of a shared server goes to somebody, perhaps not to the one who is meant.",
        file="tools/mcp/wire/running.py",
        symbol="RunningCalls.who_is_meant",
        old="return running[0] if len(running) == 1 else None",
        new="return running[0] if running else None",
        killed_by=(f"{LINK_ASKING}::test_no_model_is_asked_for_another_call[stdio]",),
    ),
    Mutant(
        name="server_loosens_its_rules",
        promise="P13",
        bug="A server that calls its own tools harmless is believed, against the configuration.",
        file="tools/mcp/calls/traits.py",
        symbol="repeat_of",
        old="return max(configured,",
        new="return min(configured,",
        killed_by=(f"{MCP_CALLS}::test_a_server_can_only_tighten_what_is_configured",),
    ),
    Mutant(
        name="unknown_tool_made_twice",
        promise="P7",
        bug="A tool of a server of which nobody says anything may be called twice.",
        file="tools/mcp/calls/traits.py",
        symbol="repeat_of",
        old="Repeat.ONCE)",
        new="Repeat.PURE)",
        killed_by=(f"{MCP_CALLS}::test_of_a_tool_that_nobody_speaks_of_nothing_is_assumed",),
    ),
    Mutant(
        name="unknown_tool_called_unasked",
        promise="P13",
        bug="A tool of a server of which nobody says anything is called without a question.",
        file="tools/mcp/calls/traits.py",
        symbol="traits_of",
        old="permission=Permission.ACT",
        new="permission=Permission.READ",
        killed_by=(f"{MCP_CALLS}::test_of_a_tool_that_nobody_speaks_of_nothing_is_assumed",),
    ),
    Mutant(
        name="server_takes_a_trusted_name",
        promise="P13",
        bug="A server's tool takes the place of a built-in one with its name.",
        file="tools/toolbox.py",
        symbol="Toolbox.current",
        old="tools.setdefault(tool.name, tool)",
        new="tools[tool.name] = tool",
        killed_by=(f"{TOOLS}::test_a_server_cannot_take_the_place_of_a_trusted_tool",),
    ),
    Mutant(
        name="tools_without_a_bound",
        promise="P18",
        bug="A server may list so many tools that no model takes the request.",
        file="tools/mcp/servers/listing.py",
        symbol="_usable",
        old="room -= len(tool.parameters) + len(tool.description)",
        new="room -= len(tool.name)",
        killed_by=(f"{LISTING}::test_tools_that_are_too_much_together_are_left_out",),
    ),
    Mutant(
        name="words_of_a_model_for_everybody",
        promise="P13",
        bug="A server gets words of the model although that is not configured.",
        file="tools/mcp/calls/tool.py",
        symbol="McpTool._sampler",
        old="return sampler_for(caller) if self._server.may_sample else None",
        new="return sampler_for(caller)",
        killed_by=(f"{SAMPLING}::test_no_model_is_asked_where_that_is_not_configured[modern]",),
    ),
    Mutant(
        name="model_asked_while_a_person_is",
        promise="P23",
        bug="A server asks the model at the cost of a turn that waits for its person.",
        file="tools/mcp/wire/running.py",
        symbol="RunningCalls._wait",
        old="running.sampler = None",
        new="pass",
        killed_by=(f"{LINK_ASKING}::test_no_model_is_asked_while_a_call_waits_for_its_person",),
    ),
    Mutant(
        name="redirect_to_another_site_followed",
        promise="P13",
        bug="A page that was allowed leads to a site that nobody has allowed.",
        file="tools/web/fetch.py",
        symbol="FetchTool._next",
        old="if not is_same_site(url, target):",
        new="if not target:",
        killed_by=(f"{FETCH}::test_a_redirect_to_another_site_is_told_and_not_followed",),
    ),
    Mutant(
        name="name_asked_for_again",
        promise="P13",
        bug="The address that is connected to is not the one that was checked.",
        file="app/network/public_web.py",
        symbol="_PublicResolver.resolve",
        old="return found",
        new="return await self._inner.resolve(host, port, family)",
        killed_by=(f"{FETCH}::test_the_address_that_was_checked_is_the_one_that_is_connected_to",),
    ),
    Mutant(
        name="one_private_address_overlooked",
        promise="P13",
        bug="A name with a public and a private address leads into the network of the gateway.",
        file="app/network/public_web.py",
        symbol="_PublicResolver.resolve",
        old="if any(",
        new="if all(",
        killed_by=(f"{FETCH}::test_one_private_address_among_the_answers_is_enough",),
    ),
    Mutant(
        name="environment_passed_on",
        promise="P14",
        bug="A program that is started gets every variable of the gateway, with its keys.",
        file="app/children/environment.py",
        symbol="child_environment",
        old="if name in PASSED_ON or name.startswith(_LOCALE)",
        new="if name",
        killed_by=(f"{CHILDREN}::test_a_program_gets_the_short_list_and_what_is_configured",),
    ),
    Mutant(
        name="client_writes_what_it_must_ask_for",
        promise="P16",
        bug="What an agent writes through the gateway counts as reading, and nobody is asked.",
        file="tools/client/files.py",
        symbol="AgentFilesTool.traits",
        old="return tool.traits(inner)",
        new='return tool.traits(inner.replace("write", "read", 1))',
        killed_by=("tests/e2e/test_agent_client.py::test_people_are_asked_before_an_agent_writes",),
    ),
)
