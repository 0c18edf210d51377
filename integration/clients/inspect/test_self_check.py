"""Inspect's own checks of a sandbox provider, on the image that $DEMESNE_TEST_IMAGE names."""

import os

import pytest
from demesne.inspect import DemesneConfig, DemesneSandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403


@pytest.fixture
async def sandbox_env():
    made = await DemesneSandboxEnvironment.sample_init("check", DemesneConfig(image=os.environ["DEMESNE_TEST_IMAGE"]), {})
    yield made["default"]
    await DemesneSandboxEnvironment.sample_cleanup("check", None, made, False)
