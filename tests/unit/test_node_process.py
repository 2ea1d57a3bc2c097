"""Checks that a node is recognised by the program and the verb of its command line."""

import pytest

from perdure.app.operate.node_process import is_serve

NODES = [
    "/usr/bin/perdure serve",
    "perdure --home /data serve --port 0",
    "perdure --home=/data --json serve",
    "/home/ada/perdure/.venv/bin/python3 /home/ada/perdure/.venv/bin/perdure serve",
    "python3 -m perdure serve",
    "/usr/bin/python3.13 -X dev -W error -I -m perdure serve --home /data",
]
OTHERS = [
    "",
    "/usr/bin/perdure",
    "/usr/bin/perdure chat serve",
    "perdure --home serve status",
    "perdure send telegram:7 serve",
    "/home/ada/perdure/.venv/bin/python /home/ada/perdure/bin/ollama serve",
    "/home/ada/perdure/bin/ollama serve perdure",
    "python -c input() perdure serve",
    "python -m http.server perdure serve",
    "tail -f /var/log/perdure serve",
    "python",
    "python -m perdure.testkit serve",
]


@pytest.mark.parametrize("line", NODES)
def test_these_command_lines_are_nodes(line: str) -> None:
    assert is_serve(line.encode().split(b" "))


@pytest.mark.parametrize("line", OTHERS)
def test_these_command_lines_are_no_nodes(line: str) -> None:
    assert not is_serve(line.encode().split(b" "))
