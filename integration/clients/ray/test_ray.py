"""Tests demesne.ray against a cluster of four nodes on this machine. make ray runs it."""

import asyncio
import collections
import contextlib
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import demesne
import demesne.ray
import pytest
import ray
from demesne import Client
from ray.cluster_utils import Cluster
from ray.experimental.sandbox import SandboxCreationError, SandboxError, SandboxNotFoundError, SandboxStatus
from ray.experimental.sandbox import SandboxTimeoutError, create
from ray.experimental.sandbox.runtime import SandboxRuntime

IMAGE = "busybox:latest"
NODE = {"num_cpus": 2, "object_store_memory": 80 << 20}


def wait(condition):
    end = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


def made():
    return [s["name"] for s in Client().sandboxes(name="ray-")]


def none_left():
    wait(lambda: not made())


@pytest.fixture(scope="module")
def cluster():
    quick = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}  # Ray finds that a node ended
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False, "_system_config": quick})
    for _ in range(3):
        cluster.add_node(**NODE)
    ray.init(address=cluster.address, runtime_env={"worker_process_setup_hook": "demesne.ray.use"})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def runtime():
    demesne.ray.use()
    return SandboxRuntime()


def test_contract(runtime):
    """The six calls; what fails, what died and what is refused; the receipt."""
    id = runtime.create(IMAGE, shell="/bin/sh", workdir="/srv/work", env={"A": "1"}, memory="256Mi")
    done = runtime.exec(id, "pwd; echo $A$B; exit 3", env={"B": "2"})
    assert (done.exit_code, done.stdout) == (3, "/srv/work\n12\n") and done.duration_seconds >= 0
    assert runtime.exec(id, ["id", "-u"], user="12:13", cwd="/").stdout == "12\n"
    runtime.write_file(id, "/srv/new/file", b"\x00one")
    runtime.write_file(id, "/srv/new/file", "two", append=True)
    runtime.write_file(id, "near", "by")
    assert runtime.read_file(id, "/srv/new/file") == b"\x00onetwo" and runtime.read_file(id, "/srv/work/near") == b"by"
    with pytest.raises(SandboxError):
        runtime.read_file(id, "/none")
    with pytest.raises(SandboxTimeoutError):
        runtime.exec(id, "sleep 100", timeout=0.3)
    told = runtime.backend.describe(id)
    assert told["receipt"]["image"] == IMAGE and told["network"]["mode"] == "none"
    assert runtime.get_status(id) == told["status"] == SandboxStatus.RUNNING

    threading.Timer(0.5, runtime.backend._sandbox_metadata[id]["sandbox"].kill).start()
    with pytest.raises(demesne.ray.SandboxDied):
        runtime.exec(id, "sleep 100")
    assert runtime.get_status(id) == SandboxStatus.ERROR
    runtime.delete(id)
    assert runtime.get_status(id) == SandboxStatus.TERMINATED
    with pytest.raises(SandboxNotFoundError):
        runtime.exec(id, "true")

    for given in ({"network": "host"}, {"network": {"permit": []}}, {"network": "public", "dns": ["192.0.2.1"]}, {"capabilities": ["CAP_SYS_ADMIN"]}):
        with pytest.raises(SandboxCreationError):
            runtime.create(IMAGE, **given)
    with pytest.raises(SandboxCreationError, match="unknown"):
        runtime.create("no-such-image")


def test_rules(cluster):
    """Ray's own actor, on a worker that only the documented line changed, reaches the names that it may."""
    actor = create(IMAGE, shell="/bin/sh", network={"allow": ["a.example"]})
    assert ray.get(actor.get_config.remote()).network == {"allow": ["a.example"]}
    done = ray.get(actor.exec.remote("wget -q -O - http://b.example/ 2>&1; id -u"))
    assert done.stdout.endswith("\n0\n")
    ray.kill(actor)  # without a call of its end
    none_left()


def test_modal_client(cluster, monkeypatch):
    """Modal's client, unchanged, runs commands and moves files in sandboxes of demesne, by Ray's server for it."""
    modal, server = pytest.importorskip("modal"), pytest.importorskip("grpclib.server")
    from ray.experimental.sandbox.http.grpc_facade import build_servicers

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = "http://127.0.0.1:%d" % listener.getsockname()[1]
        loop, started = asyncio.new_event_loop(), threading.Event()

        async def serve():
            await server.Server(build_servicers(advertise_url=url)).start(sock=listener)
            started.set()

        serving = loop.create_task(serve())  # a task without a reference may vanish
        threading.Thread(target=loop.run_forever, daemon=True).start()
        assert started.wait(60) and serving
        monkeypatch.setenv("MODAL_SERVER_URL", url)
        monkeypatch.setenv("MODAL_SANDBOX_V2", "false")  # whose tokens Ray 2.60.0 does not make
        client = modal.Client.from_credentials("ak-test", "as-test")
        app = modal.App.lookup("demesne", create_if_missing=True, client=client)
        sandbox = modal.Sandbox.create(app=app, image=modal.Image.from_registry(IMAGE), timeout=600, client=client, block_network=True)
        process = sandbox.exec("sh", "-c", "echo out; echo err >&2; exit 3")
        assert (process.wait(), process.stdout.read(), process.stderr.read()) == (3, "out\n", "err\n")
        sandbox.filesystem.write_bytes(b"\x00payload\xff", "/work/data.bin")
        assert sandbox.filesystem.read_bytes("/work/data.bin") == b"\x00payload\xff"
        with pytest.raises(modal.exception.SandboxFilesystemNotFoundError):
            sandbox.filesystem.read_bytes("/work/missing")
        with pytest.raises(modal.exception.InvalidError):
            modal.Sandbox.create(app=app, image=modal.Image.from_registry(IMAGE), client=client, outbound_domain_allowlist=["a.example"])
        assert made()
        sandbox.terminate()
        loop.call_soon_threadsafe(loop.stop)
    none_left()


def test_order_and_logs(cluster, tmp_path):
    seen = []
    outcomes = demesne.ray.map(
        ["sh", "-c", 'cat prepared; echo "$1"; echo err >&2; exit "$1"', "sh", "{}"], [0, 3, 0], image=IMAGE,
        setup="echo ready > prepared", logs=str(tmp_path), progress=seen.append, memory=256 << 20,
    )
    assert [(o.index, o.state, o.exit_code, o.attempts) for o in outcomes] == [(0, "done", 0, 1), (1, "failed", 3, 1), (2, "done", 0, 1)]
    assert outcomes[1].stdout == b"ready\n3\n" and outcomes[1].level and outcomes[1].node
    assert (tmp_path / "000001.log").read_bytes() == b"ready\n3\nerr\n"
    assert sorted(o.index for o in seen) == [0, 1, 2]
    none_left()  # a node that was not prepared yet ends later
    stdin = demesne.ray.map(["cat"], [{"a": [1]}, "ä"], image=IMAGE)
    assert [o.stdout for o in stdin] == [b'{"a": [1]}', b'"\\u00e4"']
    assert [o.state for o in demesne.ray.map(["no-such-program"], [1], image=IMAGE)] == ["failed"]
    with pytest.raises(SandboxCreationError):
        demesne.ray.map(["true"], [1], image=IMAGE, network="host")


def test_setup_that_fails(cluster):
    with pytest.raises(SandboxCreationError, match="why"):
        demesne.ray.map(["true"], [1], image=IMAGE, setup="echo why >&2; exit 9")
    none_left()


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("/tmp/demesne-ray-was-here",)


def test_functions(cluster):
    """A function's result is JSON of bounded size. Another result is refused, and no part of it is executed."""
    factor = 7

    def work(given):
        import os

        print("said")
        if isinstance(given, bytes):
            for fd in range(3, 20):
                try:
                    os.write(fd, given)
                except OSError:
                    pass
            os._exit(0)
        return {"n": given["n"] * factor}

    hostile = [pickle.dumps(Hostile()), b"[" * 100000, b"1" * (2 << 20), b"9" * 10000, b"{", b"", b"\xff"]
    outcomes = demesne.ray.map(work, [{"n": 6}, *hostile, {}], timeout=60)
    assert outcomes[0].value == {"n": 42} and outcomes[0].stderr == b"said\n"
    assert [(o.state, o.value, "result refused" in o.error) for o in outcomes[1:-1]] == [("failed", None, True)] * len(hostile)
    assert outcomes[-1].state == "failed" and b"KeyError" in outcomes[-1].stderr
    assert not os.path.exists("/tmp/demesne-ray-was-here")


def test_starts(monkeypatch):
    """A node starts at most so many sandboxes at a time."""
    lock, now, most = threading.Lock(), 0, 0

    def count(change):
        nonlocal now, most
        with lock:
            now += change
            most = max(most, now)

    fork = demesne.Sandbox.fork

    def counted(self, name):
        count(1)
        made = fork(self, name)
        start = made.start
        made.start = lambda: (start(), count(-1))
        return made

    monkeypatch.setattr(demesne.Sandbox, "fork", counted)
    for starts in (1, 3):
        most = 0
        node = demesne.ray._Node()
        node.prepare(IMAGE, {}, None, {}, 6, starts)
        wait(lambda: node._ready.qsize() == 6)
        assert most == starts
        node.close()
    none_left()


def test_budget(cluster):
    """Once the nodes cost more than the budget, inputs fail, and no sandbox runs on."""
    begun = time.monotonic()
    outcomes = demesne.ray.map(["sh", "-c", "[ {} -lt 2 ] || sleep 1000"], range(40), image=IMAGE, price=0.25, budget=5)
    assert time.monotonic() - begun < 60
    assert {(o.state, o.reason) for o in outcomes[2:]} == {("failed", "budget")} and outcomes[39].attempts == 0
    none_left()


def test_node_joins(cluster):
    """A node that the cluster gets during a map has inputs of it."""
    new = []

    def ended(outcome):
        if not new:
            new.append(cluster.add_node(**NODE).node_id)

    outcomes = demesne.ray.map(["sh", "-c", "sleep 1; echo {}"], range(80), image=IMAGE, progress=ended)
    assert [int(o.stdout) for o in outcomes] == list(range(80)) and new[0] in {o.node for o in outcomes}
    none_left()


def test_died(cluster):
    """An input whose sandbox died has another one on another node, at most retries times."""

    def remove_one():
        forks = wait(lambda: [s for s in Client().sandboxes(name="ray-map-") if not s["name"].endswith("base") and s["execs"]])
        demesne.Sandbox.connect(forks[0]["id"]).kill()

    for retries, state, attempts in ((0, "died", 1), (1, "done", 2)):
        killer = threading.Thread(target=remove_one)
        killer.start()
        [outcome] = demesne.ray.map(["sleep", "10"], [1], image=IMAGE, retries=retries)
        killer.join()
        assert (outcome.state, outcome.attempts) == (state, attempts), outcome


def test_prepared_sandbox_lost(cluster):
    """A node that can make no fork gets no more inputs, and costs none."""
    lost = []

    def ended(outcome):
        if not lost:
            base = next(s["name"] for s in Client().sandboxes(name="ray-map-") if s["name"].endswith("base"))
            lost.extend(Client().sandboxes(name=base.removesuffix("base")))
            for sandbox in lost:
                with contextlib.suppress(demesne.NotFound):
                    demesne.Sandbox.connect(sandbox["id"]).kill()

    outcomes = demesne.ray.map(["echo", "{}"], range(60), image=IMAGE, progress=ended)
    assert [o.stdout for o in outcomes] == [b"%d\n" % n for n in range(60)]
    none_left()


DRIVER = """
import demesne.ray, ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
demesne.ray.map(["sleep", "1000"], range(8), image="busybox:latest")
"""


def test_driver_killed(cluster):
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, cluster.address])
    wait(lambda: sum(s["execs"] > 0 for s in Client().sandboxes(name="ray-map-")) == 8)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    none_left()


def end_at_once(raylet, workers):
    """Kills a raylet, and its workers unless they are to find out."""
    pid = raylet.pid
    children = [int(child) for task in os.listdir(f"/proc/{pid}/task") for child in open(f"/proc/{pid}/task/{task}/children").read().split()]
    for process in [pid, *(children if workers else ())]:
        os.kill(process, signal.SIGKILL)
    raylet.wait()  # workers take a zombie for a raylet that runs


@pytest.mark.parametrize("workers", [False, True])
def test_node_killed(cluster, workers):
    """A node that ends during a map costs no input, repeats no result and leaves no sandbox."""
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    left = {node.node_id: node for node in cluster.worker_nodes if node.node_id in alive}
    counts, killed = collections.Counter(), []

    def ended(outcome):
        counts[outcome.index] += 1
        if counts.total() >= 30 and outcome.node in left and not killed:
            killed.append(outcome.node)
            end_at_once(left[outcome.node].all_processes["raylet"][0].process, workers)

    outcomes = demesne.ray.map(["sh", "-c", "sleep 0.5; echo {}"], range(200), image=IMAGE, progress=ended)
    assert [o.state for o in outcomes] == ["done"] * 200
    assert [int(o.stdout) for o in outcomes] == list(range(200)) and set(counts.values()) == {1}
    repeated = [o for o in outcomes if o.attempts > 1]
    print(len(repeated), "inputs had a second node")
    if workers:
        assert repeated and killed[0] not in {o.node for o in repeated}
    none_left()


def test_random_nodes_killed(cluster):
    """2,000 inputs on four nodes, of which random ones end at random times and are replaced."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    print("seed", seed)
    total = int(os.environ.get("DEMESNE_RAY_INPUTS", 2000))
    counts, kills = collections.Counter(), sorted(chance.sample(range(total // 40, total * 9 // 10), 6))

    def ended(outcome):
        counts[outcome.index] += 1
        if kills and counts.total() >= kills[0]:
            kills.pop(0)
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            victim = chance.choice([node for node in cluster.worker_nodes if node.node_id in alive and node.all_processes["raylet"][0].process.poll() is None])
            end_at_once(victim.all_processes["raylet"][0].process, chance.random() < 0.5)
            cluster.add_node(**NODE)

    outcomes = demesne.ray.map(["echo", "{}"], range(total), image=IMAGE, progress=ended, retries=6)
    assert [o.state for o in outcomes] == ["done"] * total
    assert [int(o.stdout) for o in outcomes] == list(range(total)) and set(counts.values()) == {1} and not kills
    print(sum(o.attempts > 1 for o in outcomes), "inputs had a second node, and", len({o.node for o in outcomes}), "nodes took part")
    none_left()
