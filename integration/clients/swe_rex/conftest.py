"""The fixtures of SWE-ReX's own tests, on a deployment in a sandbox. Its source archive has the tests without them.

The server and the tests use the same files below tmp_path, so the sandbox has that directory at its own path.
"""

import asyncio
import os

import pytest
from demesne.swe_rex import DemesneDeployment
from swerex.runtime.abstract import BashAction, CloseBashSessionRequest, Command, CreateBashSessionRequest


class _Action(BashAction):
    timeout: float | None = 60


class _Command(Command):
    timeout: float | None = 60


@pytest.fixture(scope="session")
def deployment(tmp_path_factory):
    base = str(tmp_path_factory.getbasetemp())
    deployment = DemesneDeployment(os.environ["DEMESNE_TEST_IMAGE"], mounts={base: "rw"})
    with asyncio.Runner() as runner:
        runner.run(deployment.start())
        yield deployment
        runner.run(deployment.stop())


@pytest.fixture
def remote_runtime(deployment):
    return deployment.runtime


@pytest.fixture
async def runtime_with_default_session(remote_runtime):
    await remote_runtime.create_session(CreateBashSessionRequest())
    yield remote_runtime
    await remote_runtime.close_session(CloseBashSessionRequest())
