"""Bad input of SWE-ReX's deployment: its own errors."""

import os

import pytest
from demesne.swe_rex import DemesneDeployment
from swerex.exceptions import DeploymentNotStartedError, DeploymentStartupError


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
