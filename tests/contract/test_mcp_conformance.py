"""Checks that the official conformance suite judges: it passes the client of the official package
and the links of the gateway, and fails one that does nothing."""

import sys
from pathlib import Path

import pytest

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.conformance import CLIENT_SCENARIOS

PEERS = Path(__file__).resolve().parents[1] / "peers"


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS)
@pytest.mark.parametrize("client", ["conformance_client.py", "conformance_gateway_client.py"])
async def test_the_official_client_and_the_gateway_pass(
    new_peer: NewPeer, scenario: str, client: str
) -> None:
    command = [sys.executable, str(PEERS / client)]
    verdict = await new_peer.mcp_conformance().judge(scenario, command)
    assert verdict.has_passed, verdict.printed
    assert verdict.judged
    assert set(verdict.judged.values()) == {"SUCCESS"}


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS)
async def test_a_client_that_does_nothing_fails(new_peer: NewPeer, scenario: str) -> None:
    verdict = await new_peer.mcp_conformance().judge(scenario, ["true"])
    assert not verdict.has_passed
    assert "SUCCESS" not in verdict.judged.values()
