"""Checks what the transport to an agent's process says of messages that nobody reads any more."""

from collections.abc import AsyncIterator

import pytest

from perdure.agents.acp.transport import ChildTransport
from perdure.app.children.children import LaunchedChildren
from perdure.ports.system.children import ChildProgram

ASKED = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}}
ANSWERED = {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.fixture
async def gone() -> AsyncIterator[ChildTransport]:
    """Yield a transport to a process that has ended."""
    children = LaunchedChildren()
    child = await children.start(ChildProgram(argv=("true",)))
    await child.wait()
    yield ChildTransport(child, hear=lambda *_: None, skip=lambda: None, end=lambda: None)
    await children.close()


async def test_a_request_that_nobody_reads_is_a_failure(gone: ChildTransport) -> None:
    with pytest.raises(ConnectionError):
        await gone.send(ASKED)


async def test_an_answer_that_nobody_reads_is_none(gone: ChildTransport) -> None:
    await gone.send(ANSWERED)
