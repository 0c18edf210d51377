"""Bad input of LangChain's sandbox: the errors of the package, for which the framework has no own."""

import pytest
from badinput import other_server  # noqa: F401
from demesne import Client, InvalidRequest, NotFound, Refused, Sandbox, SandboxLost, Unavailable
from demesne.langchain import DemesneSandbox


def test_gone(other_server):
    sandbox = DemesneSandbox(Sandbox())
    other_server.killed_in("sleep 60")
    with pytest.raises(SandboxLost):
        sandbox.execute("sleep 60")


def test_removed(other_server):
    sandbox = DemesneSandbox(Sandbox())
    sandbox.sandbox.kill()
    with pytest.raises(NotFound, match="ended|no such sandbox"):
        sandbox.execute("true")


def test_made_wrong(other_server):
    with pytest.raises(Refused, match="token"):
        Sandbox(client=Client(other_server.url, "wrong"))
    with pytest.raises(Unavailable, match="none.test/image"):
        Sandbox("none.test/image")
    with pytest.raises(InvalidRequest, match="no-such-image"):
        Sandbox("no-such-image")


def test_large_output(other_server):
    """A command writes 1 GiB: the first MiB is kept."""
    with Sandbox() as sandbox:
        done = DemesneSandbox(sandbox).execute("head -c 1073741824 /dev/zero | tr '\\0' x")
        assert (done.exit_code, done.truncated, len(done.output)) == (0, True, 1 << 20)
        for seconds in 1, 5, 25:  # on a slow machine the command may begin later
            timed = DemesneSandbox(sandbox).execute("echo begun; sleep 60", timeout=seconds)
            assert timed.exit_code == 124
            if timed.output.startswith("begun"):
                break
        assert timed.output == f"begun\n\nCommand timed out after {seconds} seconds"
        with pytest.raises(ValueError):
            DemesneSandbox(sandbox).execute("true", timeout=-1)
