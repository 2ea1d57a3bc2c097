"""Checks that the tests pass whatever the checkout's folder is called. `git clone` calls it
`perdure`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The tests that read the command lines of processes: the names of folders are part of these.
AFFECTED = "stranger_is_told or holds_the_lock or these_command_lines"


def test_checks_do_not_depend_on_what_the_checkout_is_called(tmp_path: Path) -> None:
    checkout = tmp_path / "perdure"
    checkout.mkdir()
    (checkout / ".venv").symlink_to(sys.prefix)
    for name in ("pyproject.toml", "src", "tests"):
        (checkout / name).symlink_to(ROOT / name)

    result = subprocess.run(
        [
            *(checkout / ".venv" / "bin" / "python", "-m", "pytest", "-q", "-k", AFFECTED),
            *("-p", "no:cacheprovider", "tests/e2e/test_cli.py", "tests/unit/test_node_process.py"),
        ],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout
    assert "20 passed" in result.stdout
