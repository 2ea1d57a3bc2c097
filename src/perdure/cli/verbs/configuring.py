"""Implements `perdure config check`."""

from pathlib import Path

from perdure.app.config.environment import home_folder, process_environ
from perdure.app.config.loading import FILE_NAME, settings_without_effect
from perdure.app.operate.settings import usable_settings
from perdure.cli.printing import print_json


def check(home: Path | None, *, is_json: bool) -> None:
    """Check the configuration as the start does, and change nothing. Raises `ConfigError` with
    every problem."""
    environ = process_environ()
    folder = home_folder(home, environ)
    settings, _ = usable_settings(folder, environ)
    idle = list(settings_without_effect(settings))
    file = folder / FILE_NAME
    if is_json:
        print_json({"file": str(file), "exists": file.exists(), "without_effect": idle})
        return
    print(f"{file} can be used" if file.exists() else f"there is no {file}; the defaults are used")
    for each in idle:
        print(f"{each} has no effect in this version")
