"""Calls E2B's Python SDK, as programs use it. A test for a call or a trait that programs rely on."""

import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import e2b
import httpx
import pytest
from conftest import until
from e2b import Sandbox, SandboxQuery, SandboxState, Template


def pages(paginator):
    found = []
    while paginator.has_next:
        found += paginator.next_items()
    return found


# The life of sandboxes


def test_create_with_options(create):
    s = create("base", metadata={"a": "b"}, envs={"X": "1"}, timeout=60)
    info = s.get_info()
    assert info.metadata == {"a": "b"} and info.template_id == "base" and info.state == SandboxState.RUNNING
    assert 58 < (info.end_at - info.started_at).total_seconds() < 62
    assert s.commands.run("echo $X").stdout == "1\n"
    assert s.is_running()


def test_with_statement_kills():
    with Sandbox.create() as s:
        assert s.is_running()
    assert not s.is_running()


def test_idempotent_create(create):
    key = str(uuid.uuid4())
    first = create(idempotency_key=key, metadata={"key": key})
    with ThreadPoolExecutor(4) as pool:
        again = list(pool.map(lambda _: Sandbox.create(idempotency_key=key, metadata={"key": key}), range(4)))
    assert {s.sandbox_id for s in again} == {first.sandbox_id}
    first.files.write("mark", "x")
    assert again[0].files.read("mark") == "x"
    assert len(pages(Sandbox.list(query=SandboxQuery(metadata={"key": key})))) == 1
    with pytest.raises(e2b.SandboxException, match="409"):
        Sandbox.create(idempotency_key=key, metadata={"key": "other"})
    other = create(idempotency_key=str(uuid.uuid4()))
    assert other.sandbox_id != first.sandbox_id


def test_idempotent_create_at_once(create):
    key = str(uuid.uuid4())
    with ThreadPoolExecutor(8) as pool:
        all_ = list(pool.map(lambda _: create(idempotency_key=key), range(8)))
    assert len({s.sandbox_id for s in all_}) == 1


def test_list_by_metadata_and_state(create):
    run = str(uuid.uuid4())
    one, two = create(metadata={"run": run, "odd key": "1 &b=ü"}), create(metadata={"run": run})

    def found(**query):
        return {s.sandbox_id for s in pages(Sandbox.list(query=SandboxQuery(**query)))}

    assert found(metadata={"run": run}) == {one.sandbox_id, two.sandbox_id}
    assert found(metadata={"run": run, "odd key": "1 &b=ü"}) == {one.sandbox_id}
    assert found(metadata={"run": "none"}) == set()
    two.pause()
    assert found(metadata={"run": run}, state=[SandboxState.PAUSED]) == {two.sandbox_id}
    assert found(metadata={"run": run}, state=[SandboxState.RUNNING]) == {one.sandbox_id}


def test_list_pages(create):
    run = str(uuid.uuid4())
    made = [create(metadata={"run": run}).sandbox_id for _ in range(3)]
    paginator = Sandbox.list(query=SandboxQuery(metadata={"run": run}), limit=2)
    first = paginator.next_items()
    assert len(first) == 2 and paginator.has_next
    rest = paginator.next_items()
    assert not paginator.has_next
    assert [s.sandbox_id for s in first + rest] == made[::-1]


def test_timeout_ends(create):
    s = create(timeout=600)
    s.set_timeout(1)
    until("the end", lambda: not s.is_running())
    with pytest.raises(e2b.SandboxNotFoundException):
        s.get_info()
    assert s.kill() is False


def test_pause_and_connect(create):
    s = create()
    s.files.write("kept", "yes")
    s.commands.run("sleep 1000", background=True)
    assert s.pause() is True
    assert s.pause() is False
    assert not s.is_running() and s.get_info().state == SandboxState.PAUSED
    same = Sandbox.connect(s.sandbox_id, timeout=60)
    assert same.sandbox_id == s.sandbox_id
    assert same.files.read("kept") == "yes"
    assert any("sleep 1000" in " ".join(p.args) for p in same.commands.list())
    with pytest.raises(e2b.SandboxNotFoundException):
        Sandbox.connect("inone")


def test_pause_without_memory(create):
    s = create()
    s.commands.run("sleep 1000", background=True)
    s.files.write("kept", "yes")
    assert s.pause(mode="filesystem")
    same = s.connect()
    assert same.files.read("kept") == "yes" and same.commands.list() == []


def test_auto_pause(create):
    s = create(timeout=600, lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
    s.commands.run("sleep 1000", background=True)
    s.set_timeout(1)
    until("the pause", lambda: s.get_info().state == SandboxState.PAUSED)
    s.connect(timeout=60)
    assert s.commands.list() == []


def test_fork_and_snapshot(create):
    s = create(timeout=60)
    s.files.write("kept", "yes")
    forks = s.fork(count=2, timeout=60)
    try:
        assert [f.files.read("kept") for f in forks] == ["yes", "yes"]
    finally:
        for f in forks:
            f.kill()
    snapshot = s.create_snapshot()
    assert create(snapshot.snapshot_id).files.read("kept") == "yes"
    assert snapshot.snapshot_id in [x.snapshot_id for x in pages(Sandbox.list_snapshots(sandbox_id=s.sandbox_id))]
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False


def test_metrics(create):
    s = create()
    [m, *_] = s.get_metrics()
    assert m.cpu_count >= 1 and m.mem_total > 0


def test_network(create):
    s = create(allow_internet_access=False)
    assert s.get_info().allow_internet_access is False
    s.update_network({"allow_out": ["example.com"], "deny_out": ["0.0.0.0/0"]})
    assert s.get_info().network["allow_out"] == ["example.com"]
    t = create(network={"allow_out": ["example.com"], "deny_out": ["0.0.0.0/0"]})
    assert t.get_info().network["allow_out"] == ["example.com"]


def test_bad_requests():
    with pytest.raises(e2b.AuthenticationException):
        Sandbox.create(api_key="wrong")
    with pytest.raises(e2b.SandboxException, match='image "no-such-template"'):
        Sandbox.create("no-such-template")


# Commands


def test_run(box):
    r = box.commands.run("echo out; echo err >&2")
    assert (r.stdout, r.stderr, r.exit_code, r.error) == ("out\n", "err\n", 0, None)
    assert box.commands.run("echo $FROM_SANDBOX $OWN", envs={"OWN": "1"}).stdout == "yes 1\n"
    assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    with pytest.raises(e2b.CommandExitException) as failed:
        box.commands.run("echo so; exit 3")
    assert (failed.value.exit_code, failed.value.stdout) == (3, "so\n")
    with pytest.raises(e2b.InvalidArgumentException):
        box.commands.run("true", cwd="/nowhere")


def test_run_streams(box):
    out, err = [], []
    box.commands.run("echo a; echo b >&2; sleep 0.1; echo c", on_stdout=out.append, on_stderr=err.append)
    assert "".join(out) == "a\nc\n" and "".join(err) == "b\n" and len(out) > 1


def test_run_large_output(box):
    assert len(box.commands.run("head -c 1000000 /dev/zero | tr '\\0' ä | cat").stdout) >= 1000000
    assert box.commands.run("for i in $(seq 300); do printf 'ä€𝄞'; done").stdout == "ä€𝄞" * 300


def test_run_in_parallel(box):
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda i: box.commands.run(f"sleep 0.1; echo {i}").stdout, range(20)))
    assert found == [f"{i}\n" for i in range(20)]


def test_run_timeout(box):
    with pytest.raises(e2b.TimeoutException):
        box.commands.run("sleep 987", timeout=1)
    until("its end", lambda: not any("sleep 987" in " ".join(p.args) for p in box.commands.list()))


def test_background(box):
    h = box.commands.run("read x; echo got $x; read y; exit 4", background=True, stdin=True)
    assert h.pid in [p.pid for p in box.commands.list()]
    box.commands.send_stdin(h.pid, "one\n")
    box.commands.close_stdin(h.pid)
    with pytest.raises(e2b.CommandExitException) as failed:
        h.wait()
    assert failed.value.exit_code == 4 and failed.value.stdout == "got one\n"


def test_background_disconnect_and_connect(box):
    h = box.commands.run("read x; echo after $x", background=True, stdin=True)
    h.disconnect()
    same = box.commands.connect(h.pid)
    same.send_stdin("this\n")
    assert same.wait().stdout == "after this\n"
    with pytest.raises(e2b.NotFoundException):
        box.commands.connect(999999)


def test_background_kill(box):
    h = box.commands.run("sleep 1000", background=True)
    assert box.commands.kill(h.pid) is True
    with pytest.raises(e2b.CommandExitException) as failed:
        h.wait()
    assert failed.value.exit_code == -1 and "killed" in failed.value.error
    assert box.commands.kill(h.pid) is False


def test_killed_sandbox_is_no_failed_command(create):
    s = create()
    h = s.commands.run("sleep 1000", background=True)
    s.kill()
    with pytest.raises(e2b.SandboxNotRunningException):
        h.wait()
    with pytest.raises(e2b.SandboxException) as gone:
        s.commands.run("true")
    assert not isinstance(gone.value, e2b.CommandExitException)


def test_users(box):
    assert box.commands.run("id -u; echo $HOME", user="root").stdout == "0\n/root\n"
    home = box.commands.run("echo $HOME $USER; pwd").stdout
    assert home == "/home/user user\n/home/user\n"
    with pytest.raises(e2b.AuthenticationException):
        box.commands.run("true", user="nobody-of-that-name")
    if os.environ.get("DEMESNE_TEST_USER"):
        assert box.commands.run("id -u; id -un; touch mine; stat -c %U mine").stdout == "1000\nuser\nuser\n"
        box.files.write("/tmp/of-root", "x", user="root")
        assert box.files.get_info("/tmp/of-root").owner == "root"
        with pytest.raises(e2b.CommandExitException):
            box.commands.run("echo y > /etc/x")
        # Files are written anywhere, and belong to the user: frameworks write below / without naming one.
        box.files.write("/made/deep/file", "x")
        box.files.write("/made/deep/large", b"x" * 1_000_000)
        box.files.make_dir("/other/dir")
        box.files.rename("/made/deep/file", "/third/file")
        paths = "/made /made/deep /made/deep/large /other /other/dir /third /third/file /workspace"
        assert box.commands.run(f"stat -c %U {paths} | uniq -c").stdout.split() == ["8", "user"]
        box.files.write("/root/of-root", "x", user="root")
        assert box.files.read("/root/of-root") == "x"
        box.files.remove("/made")
        assert not box.files.exists("/made")


def test_terminal(box):
    seen = bytearray()
    h = box.pty.create(e2b.PtySize(rows=24, cols=80), cwd="/tmp")
    # Bash sets the old size again while it prepares its prompt, so the new one comes while a command reads.
    box.pty.send_stdin(h.pid, b"touch /tmp/reads; read x; stty size; pwd; exit 5\n")
    until("the command", lambda: box.files.exists("/tmp/reads"))
    box.pty.resize(h.pid, e2b.PtySize(rows=33, cols=99))
    box.pty.send_stdin(h.pid, b"\n")
    with pytest.raises(e2b.CommandExitException) as failed:
        h.wait(on_pty=seen.extend)
    assert failed.value.exit_code == 5 and b"33 99" in seen and b"/tmp" in seen
    other = box.pty.create(e2b.PtySize(rows=24, cols=80))
    assert box.pty.kill(other.pid) is True


# Files


def test_files_write_and_read(box):
    info = box.files.write("dir/a.txt", "text ä")
    assert info.path == "/home/user/dir/a.txt" and box.files.read("dir/a.txt") == "text ä"
    data = bytes(range(256)) * 5000
    box.files.write("data", data)
    assert bytes(box.files.read("data", format="bytes")) == data
    assert b"".join(box.files.read("data", format="stream")) == data
    box.files.write("empty", "")
    assert box.files.read("empty") == ""
    assert [i.name for i in box.files.write_files([{"path": f"many/{n}", "data": n} for n in "abc"])] == ["a", "b", "c"]
    assert box.files.read("many/c") == "c"
    with pytest.raises(e2b.FileNotFoundException):
        box.files.read("none")


def test_files_metadata_and_gzip(box):
    box.files.write("meta", "x" * 10000, metadata={"key": "value"}, gzip=True)
    assert box.files.get_info("meta").metadata == {"key": "value"}
    assert box.files.read("meta", gzip=True) == "x" * 10000


def test_files_list_and_move(box):
    box.files.write("tree/a/b", "1")
    assert [(e.name, e.type.value) for e in box.files.list("tree")] == [("a", "dir")]
    assert sorted(e.path for e in box.files.list("tree", depth=2)) == ["/home/user/tree/a", "/home/user/tree/a/b"]
    assert box.files.exists("tree/a/b") and not box.files.exists("tree/c")
    assert box.files.make_dir("tree/new") is True and box.files.make_dir("tree/new") is False
    assert box.files.rename("tree/a/b", "tree/c").path == "/home/user/tree/c"
    box.commands.run("ln -s c tree/link")
    link = box.files.get_info("tree/link")
    assert link.symlink_target == "/home/user/tree/c" and link.size == 1 or link.symlink_target
    box.files.remove("tree")
    assert not box.files.exists("tree")


def test_files_watch(box):
    box.files.make_dir("watched/below")
    watch = box.files.watch_dir("watched", recursive=True)
    box.files.write("watched/below/f", "x")
    seen = []
    until("an event", lambda: seen.extend(watch.get_new_events()) or any(e.name == "below/f" for e in seen))
    watch.stop()
    box.files.remove("watched")


def test_files_signed_urls(box):
    box.files.write("signed", "by url")
    assert httpx.get(box.download_url("signed")).text == "by url"
    assert httpx.post(box.upload_url("posted"), files={"file": b"posted"}).status_code == 200
    assert box.files.read("posted") == "posted"
    expired = box.download_url("signed", use_signature_expiration=-10)
    assert httpx.get(expired).status_code == 401


def test_port(box):
    python = box.commands.run("command -v python3 || true").stdout.strip()
    if not python:
        pytest.skip("needs python3 in the image")
    h = box.commands.run("python3 -m http.server 3000", background=True)
    host, url = box.get_host(3000), os.environ["E2B_SANDBOX_URL"]
    until("an answer", lambda: httpx.get(url, headers={"Host": host}).status_code == 200)
    h.kill()


# Templates


def named():
    return f"t{uuid.uuid4().hex[:8]}"


def test_template_build(image, create, tmp_path):
    (tmp_path / "copied.txt").write_text("from here")
    name, logs = named(), []
    template = (
        Template(file_context_path=str(tmp_path)).from_image(image).copy("copied.txt", "/opt/copied.txt")
        .set_envs({"BUILT": "yes"}).run_cmd("cat /opt/copied.txt > /opt/made").set_workdir("/opt")
    )
    built = Template.build(template, name, cpu_count=1, memory_mb=512, on_build_logs=lambda l: logs.append(l.message))
    assert built.name == name and logs
    assert Template.exists(name) and not Template.exists(named())
    s = create(name)
    info = s.get_info()
    assert (info.cpu_count, info.memory_mb) == (1, 512)
    assert s.commands.run("cat /opt/made; echo $BUILT").stdout == "from hereyes\n"


def test_template_of_base(image, create):
    if not os.environ.get("DEMESNE_TEST_USER"):
        pytest.skip("the base may be made of packages: make python")
    for template in (Template().from_template("base"), Template().from_base_image()):
        name = named()
        Template.build(template.run_cmd("echo here > /made", user="root"), name)
        assert create(name).files.read("/made") == "here\n"


def test_template_start_command(image, create):
    name = named()
    template = (
        Template().from_image(image).set_envs({"WORD": "env"}).set_workdir("/tmp")
        .set_start_cmd("sleep 0.3; echo $WORD $PWD > /tmp/ready; exec sleep 1000", "test -s /tmp/ready")
    )
    Template.build(template, name)
    s = create(name)
    assert s.files.read("/tmp/ready") == "env /tmp\n"
    assert any("exec sleep 1000" in " ".join(p.args) for p in s.commands.list())
    s.pause(mode="filesystem")
    s.connect()
    assert any("exec sleep 1000" in " ".join(p.args) for p in s.commands.list())


def test_template_start_command_fails(image):
    name = named()
    with pytest.raises(e2b.BuildException, match="ready command"):
        Template.build(Template().from_image(image).set_start_cmd("exit 7", "false"), name)
    assert pages(Sandbox.list(query=SandboxQuery(metadata={"template": name}))) == []


def test_template_of_template(image, create):
    one, two = named(), named()
    Template.build(Template().from_image(image).run_cmd("echo 1 > /one", user="root"), one)
    Template.build(Template().from_template(one).run_cmd("cat /one /one > /two", user="root"), two, tags=["v1"])
    assert create(f"{two}:v1").files.read("/two") == "1\n1\n"
    assert Template.assign_tags(f"{two}:v1", ["stable"]).tags == ["stable"]
    assert {t.tag for t in Template.get_tags(two)} == {"v1", "stable"}
    Template.remove_tags(two, ["stable"])


def test_template_build_fails(image):
    with pytest.raises(e2b.BuildException, match="exit"):
        Template.build(Template().from_image(image).run_cmd("exit 9"), named())
    with pytest.raises(e2b.BuildException, match="no-such-image"):
        Template.build(Template().from_image("no-such-image.test/x"), named())


# Secrets and volumes


def test_secrets():
    name = f"K{uuid.uuid4().hex[:8]}"
    secret = e2b.Secret.create(name, "value-1")
    assert e2b.Secret.get_info(name).secret_id == secret.secret_id
    assert e2b.Secret.update(name, "value-2").version == 2
    assert e2b.Secret.destroy(name) is True and e2b.Secret.destroy(name) is False


def test_volumes(create):
    volume = e2b.Volume.create(f"v{uuid.uuid4().hex[:8]}")
    volume.write_file("/a.txt", "kept")
    assert volume.read_file("/a.txt") == "kept"
    s = create(volume_mounts={"/data": volume})
    assert s.files.read("/data/a.txt") == "kept"
    s.kill()
    assert e2b.Volume.destroy(volume.volume_id) is True
