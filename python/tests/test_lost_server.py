"""A server that is killed in the middle of a command: the error of the package, and no leftovers."""

import os
import signal
import socket
import struct

import demesne
import pytest
from badinput import State, other_server  # noqa: F401
from demesne import Client, Sandbox


def killed(sandbox, pid):
    """Kills the server when a command has begun, and waits for its end."""
    with sandbox.stream("echo begun; sleep 98765 & sleep 98765") as output:
        assert next(iter(output)) == ("stdout", b"begun\n")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(demesne.SandboxLost, match="see the server's log"):
            output.result()
    os.waitpid(pid, 0)  # a server that ends may still accept a connection


def test_killed(other_server):
    """The command ends with the server. The sandbox stays for the next one, or for demesne rm."""
    sandbox = Sandbox()
    killed(sandbox, other_server.pid)
    with pytest.raises(demesne.Unavailable, match="start demesne serve"):
        sandbox.run("true")
    with pytest.raises(demesne.Unavailable):
        sandbox.kill()
    assert other_server.state.demesne("ls", "-q").split() == [sandbox.id]
    assert other_server.state.processes() and other_server.state.files()


def test_own_server_killed(monkeypatch):
    """The next call starts another server, and the end of the with statement removes the sandbox."""
    state = State()
    for name, value in state.environment.items():
        monkeypatch.setenv(name, value)
    client = Client()
    with Sandbox(client=client) as sandbox:
        before = state.processes()
        assert before
        connected = client._dial()
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        killed(sandbox, struct.unpack("3i", credentials)[0])
        connected.close()
        sandbox.files.write("after", "x")
        # The runner ends the command a moment after the server.
        assert sandbox.run("cat after; while pgrep sleep >&2; do :; done; echo ended", timeout=300).stdout == "xended\n"
    client.close()
    state.end(before)
