"""Makes the store that the configuration names."""

from pathlib import Path

from perdure.app.config.environment import DATABASE
from perdure.app.config.limits import quota_of
from perdure.app.config.loading import Config
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

    return PostgresDriver(config.store.url.reveal(), backups=home)
