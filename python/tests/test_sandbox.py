"""Tests the package against the real program, which $DEMESNE_BIN or PATH has."""

import asyncio
import contextlib
import gc
import os
import resource
import socket
import subprocess
import sys
import threading
import time

import demesne
import pytest
from demesne import AsyncSandbox, Client, Sandbox


@pytest.fixture(scope="module")
def box():
    with Sandbox(env={"FROM": "sandbox"}) as sandbox:
        yield sandbox


def listed():
    return {s["id"] for s in Client().sandboxes()}


def test_import_is_quick():
    code = "import sys; import demesne; print([m for m in ('asyncio', 'typing', 'http.client', 'subprocess') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_run(box):
    r = box.run("echo out; echo err >&2; exit 3")
    assert (r.exit_code, r.reason, r.stdout, r.stderr, r.ok) == (3, "exited", "out\n", "err\n", False)
    assert box.run(["printf", "%s", "a b"]).stdout == "a b"
    assert box.run("echo $FROM $OWN; pwd", env={"OWN": "1"}, cwd="/tmp").stdout == "sandbox 1\n/tmp\n"
    with pytest.raises(demesne.CommandFailed) as failed:
        box.run("echo so; false", check=True)
    assert failed.value.result.stdout == "so\n"
    with pytest.raises(demesne.InvalidRequest):
        box.run(["no-such-program"])


def test_input(box):
    assert box.run("cat", input="text ä").stdout == "text ä"
    data = bytes(range(256)) * 100
    assert box.run("cat; ls -a /tmp | grep demesne-input", input=data).stdout_bytes == data
    assert box.run(["cat"], input=data).stdout_bytes == data
    assert box.run("cat").stdout == ""


def test_timeout(box):
    r = box.run("echo begun; sleep 100", timeout=2)
    assert (r.reason, r.exit_code, r.stdout) == ("timed-out", 124, "begun\n")


def test_large_output(box):
    r = box.run("head -c 20000000 /dev/zero; echo end >&2", max_output=1000)
    assert r.truncated and len(r.stdout_bytes) == 1000 and r.stderr == "end\n"
    assert len(box.run("head -c 3000000 /dev/zero").stdout_bytes) == 3000000


def test_stream(box):
    with box.stream("echo one; sleep 1000") as output:
        assert next(iter(output)) == ("stdout", b"one\n")
    # The command ends with its reader.
    end = time.monotonic() + 300
    while any("sleep 1000" in p["command"] for p in box.processes()):
        assert time.monotonic() < end
    with box.stream("printf ab; exit 4") as output:
        assert b"".join(data for _, data in output) == b"ab"
        assert output.answer["exit_code"] == 4


def test_files(box):
    data = bytes(range(256)) * 1000
    box.files.write("dir/a b%ä.bin", data)
    assert box.files.read("dir/a b%ä.bin") == data
    box.files.write("empty", "")
    assert box.files.read("empty") == b"" and box.files.read_text("empty") == ""
    box.files.write("t.py", "print(6*7)\n")
    assert box.files.edit("t.py", "6*7", "7*6") == 1 and box.files.read_text("t.py") == "print(7*6)\n"
    assert box.files.glob("*.py") == ["/workspace/t.py"] and ":print(7*6)" in box.files.grep("7.6")
    box.files.make_dir("x/y")
    box.files.copy("t.py", "x/y/u.py")
    box.files.move("x/y/u.py", "x/v.py")
    assert sorted(e["name"] for e in box.files.list("x")) == ["v.py", "y"]
    box.files.remove("x")
    assert not box.files.exists("x") and box.files.exists("t.py")
    with pytest.raises(demesne.NotFound):
        box.files.read("none")
    with pytest.raises(demesne.DemesneError):
        box.files.read("dir")
    name = "n" * 255
    box.files.write(name, "x")
    assert box.files.read(name) == b"x"
    with pytest.raises(demesne.DemesneError):
        box.files.write(name + "n", "x")


def test_many_files(box):
    box.run("mkdir many && cd many && seq 10000 | xargs touch", check=True)
    assert {e["name"] for e in box.files.list("many")} == {str(n) for n in range(1, 10001)}
    assert len(box.files.glob("many/77*[0-3]")) == 44
    with pytest.raises(demesne.InvalidRequest, match="too many"):
        box.files.glob("many/*")
    box.files.remove("many")


@pytest.mark.parametrize("text, said", [
    ("COPY ../secret /\n", r'Containerfile:2: source "../secret": outside of the context'),
    ("COPY link /\n", 'Containerfile:2: source "link": path escapes'),
    ("COPY absolute /\n", 'Containerfile:2: source "absolute": path escapes'),
    ("RUN --privileged id\n", "Containerfile:2: unknown flag: --privileged"),
    ("RUN ['no\n", "Containerfile:2"),
    ("FROM no-such-image\n", 'Containerfile:2: image "no-such-image": unknown'),
])
def test_hostile_build(tmp_path, text, said):
    """A build reads no file outside of its directory, and names the line of what it refuses."""
    (tmp_path / "context").mkdir()
    (tmp_path / "secret").write_text("of this machine")
    (tmp_path / "context/link").symlink_to("../secret")
    (tmp_path / "context/absolute").symlink_to(tmp_path / "secret")
    (tmp_path / "context/Containerfile").write_text("FROM scratch\n" + text)
    with pytest.raises(demesne.DemesneError, match=said):
        demesne.build(str(tmp_path / "context"), "local/hostile")
    assert "local/hostile" not in {image.get("name") for image in Client().images()}


def test_long_log(tmp_path):
    """Of a log of any length only the end is kept."""
    line = b'event: progress\ndata: {"message": "' + b"x" * 4000 + b'"}\n\n'
    lines = b"%x\r\n%s\r\n" % (len(line) * 64, line * 64)
    end = b'event: error\ndata: {"code": 400, "message": "the end"}\n\n'
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    Fake(str(tmp_path / "s"), head, lines, 1024, b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))  # 256 MiB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(demesne.InvalidRequest, match="xxx\n.*the end") as failed:
        demesne.build(str(tmp_path), "local/none", client=Client(f"unix:{tmp_path}/s", "token"))
    assert len(str(failed.value)) <= 2000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_build(tmp_path):
    """A context is read by a server at a socket, and sent to another one. Its path may lead through a link."""
    (tmp_path / "context").mkdir()
    (tmp_path / "link").symlink_to("context")
    (tmp_path / "context/Other").write_text("FROM scratch AS first\nARG WORD\nLABEL word=$WORD\nFROM no-such-image\n")
    options = {"file": "Other", "target": "first", "args": {"WORD": "given"}, "no_cache": True}
    assert demesne.build(str(tmp_path / "link"), "local/first", **options).startswith("sha256:")
    remote = Client()
    list(remote.sandboxes())  # it runs
    remote.local = False
    assert demesne.build(str(tmp_path / "link"), "local/first", client=remote, **options).startswith("sha256:")
    with pytest.raises(demesne.InvalidRequest, match="no-such-image"):
        demesne.build(str(tmp_path / "context"), "local/first", file="Other")
    with pytest.raises(demesne.DemesneError, match="none"):
        demesne.build(str(tmp_path / "none"), "local/first")


def test_life():
    sandbox = Sandbox(name="package-life")
    with pytest.raises(demesne.Conflict):
        Sandbox(name="package-life")
    assert Sandbox.connect("package-life").id == sandbox.id
    sandbox.files.write("kept", "yes")
    sandbox.pause()
    assert sandbox.info()["state"] == "paused"
    sandbox.resume()
    sandbox.stop()
    assert sandbox.run("cat kept").stdout == "yes"
    with sandbox.fork() as fork:
        fork.run("echo other > kept", check=True)
        assert sandbox.files.read_text("kept") == "yes"
    kept = sandbox.snapshot("package-snapshot")
    with kept.fork() as again:
        assert again.files.read_text("kept") == "yes"
    kept.kill()
    sandbox.kill()
    sandbox.kill()
    with pytest.raises(demesne.NotFound):
        sandbox.run("true")
    with pytest.raises(demesne.NotFound):
        Sandbox.connect("package-life")


def test_made_as_described():
    """The answer to a request that makes a sandbox is the one that describes it."""
    client = Client()
    for given in {}, {"limits": {"memory": 256 << 20}, "network": {"allow": ["a.example"]}, "group": "described", "name": "one"}:
        made = client.ask("POST", "sandboxes", ttl_seconds=100, **given)
        try:
            described = client.ask("GET", "sandboxes", made["id"])
            assert {**described, **made} == made and made["level"] and made["state"] == "running", (made, described)
        finally:
            client.remove("sandboxes", made["id"])


def test_ends_with_its_object():
    id = Sandbox().id
    gc.collect()
    assert id not in listed()
    code = "from demesne import Sandbox; s = Sandbox(); print(s.id)"
    id = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert id and id not in listed()


def test_limits_and_receipt():
    with Sandbox(memory=256 << 20, pids=100) as sandbox:
        assert sandbox.info()["limits"]["memory"] == 256 << 20
        assert sandbox.set_limits(memory=128 << 20)["memory"] == 128 << 20
        assert sandbox.usage()["memory_bytes"] >= 0 and sandbox.receipt()["layers"]
        sandbox.files.write("new", "x")
        assert {"path": "/workspace/new", "kind": "A"} in sandbox.changes()
    with pytest.raises(demesne.InvalidRequest, match="memory"):
        Sandbox(memory=-1)
    with pytest.raises(demesne.InvalidRequest, match="no-such-image"):
        Sandbox("no-such-image")


def test_network():
    with Sandbox(allow=["a.example"]) as sandbox:
        assert sandbox.network()["allow"] == ["a.example"]
        assert sandbox.deny("b.example")["deny"] == ["b.example"]
        r = sandbox.run(["bash", "-c", "exec 3<>/dev/tcp/c.example/443"])
        assert not r.ok and r.denied[0]["host"] == "c.example"
        assert {d["host"] for d in sandbox.decisions() if d["verdict"] == "denied"} == {"c.example"}


def test_group():
    serve = "import socket; l = socket.create_server(('', 7000)); print('ready', flush=True); c, _ = l.accept(); c.sendall(b'from db')"
    client = Client()
    try:
        db, web, lone = Sandbox(group="shop", name="db"), Sandbox(group="shop", name="web"), Sandbox(group="other")
        assert db.name == "db.shop" and db.info()["group"] == "shop"
        with pytest.raises(demesne.Conflict):
            Sandbox(group="shop", name="db", client=Client())
        output = db.stream(["python3", "-c", serve])
        assert next(iter(output)) == ("stdout", b"ready\n")
        ask = ["python3", "-c", "import socket; print(socket.create_connection(('db', 7000), 20).recv(10).decode())"]
        assert not lone.run(ask).ok
        assert web.run(ask).stdout == "from db\n"
        assert web.decisions()[-1]["host"] == "db"
        client.remove_group("shop")
        with pytest.raises(demesne.NotFound):
            web.info()
        client.remove_group("shop")
        assert lone.run("true").ok
        with pytest.raises(demesne.InvalidRequest, match="group"):
            Sandbox(group="Not a name")
    finally:
        for group in "shop", "other":
            client.remove_group(group)


def test_user(box):
    assert box.run("id -u", user="0").stdout == box.run("id -u", user="root").stdout == "0\n"
    with pytest.raises(demesne.InvalidRequest, match="no such account"):
        box.run("id", user="no-such-account")


def test_questions():
    client = Client()
    with Sandbox(ask=True) as sandbox:
        asked = threading.Thread(target=sandbox.run, args=(["bash", "-c", "exec 3<>/dev/tcp/d.example/443"],))
        asked.start()
        end = time.monotonic() + 300
        while not (waiting := client.questions()):
            assert time.monotonic() < end
        assert waiting[0]["name"] == "d.example"
        client.answer(waiting[0]["id"], allow=False)
        asked.join()


def test_cow(tmp_path):
    (tmp_path / "a.txt").write_text("before\n")
    with Sandbox(mounts={str(tmp_path): "cow"}) as sandbox:
        sandbox.run("echo after > a.txt; echo new > b.txt", cwd=str(tmp_path), check=True)
        assert (tmp_path / "a.txt").read_text() == "before\n"
        patch = sandbox.diff()
        assert "-before" in patch and "+after" in patch and "b.txt" in patch
        sandbox.apply()
        assert (tmp_path / "a.txt").read_text() == "after\n" and (tmp_path / "b.txt").read_text() == "new\n"
        sandbox.run("echo more > c.txt", cwd=str(tmp_path), check=True)
        sandbox.discard()
        assert not (tmp_path / "c.txt").exists() and sandbox.diff() == ""
    assert str(tmp_path) not in demesne._client.cli("diff")
    with Sandbox(mounts={str(tmp_path): "cow"}) as sandbox:
        sandbox.run("echo kept > d.txt", cwd=str(tmp_path), check=True)
    assert str(tmp_path) in demesne._client.cli("diff")  # it can be applied after the end of the sandbox
    sandbox.kill()
    demesne._client.cli("discard", sandbox.id)


def test_threads(box):
    def one(i):
        found[i] = box.run(f"echo {i}").stdout

    found = [""] * 32
    threads = [threading.Thread(target=one, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [f"{i}\n" for i in range(32)]


def test_lost():
    sandbox = Sandbox()

    def kill():
        while not any("sleep 1000" in p["command"] for p in sandbox.processes()):
            time.sleep(0.02)
        sandbox.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(demesne.SandboxLost):
        sandbox.run("sleep 1000")
    killer.join()


def test_no_server(monkeypatch, tmp_path):
    monkeypatch.setenv("DEMESNE_STATE", str(tmp_path))
    monkeypatch.setenv("DEMESNE_BIN", "/bin/false")
    with pytest.raises(demesne.Unavailable, match="start demesne serve"):
        Sandbox(client=Client())
    with pytest.raises(demesne.Unavailable):
        Sandbox(client=Client("unix:/nowhere", "token"))
    monkeypatch.undo()
    with pytest.raises(demesne.Refused):
        Sandbox(client=Client("unix:" + Client()._socket, "wrong"))


def test_async():
    async def calls():
        async with AsyncSandbox() as sandbox:
            found = await asyncio.gather(*(sandbox.run(f"echo {i}") for i in range(32)))
            assert [r.stdout for r in found] == [f"{i}\n" for i in range(32)]
            await sandbox.files.write("a", "x")
            assert await sandbox.files.read("a") == b"x"
            async with await sandbox.fork() as fork:
                assert await fork.files.read("a") == b"x"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sandbox.run("sleep 1000"), 1)
            for _ in range(1000):
                if not any("sleep 1000" in p["command"] for p in await sandbox.processes()):
                    break
            else:
                raise AssertionError("a cancelled command runs")
            id = sandbox.id
        with pytest.raises(demesne.NotFound):
            await AsyncSandbox.connect(id)

    asyncio.run(calls())


def test_forked_process(box):
    if (child := os.fork()) == 0:
        os._exit(0 if box.run("echo child").stdout == "child\n" else 1)
    assert box.run("echo parent").stdout == "parent\n"
    assert os.waitpid(child, 0)[1] == 0


def test_forked_process_removes_nothing():
    sandbox = Sandbox()
    if (child := os.fork()) == 0:
        del sandbox
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert sandbox.run("echo lives").stdout == "lives\n"
    sandbox.kill()


class Fake:
    """A server that gives one answer to each connection, and closes it. repeated is a part of the answer."""

    def __init__(self, path, answer, repeated=b"", times=0, end=b""):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.answer, self.repeated, self.times, self.end = answer, repeated, times, end
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            with connection, contextlib.suppress(OSError):  # a client that closes first must not end the thread
                connection.recv(1 << 16)
                connection.sendall(self.answer)
                for _ in range(self.times):
                    connection.sendall(self.repeated)
                connection.sendall(self.end)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):  # a body that is unread at the close would reset the connection
                    pass


@pytest.mark.parametrize("answer, error", [
    (b"SSH-2.0-OpenSSH\r\n", demesne.Unavailable),
    (b"HTTP/1.1 nonsense\r\n\r\n", demesne.Unavailable),
    (b"HTTP/1.0 200 OK\r\n\r\n", demesne.Unavailable),
    (b"HTTP/1.1 99 OK\r\n\r\n", demesne.Unavailable),
    (b"HTTP/1.1 200 OK\r\n" + b"".join(b"a%d: b\r\n" % i for i in range(200)) + b"\r\n", demesne.Unavailable),
    (b"HTTP/1.1 200 OK\r\na:" + b"b" * 70_000 + b"\r\n\r\n", demesne.Unavailable),
    (b"", demesne.SandboxLost),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n", demesne.SandboxLost),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", demesne.SandboxLost),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", demesne.SandboxLost),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", demesne.SandboxLost),
    (b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 4\r\n\r\nfull", demesne.Unavailable),
])
def test_broken_server(tmp_path, answer, error):
    """A call and a command whose server ends raise an error of the package, and leave no descriptor open."""
    Fake(str(tmp_path / "s"), answer)
    before = len(os.listdir("/proc/self/fd"))
    client = Client(f"unix:{tmp_path}/s", "token")
    sandbox = Sandbox.__new__(Sandbox)
    sandbox.client, sandbox.id = client, "x"
    for call in client.images, lambda: sandbox.run("true"), lambda: client.pull("x"), sandbox.decisions:
        with pytest.raises(error):
            call()
    client.close()
    end = time.monotonic() + 300  # the server closes its side by itself
    while len(os.listdir("/proc/self/fd")) > before:
        assert time.monotonic() < end


def test_connection_close(tmp_path):
    """A connection that the server says it will close takes no other request, also while it is still open."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    taken = []

    def serve():
        for _ in range(2):
            taken.append(listener.accept()[0])
            taken[-1].recv(1 << 16)
            taken[-1].sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n[]")

    threading.Thread(target=serve, daemon=True).start()
    client = Client(f"unix:{tmp_path}/s", "token")
    assert client.ask("GET", "images") == client.ask("GET", "images") == []
    assert len(taken) == 2


def test_wrong_arguments(tmp_path):
    for url in ("https://a.example", "http://a.example", "http://a.example:x", "http://:80"):
        with pytest.raises(demesne.InvalidRequest):
            Client(url)
    client = Client("http://[::1]:80")
    assert (client._host, client._port) == ("::1", "80")
    before = listed()
    with pytest.raises(demesne.InvalidRequest, match="mode"):
        Sandbox(mounts={str(tmp_path): "all"})
    with pytest.raises(demesne.InvalidRequest, match="open"):
        Sandbox(mounts={str(tmp_path): "ro"}, network="open")
    with pytest.raises(demesne.DemesneError):
        Sandbox(mounts={str(tmp_path): "ro"}, client=Client("unix:/nowhere", "token"))
    assert listed() == before


def test_mounts_with_a_network(tmp_path):
    """The server takes no link in a path. The package resolves one that leads to a directory."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    link = str(tmp_path / "link")
    with Sandbox(mounts={link: "ro"}, allow=["a.example"], deny=["b.example"], ask=True) as sandbox:
        assert sandbox.run(["cat", link + "/file"]).stdout == "x" and sandbox.network()["ask"]
        assert (sandbox.network()["allow"], sandbox.network()["deny"]) == (["a.example"], ["b.example"])
