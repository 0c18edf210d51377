"""LangChain's standard tests of a sandbox, on the package's own adapter and on the one for E2B."""

import os

import pytest
from demesne import Sandbox
from demesne.langchain import DemesneSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestDemesne(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with Sandbox(os.environ["DEMESNE_TEST_IMAGE"]) as sandbox:
            yield DemesneSandbox(sandbox)


class TestE2B(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        import e2b
        from langchain_e2b import E2BSandbox

        sandbox = e2b.Sandbox.create()
        yield E2BSandbox(sandbox=sandbox)
        sandbox.kill()
