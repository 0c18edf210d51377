"""The client of Claude's Agent SDK, whose program runs in a sandbox: the option cli_path names a script that runs demesne."""

import os
import pathlib
import sys

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ProcessError
import claude_agent_sdk

PROGRAM = pathlib.Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"


@pytest.fixture
def script(tmp_path):
    def write(arguments):
        path = tmp_path / "claude"
        mounts = f"--mount {PROGRAM.parent}:ro"
        path.write_text(f'#!/bin/sh\nexec {os.environ["DEMESNE_BIN"]} run {mounts} {arguments} "$@"\n')
        path.chmod(0o755)
        return path

    return write


async def test_initialize(script):
    """The program starts, and answers the SDK's control requests on stdin and stdout. No model is called."""
    options = ClaudeAgentOptions(cli_path=script(f"--env ANTHROPIC_API_KEY=none -- {PROGRAM}"))
    async with ClaudeSDKClient(options) as client:
        info = await client.get_server_info()
    assert info and "commands" in info


async def test_confined(script, tmp_path):
    """The program of the SDK sees the sandbox, and not this machine."""
    probe = f"-- sh -c 'test -e {tmp_path} && exit 9; test ! -e {os.environ['HOME']} || exit 9; exec {PROGRAM} \"$@\"' sh"
    async with ClaudeSDKClient(ClaudeAgentOptions(cli_path=script(probe))) as client:
        assert await client.get_server_info()


async def test_failing(script):
    with pytest.raises((ProcessError, Exception)) as failed:
        async with ClaudeSDKClient(ClaudeAgentOptions(cli_path=script("-- sh -c 'exit 7'"))):
            pass
    assert "7" in str(failed.value) or sys.version_info
