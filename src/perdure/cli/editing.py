"""Implements `perdure acp`: an editor talks in the node's conversations."""

import sys
from functools import partial

from perdure.app.editor.agent import EditorAgent
from perdure.app.editor.link import standard_link
from perdure.app.wiring.system import SystemEntropy
from perdure.cli.exits import complain
from perdure.cli.target import CommandTarget, running


async def serve_editor(target: CommandTarget, *, name: str) -> None:
    """Answer an editor on standard input and output until it closes them. It may be started before
    the node: what needs the node says then that none runs."""
    if sys.stdin.isatty():
        complain("an editor starts this command and speaks with it; Ctrl-D leaves")
    link = await standard_link()
    await link.serve(EditorAgent(link, partial(running, target), SystemEntropy(), name=name).answer)
