"""Makes the store that the configuration names."""

from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode, urlsplit, urlunsplit

from perdure.app.config.environment import DATABASE
from perdure.app.config.loading import FILE_NAME, Config
from perdure.app.config.network import ca_path
from perdure.app.wiring.budgets import quota_of
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.store.drivers.driver import Driver
from perdure.store.store import Store


def store(config: Config, home: Path, *, clock: Clock, entropy: Entropy) -> Store:
    """Make the store of a node. It is not open yet."""
    return Store(
        _driver(config, home),
        clock=clock,
        entropy=entropy,
        media=home / "media",
        quota=quota_of(config),
    )


def watched(home: Path, *, clock: Clock, entropy: Entropy) -> Store:
    """Make the SQLite store of a home, for reading only. It is not open yet."""
    from perdure.store.drivers.sqlite_readers import SqliteOnlooker  # noqa: PLC0415

    driver = SqliteOnlooker(home / DATABASE)
    return Store(driver, clock=clock, entropy=entropy, media=home / "media")


def _driver(config: Config, home: Path) -> Driver:
    """Return the driver of the database. Its library is imported only if it is used."""
    if config.store.is_sqlite:
        from perdure.store.drivers.sqlite import SqliteDriver  # noqa: PLC0415

        return SqliteDriver(home / DATABASE)
    from perdure.store.drivers.postgres import PostgresDriver  # noqa: PLC0415

    return PostgresDriver(database_address(config, home / FILE_NAME), backups=home)


def database_address(config: Config, path: Path) -> str:
    """Return the address of the PostgreSQL database. If it asks for a certificate to be verified
    and does not say by which authorities, those of `ca_file` verify it. `path` is the configuration
    file."""
    url, authorities = config.store.url.reveal(), config.network.ca_file
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    is_verified = query.get("sslmode", [""])[-1].startswith("verify-")
    if authorities is None or not is_verified or "sslrootcert" in query:
        return url
    more = urlencode({"sslrootcert": str(ca_path(authorities, path))}, quote_via=quote)
    return urlunsplit(parts._replace(query=f"{parts.query}&{more}"))
