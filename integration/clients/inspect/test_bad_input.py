"""Bad input of Inspect's sandbox: its own errors."""

import pytest
from badinput import other_server  # noqa: F401
from demesne.inspect import DemesneConfig, DemesneSandboxEnvironment
from inspect_ai.util import SandboxUnavailableError


async def environment(config=None):
    made = await DemesneSandboxEnvironment.sample_init("bad", config or DemesneConfig(), {})
    return made["default"].as_type(DemesneSandboxEnvironment)


async def test_gone(other_server):
    env = await environment()
    other_server.killed_in("sleep 60")
    with pytest.raises(SandboxUnavailableError):
        await env.exec(["sleep", "60"])
    with pytest.raises(SandboxUnavailableError):
        await env.exec(["true"])


async def test_removed(other_server):
    env = await environment()
    await env.sandbox.kill()
    with pytest.raises(SandboxUnavailableError, match="ended|no such sandbox"):
        await env.exec(["true"])


async def test_made_wrong(other_server):
    with pytest.raises(SandboxUnavailableError, match="none.test/image"):
        await environment(DemesneConfig(image="none.test/image"))
    with pytest.raises(SandboxUnavailableError, match="network|mode|operator"):
        await environment(DemesneConfig(network="everything"))
