"""Checks a gateway behind a proxy on the same machine, where every stranger seems to be this
machine."""

from typing import Any

import aiohttp
import pytest

from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
TOML = """
[server]
base_url = "https://chat.example/p"
hosts = ["other.example"]
trusted_proxies = ["192.0.2.0/24"]
"""
STRANGER = {"X-Forwarded-For": "203.0.113.9"}


async def asked(gateway: GatewayProcess, path: str, **headers: str) -> tuple[int, str]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as http,
        http.get(gateway.url + path, headers=given) as response,
    ):
        return response.status, await response.text()


async def test_a_stranger_behind_a_proxy_learns_that_it_lives_and_no_more(
    gateway_factory: Any,
) -> None:
    gateway = await gateway_factory(toml=TOML)
    token = {"Authorization": f"Bearer {gateway.token}"}
    for headers in (STRANGER, {"Host": "evil.example"}, {**STRANGER, "Host": "chat.example"}):
        assert await asked(gateway, "/healthz", **headers) == (200, '{"status":"ok"}')
        for path in ("/metrics", "/readyz", "/api/status", "/v1/models"):
            status, body = await asked(gateway, path, **headers)
            assert status in (401, 421), path
            assert "perdure_" not in body
            assert "version" not in body
    assert '"store"' in (await asked(gateway, "/healthz", **STRANGER, **token))[1]
    assert (await asked(gateway, "/metrics", **STRANGER, **token))[0] == 200
    for path in ("/healthz", "/readyz", "/metrics"):
        status, body = await asked(gateway, path)
        assert (status, body == '{"status":"ok"}') == (200, False)


async def test_a_name_that_is_not_ours_is_refused_with_the_token_too(gateway_factory: Any) -> None:
    # Another site may have made its own name resolve to this machine.
    gateway = await gateway_factory(toml=TOML)
    token = {"Authorization": f"Bearer {gateway.token}"}
    for path in ("/", "/static/chat.js", "/api/status", "/metrics"):
        status, body = await asked(gateway, path, Host=f"evil.example:{gateway.port}", **token)
        assert status == 421, path
        assert '"wrong_host"' in body
        assert "[server]" in body
        for name in ("chat.example", "other.example", "localhost:1", "192.0.2.1"):
            assert (await asked(gateway, path, Host=name, **token))[0] == 200, (path, name)
    # Hooks are signed, and a platform may reach them by any name.
    assert (await asked(gateway, "/hooks/none/x", Host="evil.example"))[0] == 404
