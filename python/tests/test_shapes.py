"""Does what the Python packages of sandboxmcp and sandbox-agent offer, with the names of demesne: each line of the table in
docs/explanation/differences.md."""

import hashlib

import pytest
from demesne import Client, NotFound, Sandbox


def test_execution_request():
    with Sandbox(memory=256 << 20, cpus=1, pids=100, allow=["example.com"]) as sandbox:
        done = sandbox.run(["python3", "-c", "import sys; print(6 * 7); print('no', file=sys.stderr); sys.exit(3)"])
        assert (done.stdout, done.stderr, done.exit_code, done.reason) == ("42\n", "no\n", 3, "exited")
        assert sandbox.run("echo $((6 * 7))").stdout == "42\n"
        assert sandbox.run(["sleep", "60"], timeout=0.2).reason == "timed-out"
        assert sandbox.run(["seq", "1000"], max_output=4).stdout == "1\n2\n"
        assert sandbox.set_limits(memory=128 << 20)["memory"] == 128 << 20
        assert "example.org" in str(sandbox.allow("example.org")) and "example.org" in str(sandbox.deny("example.org"))
        sandbox.run("printf made > artifact")
        assert [(f["name"], f["size"]) for f in sandbox.files.list()] == [("artifact", 4)]
        assert hashlib.sha256(sandbox.files.read("artifact")).hexdigest() == hashlib.sha256(b"made").hexdigest()
    with Sandbox(ask=True):
        assert Client().questions() == []
        with pytest.raises(NotFound):
            Client().answer("nothing", True)


def test_sandbox_manager():
    first, second = Sandbox("host"), Sandbox("host")
    first.files.write("in.txt", "6 * 7")
    assert first.run(["python3", "-c", "print(eval(open('in.txt').read()))"]).stdout == "42\n"
    second.files.write("copy.txt", first.files.read("in.txt"))
    assert second.run(["cat", "copy.txt"]).stdout == "6 * 7"
    for sandbox in first, second:
        sandbox.kill()
