"""Bad input of the OpenAI Agents SDK's sandbox client: the SDK's own errors."""

import io
from pathlib import Path

import pytest
from agents.sandbox.errors import ExecTransportError, WorkspaceArchiveWriteError, WorkspaceStartError
from badinput import other_server  # noqa: F401
from demesne.openai_agents import DemesneSandboxClient


async def test_gone(other_server):
    """The server ends in the middle of a command."""
    client = DemesneSandboxClient()
    session = await client.create()
    await session.start()
    other_server.killed_in("sleep 60")
    with pytest.raises(ExecTransportError, match="see the server's log"):
        await session.exec("sleep 60")
    other_server.wait()
    with pytest.raises(ExecTransportError, match="start demesne serve"):
        await session.exec("true")
    with pytest.raises(WorkspaceArchiveWriteError):
        await session._inner.write(Path("file"), io.BytesIO(b"x"))
    assert not await session.running()
    with pytest.raises(WorkspaceStartError, match="start demesne serve"):
        await client.resume(session.state)
    with pytest.raises(WorkspaceStartError, match="start demesne serve"):
        await client.create()
    await client.delete(session)
