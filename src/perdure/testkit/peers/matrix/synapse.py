"""Runs Matrix by its reference server: Synapse on SQLite, without federation.

Its limits are very high, unless a test asks for the limits that it ships with. Those answer 429
after about ten messages. They are the only real flood control that a test can meet here.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

import aiohttp

from perdure.testkit.peers.matrix.matrix_person import MatrixPerson
from perdure.testkit.peers.peer import Peer, Server, Site, free_port

SERVER_NAME: Final = "localhost"

_SECRET: Final = "shared-with-the-tests"  # noqa: S105 it opens a server that lives for one run
_WIDE: Final = {"per_second": 10_000, "burst_count": 10_000}


class SynapseServer(Server):
    """Runs Synapse with `python`, the interpreter of an environment in which it is installed."""

    def __init__(self, site: Site, *, python: Path, has_limits: bool = False) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.numbers = count(1)
        config = site.path("homeserver.yaml")
        # JSON is YAML, too.
        config.write_text(json.dumps(_config(site, port=port, has_limits=has_limits)))
        site.path("signing.key").write_text(_signing_key())
        site.path("log.yaml").write_text(json.dumps(_LOGGING))
        command = [str(python), "-m", "synapse.app.homeserver", "--config-path", str(config)]
        synapse = Peer("synapse", command, site=site, ready=f"{self.url}/health")
        super().__init__(synapse, site=site)

    @asynccontextmanager
    async def control(self) -> AsyncIterator["MatrixControl"]:
        """Open a client that can register people."""
        async with aiohttp.ClientSession() as session:
            yield MatrixControl(self, session)


_LOGGING: Final = {
    "version": 1,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"level": "WARNING", "handlers": ["console"]},
}


def _signing_key() -> str:
    seed = hashlib.sha256(_SECRET.encode()).digest()
    return f"ed25519 a_test {base64.b64encode(seed).decode().rstrip('=')}\n"


def _config(site: Site, *, port: int, has_limits: bool) -> dict[str, object]:
    listener = {
        "port": port,
        "bind_addresses": ["127.0.0.1"],
        "type": "http",
        "resources": [{"names": ["client", "media"], "compress": False}],
    }
    return {
        "server_name": SERVER_NAME,
        "public_baseurl": f"http://127.0.0.1:{port}/",
        "pid_file": str(site.path("homeserver.pid")),
        "listeners": [listener],
        "database": {
            "name": "sqlite3",
            "args": {"database": str(site.path("homeserver.db"))},
        },
        "log_config": str(site.path("log.yaml")),
        "media_store_path": str(site.path("media")),
        "signing_key_path": str(site.path("signing.key")),
        "registration_shared_secret": _SECRET,
        "macaroon_secret_key": _SECRET,
        "form_secret": _SECRET,
        "report_stats": False,
        "trusted_key_servers": [],
        "suppress_key_server_warning": True,
        "federation_domain_whitelist": [],
        "url_preview_enabled": False,
        # Low, because hashing a password with the usual number takes longer than a test should.
        "bcrypt_rounds": 4,
        **({} if has_limits else _WIDE_LIMITS),
    }


_WIDE_LIMITS: Final[dict[str, object]] = {
    "rc_message": _WIDE,
    "rc_registration": _WIDE,
    "rc_login": {"address": _WIDE, "account": _WIDE, "failed_attempts": _WIDE},
    "rc_joins": {"local": _WIDE, "remote": _WIDE},
    "rc_joins_per_room": _WIDE,
    "rc_invites": {"per_room": _WIDE, "per_user": _WIDE, "per_issuer": _WIDE},
    "rc_room_creation": _WIDE,
    "rc_media_create": _WIDE,
    "rc_reports": _WIDE,
    "rc_presence": {"per_user": _WIDE},
}


class MatrixControl:
    """Lets people join the server. Each person is new, so that tests do not disturb each other."""

    def __init__(self, server: SynapseServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.url = server.url
        self._session = session

    async def person(self, name: str, *, is_admin: bool = False) -> MatrixPerson:
        """Register an account with a device, and return its person. A test also gets the account of
        the gateway's bot in this way."""
        user = f"{name}-{next(self.server.numbers)}"
        path = f"{self.url}/_synapse/admin/v1/register"
        async with self._session.get(path) as response:
            nonce = (await response.json())["nonce"]
        password = f"password of {user}"
        parts = (nonce, user, password, "admin" if is_admin else "notadmin")
        # Synapse's registration protocol requires SHA-1.
        mac = hmac.new(_SECRET.encode(), "\0".join(parts).encode(), "sha1").hexdigest()
        body = {
            "nonce": nonce,
            "username": user,
            "password": password,
            "admin": is_admin,
            "mac": mac,
        }
        async with self._session.post(path, json=body) as response:
            answer = await response.json()
            assert response.status == 200, answer
        return MatrixPerson(
            self.url,
            self._session,
            clock=self.server.clock,
            password=password,
            account=answer,
        )
