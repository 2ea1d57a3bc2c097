"""Reads the configuration of a node, and checks that this machine can use it."""

from collections.abc import Mapping
from pathlib import Path

from perdure.app.config import loading as config
from perdure.app.config.network import NetworkSettings, network_of
from perdure.app.config.tool_checks import check_folders


def usable_settings(
    home: Path, environ: Mapping[str, str]
) -> tuple[config.Config, NetworkSettings]:
    """Load the configuration, and return it with how other servers are reached. Raises
    `ConfigError`, also for what is valid and cannot be used here: a folder that is missing."""
    settings = config.load(home, environ)
    path = home / config.FILE_NAME
    check_folders(settings, path)
    return settings, network_of(settings, path, environ)
