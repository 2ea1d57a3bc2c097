"""Checks what people are told of an agent's tools."""

from perdure.domain.outcomes import Repeat
from perdure.domain.tools.policy import Approve, Do, Rule, ToolPolicy
from perdure.domain.tools.traits import CallTraits, Permission
from perdure.engine.models.roster import offered_tools
from perdure.ports.turns.tools import ToolOffer

NOW = ToolOffer(
    name="time__now",
    description="Tells the time.",
    traits=(
        CallTraits(
            names=("mcp.time", "mcp.time.now"), repeat=Repeat.ONCE, permission=Permission.ACT
        ),
    ),
)


def told(policy: ToolPolicy, offer: ToolOffer = NOW) -> tuple[str, str]:
    (tool,) = offered_tools([offer], policy)
    assert tool.name == offer.name
    return tool.state, tool.why


def test_a_servers_tool_is_told_with_what_is_configured_for_its_server() -> None:
    policy = ToolPolicy(agent="main", approve={"mcp.time": Approve.NEVER})

    assert told(policy) == ("allow", 'approve = "never"')


def test_a_rule_for_one_tool_of_a_server_is_told() -> None:
    policy = ToolPolicy(agent="main", rules=(Rule(tool="mcp.time.now", do=Do.DENY),))

    assert told(policy) == ("deny", "a rule forbids it; rules refine it")


def test_a_server_in_trouble_is_off_and_says_why() -> None:
    why = "it is down: it ended with exit code 1; next try in 8 s"
    offer = ToolOffer(name="mcp.time", description="", traits=(), trouble=why)

    assert told(ToolPolicy(agent="main"), offer) == ("off", why)
