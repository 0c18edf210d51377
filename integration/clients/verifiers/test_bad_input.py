"""Bad input of verifiers' runtime: its own error."""

import asyncio

import pytest
from badinput import other_server  # noqa: F401
from demesne.verifiers import DemesneConfig, DemesneRuntime
from verifiers.v1.errors import SandboxError


async def test_gone(other_server):
    runtime = DemesneRuntime(DemesneConfig())
    await runtime.start()
    other_server.killed_in("sleep 60")
    with pytest.raises(SandboxError, match="sleep.*see the server's log"):
        await runtime.run(["sleep", "60"], {})
    other_server.wait()
    with pytest.raises(SandboxError, match="start demesne serve"):
        await runtime.write("file", b"")
    assert not await runtime.alive()
    await runtime.stop()


async def test_many_files():
    """10,000 files, which the framework writes at once."""
    runtime = DemesneRuntime(DemesneConfig())
    await runtime.start()
    try:
        await asyncio.gather(*(runtime.write(f"many/{n}", b"%d" % n) for n in range(10_000)))
        done = await runtime.run(["sh", "-c", "cat many/* | wc -c; ls many | wc -l"], {})
        assert done.stdout.split() == ["38890", "10000"]
    finally:
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
