"""Bad input of verifiers' runtime: its own error."""

import asyncio

import pytest
from badinput import other_server  # noqa: F401
from demesne.verifiers import DemesneConfig, DemesneRuntime
from verifiers.v1.errors import SandboxError


async def test_gone(other_server):
    runtime = DemesneRuntime(DemesneConfig())
    await runtime.start()
    asyncio.get_running_loop().call_later(0.5, other_server.kill)
    with pytest.raises(SandboxError, match="sleep"):
        await runtime.run(["sleep", "60"], {})
    assert not await runtime.alive()
    await runtime.stop()


async def test_made_wrong(other_server):
    runtime = DemesneRuntime(DemesneConfig(image="none.test/image"))
    with pytest.raises(SandboxError, match="none.test/image"):
        await runtime.start()
    with pytest.raises(SandboxError, match="not started"):
        await runtime.run(["true"], {})
    await runtime.stop()
    with pytest.raises(SandboxError, match="program|nothing|not found|no such"):
        await failing()


async def failing():
    runtime = DemesneRuntime(DemesneConfig())
    await runtime.start()
    try:
        await runtime.run(["no-such-program"], {})
    finally:
        await runtime.stop()
