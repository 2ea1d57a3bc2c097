"""Checks that the official conformance suite judges: it passes the client of the official package,
and fails one that does nothing."""

import sys
from pathlib import Path

import pytest

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.conformance import CLIENT_SCENARIOS

CLIENT = Path(__file__).resolve().parents[1] / "peers" / "conformance_client.py"


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS)
async def test_the_official_client_passes(new_peer: NewPeer, scenario: str) -> None:
    verdict = await new_peer.mcp_conformance().judge(scenario, [sys.executable, str(CLIENT)])
    assert verdict.has_passed, verdict.printed
    assert verdict.judged
    assert set(verdict.judged.values()) == {"SUCCESS"}


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS)
async def test_a_client_that_does_nothing_fails(new_peer: NewPeer, scenario: str) -> None:
    verdict = await new_peer.mcp_conformance().judge(scenario, ["true"])
    assert not verdict.has_passed
    assert "SUCCESS" not in verdict.judged.values()
