"""Sandboxes for the tests of E2B's Python SDKs. E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL name a demesne serve.

DEMESNE_TEST_USER says that the image of the template base has the account user with id 1000, and DEMESNE_TEST_IMAGE names
an image for templates. Without them the tests of these are skipped.
"""

import os
import time

import pytest
from e2b import AsyncSandbox, Sandbox


def until(what, found, seconds=300):
    """Waits until found() is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


@pytest.fixture
def create():
    """Makes sandboxes that end with the test."""
    made = []

    def create(*args, **options):
        made.append(Sandbox.create(*args, **options))
        return made[-1]

    yield create
    for sandbox in made:
        sandbox.kill()


@pytest.fixture(scope="session")
def box():
    """A sandbox for all tests that do not change its state."""
    sandbox = Sandbox.create(timeout=3600, envs={"FROM_SANDBOX": "yes"})
    yield sandbox
    sandbox.kill()


@pytest.fixture(scope="session")
def image():
    if not (name := os.environ.get("DEMESNE_TEST_IMAGE")):
        pytest.skip("needs DEMESNE_TEST_IMAGE")
    return name


@pytest.fixture
def acreate():
    """Makes sandboxes of AsyncSandbox, within one event loop, and ends them."""

    class Made(list):
        async def __aenter__(self):
            return self

        async def __call__(self, *args, **options):
            self.append(await AsyncSandbox.create(*args, **options))
            return self[-1]

        async def __aexit__(self, *_):
            for sandbox in self:
                await sandbox.kill()

    return Made
