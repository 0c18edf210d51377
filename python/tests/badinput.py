"""A server for tests of the package and of frameworks, which they may kill: the fixture other_server. Sandboxes that name no
client use it. After the test the documented commands remove what it left, and the fixture looks from outside for the rest.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import demesne
import pytest


class State:
    """A server's state in a directory, as the program demesne and the kernel see it."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="demesne-killed-"))
        self.directory.chmod(0o755)  # subordinate ids search it
        (self.directory / "run").mkdir(mode=0o711)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DEMESNE_") or k == "DEMESNE_IMAGE_STORE"}
        at = self.directory
        self.environment = kept | {
            "HOME": str(at), "XDG_RUNTIME_DIR": str(at / "run"), "DEMESNE_STATE": str(at / "state"),
            "DEMESNE_SANDBOX_ROOT": str(at / "sandboxes"), "DEMESNE_LINGER": "1s",
        }

    def demesne(self, *arguments):
        environment = {k: v for k, v in self.environment.items() if k != "DEMESNE_IMAGE_STORE"}  # which other tests use
        done = subprocess.run([os.environ["DEMESNE_BIN"], *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def processes(self):
        """The processes with this home in their environment, and all below them, as PID and start."""
        parents, found, size = self.all(), set(), -1
        for process in parents:
            try:
                if f"HOME={self.directory}\0".encode() in pathlib.Path("/proc", process[0], "environ").read_bytes():
                    found.add(process)
            except OSError:  # it ended, or is another user's
                pass
        while size < len(found):
            size = len(found)
            found |= {process for process, parent in parents.items() if parent in {pid for pid, _ in found}}
        return found

    @staticmethod
    def all():
        """The parents of all processes."""
        found = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found[stat.parent.name, fields[19]] = fields[1]
        return found

    def files(self):
        """What there is of sandboxes and of a runner. The record of why a sandbox ended stays for a time."""
        _, directories, names = next(os.walk(self.directory / "sandboxes"), ("", [], []))
        found = directories + names
        for top in "run", "state/out":
            for path, _, names in os.walk(self.directory / top):
                found += [f"{path}/{name}" for name in names if not path.endswith("/ended")]
        return found

    def end(self, before):
        """Waits until all processes and those of before have ended and their files are gone. Removes the directory."""
        assert self.demesne("ls", "-q") == ""
        self.demesne("gc")
        end, quiet = time.monotonic() + 300, 0
        while quiet < 3:  # a process that starts another one and ends may be missed once
            alive, files = self.processes() | (before & self.all().keys()), self.files()
            quiet = 0 if alive or files else quiet + 1
            assert time.monotonic() < end, (alive, files)
        shutil.rmtree(self.directory)


def kill_in(server, command):
    """Kills the server when one of its sandboxes executes a command."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        for pid, _ in server.state.processes():
            try:
                argv = pathlib.Path("/proc", pid, "cmdline").read_bytes()
            except OSError:  # it ended
                continue
            if argv.rstrip(b"\0").replace(b"\0", b" ").endswith(command.encode()):
                return server.kill()
        time.sleep(0.02)


@pytest.fixture
def other_server(monkeypatch):
    state = State()
    argv = [os.environ["DEMESNE_BIN"], "serve", "--http", "127.0.0.1:0"]
    server = subprocess.Popen(argv, env=state.environment, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "listening on " in line:
            break
    server.url = line.split("listening on ")[1].strip()
    server.token = (state.directory / "state/server/token").read_text().strip()
    server.state = state
    server.killed_in = lambda command: threading.Thread(target=kill_in, args=(server, command), daemon=True).start()
    client = demesne.Client(server.url, server.token)
    monkeypatch.setattr(demesne._sandbox, "shared", lambda: client)
    yield server
    before = state.processes()
    server.kill()
    server.wait()
    if ids := state.demesne("ls", "-q").split():
        state.demesne("rm", "--force", *ids)
    state.end(before)
