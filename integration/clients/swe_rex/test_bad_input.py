"""Bad input of SWE-ReX's deployment: its own errors."""

import os

import aiohttp
import pytest
from badinput import other_server  # noqa: F401
from demesne.swe_rex import DemesneDeployment
from swerex.exceptions import DeploymentNotStartedError, DeploymentStartupError
from swerex.runtime.abstract import Command


async def test_gone(other_server):
    """The server ends in the middle of a command: the runtime raises what it raises for a container that ended."""
    deployment = DemesneDeployment(os.environ["DEMESNE_TEST_IMAGE"])
    await deployment.start()
    other_server.killed_in("sleep 60")
    with pytest.raises(aiohttp.ClientError):
        await deployment.runtime.execute(Command(command=["sleep", "60"]))
    alive = await deployment.is_alive(timeout=1)
    assert not alive.is_alive and "see the server's log" in alive.message
    await deployment.stop()
    await deployment.stop()
    with pytest.raises(DeploymentStartupError, match="start demesne serve"):
        await deployment.start()


async def test_made_wrong():
    deployment = DemesneDeployment("none.test/image")
    with pytest.raises(DeploymentNotStartedError):
        await deployment.is_alive()
    with pytest.raises(DeploymentStartupError, match="none.test/image"):
        await deployment.start()
    with pytest.raises(DeploymentStartupError, match="no-such-program"):
        await DemesneDeployment(os.environ["DEMESNE_TEST_IMAGE"], command=["no-such-program"]).start()
    with pytest.raises(DeploymentStartupError, match="of the program"):
        await DemesneDeployment(os.environ["DEMESNE_TEST_IMAGE"], command=["sh", "-c", "echo of the program >&2; exit 3"]).start()
    with pytest.raises(DeploymentStartupError, match="does not answer"):
        await DemesneDeployment(os.environ["DEMESNE_TEST_IMAGE"], command=["sh", "-c", "sleep 60"], startup_timeout=0.5).start()
    await deployment.stop()
