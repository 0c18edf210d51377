"""Sandboxes on the nodes of a Ray cluster. pip install demesne[ray] installs what it needs.

    ray.init(runtime_env={"worker_process_setup_hook": "demesne.ray.use"})  # ray.experimental.sandbox uses demesne
    outcomes = demesne.ray.map(["wc", "-c"], inputs, image="python")        # a fork of a prepared sandbox for each input

A sandbox is on the node of the worker that makes it. It ends with that worker at the latest, however the worker ends.
Nothing that comes out of a sandbox is unpickled: results of functions are JSON.
"""

from __future__ import annotations

import base64
import collections
import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import cloudpickle
from ray.experimental.sandbox import SandboxCreationError, SandboxExecError, SandboxNotFoundError, SandboxTimeoutError
from ray.experimental.sandbox import SandboxError, runtime
from ray.experimental.sandbox.backend.base import BaseSandboxBackend, ExecResult, SandboxStatus
from ray.experimental.sandbox.config import DOCKER_DEFAULT_CAPABILITIES, SandboxConfig, parse_memory_bytes
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ._errors import DemesneError, InvalidRequest, NotFound, SandboxLost, raising
from ._sandbox import Sandbox, shared

TTL = 86400  # seconds that a sandbox may stay unused
MAX_SLOTS = 32  # of a node, unless the caller gives a number: a user has 64 sandboxes without DEMESNE_MAX_SANDBOXES
LOOK = 1.0  # seconds between two looks for new nodes, and at what all nodes cost
MAX_RESULT = 1 << 20  # bytes of a function's result as JSON

# A process that outlives a worker: it removes the worker's sandboxes when the pipe to the worker closes. Ray ends a worker's
# own children with it, and therefore init becomes its parent and that of the server which
# it may start. A request that the worker sent last may still make a sandbox, so it looks again.
GUARD = """
import os, sys, time
if os.fork(): os._exit(0)
from demesne import Client, DemesneError
client, calm = Client(), 0
try: print("ready", *(0 for _ in client.sandboxes(name=sys.argv[1])), flush=True)
except DemesneError as error: sys.exit(print(error))
os.close(1)
sys.stdin.buffer.read()
for _ in range(100):
    try:
        left = list(client.sandboxes(name=sys.argv[1]))
        for sandbox in left: client.remove("sandboxes", sandbox["id"])
        calm = 0 if left else calm + 1
    except DemesneError: calm = 0
    if calm == 3: break
    time.sleep(0.3)
"""

# Executes a pickled function of the caller in a sandbox. What the function prints goes to stderr.
CALL = """
import base64, json, os, pickle, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path.insert(0, sys.argv[1])
with open(sys.argv[1] + "/function", "rb") as file: version, function = pickle.load(file)
if version != sys.version_info[:2]: sys.exit("the function is of Python %d.%d, and the image has %d.%d" % (*version, *sys.version_info[:2]))
json.dump(pickle.loads(function)(pickle.loads(base64.b64decode(sys.stdin.buffer.read()))), out)
out.close()
"""
CALLED = "/workspace/.demesne-ray"


class SandboxDied(SandboxExecError):
    """The sandbox or its server ended during a call. A command that fails is a result; this command has none."""


class DemesneConfig(SandboxConfig):
    """Ray's configuration, in which network may also be {"allow": [...], "deny": [...]}: rules such as "example.com"."""

    def __post_init__(self) -> None:
        network = self.network
        self.network = "none" if isinstance(network, dict) else network
        super().__post_init__()
        self.network = network


class DemesneImages:
    """The images of the node's store, which all its sandboxes share. The first sandbox of an image downloads it."""

    def pull_image(self, image: str, timeout_seconds: float = 120.0, instance_id: str | None = None) -> str:
        return image


class DemesneBackend(BaseSandboxBackend):
    """Ray's contract of a backend. The root is always a private copy: readonly does not apply, and a missing workdir is made."""

    def __init__(self, image_manager: Any = None) -> None:
        super().__init__(image_manager or DemesneImages())
        self._sandbox_metadata: dict[str, dict[str, Any]] = {}  # Ray's actor reads the configuration in it

    def create_sandbox(self, config: SandboxConfig) -> str:
        if config.capabilities not in (None, DOCKER_DEFAULT_CAPABILITIES) or config.dns or config._oci_spec_transform_fn:
            raise SandboxCreationError("capabilities, dns and _oci_spec_transform_fn: not supported by demesne")
        name = f"{_guarded('ray-sandbox-')}{uuid.uuid4().hex[:12]}"
        with raising(lambda error: SandboxCreationError(str(error))):
            sandbox = Sandbox(
                config.image, name=name, env=config.env, cpus=config.cpu or None, ttl=TTL,
                memory=parse_memory_bytes(config.memory) or None, **_rules(config.network),
            )
            if config.workdir and not sandbox.files.exists(config.workdir):
                sandbox.files.make_dir(config.workdir)
        self._sandbox_metadata[name] = {"config": config, "sandbox": sandbox}
        return name

    def _of(self, sandbox_id: str) -> tuple[Sandbox, SandboxConfig]:
        if not (made := self._sandbox_metadata.get(sandbox_id)):
            raise SandboxNotFoundError(f"Sandbox ID '{sandbox_id}' not found.")
        return made["sandbox"], made["config"]

    def delete_sandbox(self, sandbox_id: str) -> None:
        if made := self._sandbox_metadata.pop(sandbox_id, None):
            made["sandbox"].kill()

    def exec_command(
        self, sandbox_id: str, command: str | list[str], timeout: float | None = None, cwd: str | None = None,
        env: dict[str, str] | None = None, shell: str | None = None, user: str | None = None,
    ) -> ExecResult:
        sandbox, config = self._of(sandbox_id)
        argv = [shell or config.shell, "-c", command] if isinstance(command, str) else command
        with raising(_exec_error):
            done = sandbox.run(argv, timeout=timeout, cwd=cwd or config.workdir, env=env, user=user)
        if done.reason == "timed-out":
            raise SandboxTimeoutError(f"command timed out after {timeout} seconds")
        return ExecResult(done.exit_code, done.stdout, done.stderr, done.seconds)

    def write_file(self, sandbox_id: str, path: str, content: str | bytes, append: bool = False) -> None:
        sandbox, config = self._of(sandbox_id)
        path = os.path.join(config.workdir or "", path)
        with raising(lambda error: SandboxError(f"write file {path!r}: {error}")):
            if append:
                sandbox.run(["sh", "-c", 'mkdir -p -- "$(dirname -- "$1")" && cat >> "$1"', "sh", path], input=content, check=True)
            else:
                sandbox.files.write(path, content)

    def read_file(self, sandbox_id: str, path: str) -> bytes:
        sandbox, config = self._of(sandbox_id)
        with raising(lambda error: SandboxError(f"read file {path!r}: {error}")):
            return sandbox.files.read(os.path.join(config.workdir or "", path))

    def get_status(self, sandbox_id: str) -> SandboxStatus:
        return self.describe(sandbox_id)["status"]

    def describe(self, sandbox_id: str) -> dict[str, Any]:
        """The status, and the receipt of a running sandbox: what isolates it. A sandbox that ended without delete_sandbox has
        the status ERROR.
        """
        if sandbox_id not in self._sandbox_metadata:
            return {"status": SandboxStatus.TERMINATED}
        sandbox, _ = self._of(sandbox_id)
        try:
            return {"status": SandboxStatus.RUNNING, "receipt": sandbox.receipt(), "network": sandbox.network()}
        except (NotFound, SandboxLost) as error:
            return {"status": SandboxStatus.ERROR, "detail": str(error)}


def use() -> None:
    """Lets SandboxRuntime, and with it the actors of ray.experimental.sandbox, use demesne in this process."""
    runtime.ImageManager, runtime.GVisorSandboxBackend, runtime.SandboxConfig = DemesneImages, DemesneBackend, DemesneConfig


def _exec_error(error: DemesneError) -> Exception:
    return (SandboxDied if isinstance(error, (SandboxLost, NotFound)) else SandboxExecError)(str(error))


def _rules(network: str | Mapping[str, Sequence[str]] | None) -> dict[str, Any]:
    """Ray's word for a network as arguments of Sandbox."""
    if isinstance(network, Mapping) and network and network.keys() <= {"allow", "deny"}:
        return dict(network)
    if network not in (None, "none", "public"):
        raise SandboxCreationError(f'network={network!r}: must be "none", "public" or {{"allow": [...], "deny": [...]}}')
    return {"network": "open"} if network == "public" else {}


_guards: dict[tuple[str, int], tuple[str, Any]] = {}
_guarding = threading.Lock()


def _guarded(kind: str) -> str:
    """Returns the first part of the names of this process's sandboxes. A process of its own removes them when this one ends."""
    with _guarding:
        if (key := (kind, os.getpid())) not in _guards:
            prefix = f"{kind}{uuid.uuid4().hex[:8]}-"
            guard = subprocess.Popen(
                [sys.executable, "-c", GUARD, prefix], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            with guard.stdout as out:
                said = out.read().decode(errors="replace").strip()
            guard.wait()
            if said != "ready":
                raise SandboxCreationError(f"start demesne on this node: {said}")
            _guards[key] = prefix, guard
        return _guards[key][0]


# Map

@dataclass
class Outcome:
    """How one input ended. state is "done"; "failed" if its command or function failed, or a result was refused; or "died" if
    the last of its sandboxes or nodes ended. value is a function's result, and level the isolation that the receipt has.
    """

    index: int
    state: str
    value: Any = None
    error: str = ""
    exit_code: int | None = None
    reason: str = ""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    level: str = ""
    node: str = ""
    attempts: int = 1


class _Node:
    """An actor: a prepared sandbox, and forks of it that wait for inputs. A fork has one input, and ends."""

    def prepare(self, image: str | None, options: dict[str, Any], setup: Any, files: dict[str, bytes], slots: int, starts: int) -> int:
        self._used: queue.Queue[Sandbox | None] = queue.Queue()
        self._ready: queue.Queue[Sandbox | Exception] = queue.Queue()
        self._closed, self._prefix = False, _guarded("ray-map-")
        self._base = Sandbox(image, name=self._prefix + "base", ttl=TTL, **options)
        self._level = self._base.receipt()["level"]
        for path, content in files.items():
            self._base.files.write(path, content)
        if setup:
            self._base.run(setup, check=True)
        self._base.stop()
        for _ in range(slots):
            self._used.put(None)
        self._threads = [threading.Thread(target=self._fill, daemon=True) for _ in range(min(starts, slots))]
        for thread in self._threads:
            thread.start()
        return slots

    def _fill(self) -> None:
        while True:
            used = self._used.get()
            if self._closed:
                return
            try:
                if used:
                    used.kill()
                fork = self._base.fork(self._prefix + uuid.uuid4().hex[:12])
                fork.start()
                self._ready.put(fork)
            except Exception as error:
                self._ready.put(error)

    def run(self, argv: Any, stdin: str | None, timeout: float | None, max_output: int) -> dict[str, Any]:
        sandbox = self._ready.get()
        if isinstance(sandbox, Exception):
            raise SandboxCreationError(str(sandbox))  # the node gets no more inputs
        try:
            done = sandbox.run(argv, input=stdin, timeout=timeout, max_output=max_output)
            return {
                "state": "done" if done.ok else "failed", "exit_code": done.exit_code, "reason": done.reason, "stdout": done.stdout_bytes,
                "stderr": done.stderr_bytes, "seconds": done.seconds, "level": self._level,
                "error": "" if done.ok else done.detail or f"{done.reason}, exit code {done.exit_code}",
            }
        except InvalidRequest as error:
            return {"state": "failed", "error": str(error)}
        except DemesneError as error:
            return {"state": "died", "error": str(error)}
        finally:
            self._used.put(sandbox)

    def close(self) -> None:
        self._closed = True
        for _ in self._threads:
            self._used.put(None)
        for thread in self._threads:
            thread.join()
        for left in list(shared().sandboxes(name=self._prefix)):
            shared().remove("sandboxes", left["id"])


def map(
    work: Callable[[Any], Any] | str | Sequence[str], inputs: Iterable[Any], *, image: str | None = None,
    setup: str | Sequence[str] | None = None, network: str | Mapping[str, Sequence[str]] | None = None, retries: int = 2,
    timeout: float | None = None, num_cpus: float = 1, slots: int | None = None, starts: int = 2, max_output: int = MAX_RESULT,
    logs: str | None = None, progress: bool | Callable[[Outcome], None] = False, price: float = 0, budget: float = 0, **options: Any,
) -> list[Outcome]:
    """Executes work once for each input, on all nodes that Ray has or gets, and returns the outcomes in the order of the inputs.

    work is argv, in which {} stands for the input; a command for the shell; or a function. A command without {} gets the input
    on stdin as JSON. A function and its inputs are pickled into the sandbox, whose image needs the same Python 3.x; its result
    comes back as JSON. Each node prepares one sandbox of image by the command setup, and each input has a fork of it. An input
    whose sandbox or node died goes to another node, at most retries times; one that failed does not. num_cpus is what Ray
    reserves for each input, slots bounds the inputs and starts the starts of sandboxes that a node has at a time. timeout is
    that of one input, and max_output bounds each stream and a function's result. logs is a directory for a file of each
    input. progress is called with each outcome; True draws a bar. price is that of a second of a node; once all nodes cost
    more than budget, inputs without an outcome fail, and run no more. Further options are those of Sandbox.
    """
    work, files = _portable(work) if callable(work) else (work, {})
    inputs = list(inputs)
    outcomes: list[Outcome | None] = [None] * len(inputs)
    todo, attempts, tried = collections.deque(range(len(inputs))), [0] * len(inputs), collections.defaultdict(set)
    jobs: dict[Any, tuple[Any, int | None]] = {}
    free, nodes, lost = {}, {}, set()
    error, spent, looked = "no node of the cluster has room for an input", 0.0, time.monotonic()
    report = _bar(len(inputs)) if progress is True else progress

    def join() -> None:
        for node in ray.nodes() if inputs else ():
            room = int(node["Resources"].get("CPU", 0) / num_cpus if num_cpus else node["Resources"].get("CPU", 1))
            if node["Alive"] and node["NodeID"] not in nodes.values() and (room := min(room, slots or MAX_SLOTS)) > 0:
                where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                actor = ray.remote(_Node).options(num_cpus=room * num_cpus, max_concurrency=room + 2, scheduling_strategy=where).remote()
                nodes[actor] = node["NodeID"]
                jobs[actor.prepare.remote(image, options | _rules(network), setup, files, room, starts)] = actor, None

    def end(index: int, node: str = "", **answer: Any) -> None:
        outcome = outcomes[index] = Outcome(index, **answer, node=node, attempts=attempts[index])
        _settle(outcome, bool(files), max_output, logs, report)

    try:
        join()
        while True:
            for actor in free:
                while free[actor] and (index := _next(todo, tried, actor, free)) is not None:
                    free[actor] -= 1
                    attempts[index] += 1
                    tried[index].add(actor)
                    jobs[actor.run.remote(*_call(work, inputs[index], bool(files)), timeout, max_output + 1)] = actor, index
            if not jobs or not todo and all(index is None for _, index in jobs.values()):
                break
            ended, _ = ray.wait(list(jobs), timeout=LOOK)
            if (past := time.monotonic() - looked) >= LOOK:
                looked, spent = looked + past, spent + past * price * (len(nodes) - len(lost))
                if budget and spent >= budget:
                    break
                join()
            for job in ended:
                actor, index = jobs.pop(job)
                try:
                    answer = ray.get(job)
                    if index is None:
                        free[actor] = answer
                    elif actor in free:
                        free[actor] += 1
                except ray.exceptions.RayError as failure:
                    error = str(failure)
                    lost.add(actor)
                    free.pop(actor, None)
                    answer = {"state": "died", "error": error}
                if index is not None and answer["state"] == "died" and attempts[index] <= retries:
                    todo.appendleft(index)
                elif index is not None:
                    end(index, nodes[actor], **answer)
        if budget and spent >= budget:
            left = {"state": "failed", "reason": "budget", "error": f"the budget of {budget} is spent"}
        elif todo and not any(attempts):
            raise SandboxCreationError(error)
        else:
            left = {"state": "died", "error": error}
        for index, outcome in enumerate(outcomes):
            if outcome is None:
                end(index, **left)
    finally:
        closing = [actor.close.remote() for actor in free]
        ray.wait(closing, num_returns=len(closing), timeout=60) if closing else None
        for actor in nodes:
            ray.kill(actor)
    return outcomes


def _next(todo: collections.deque[int], tried: Mapping[int, set[Any]], actor: Any, free: Mapping[Any, int]) -> int | None:
    """Takes the first input that this node has not tried, or that all nodes have."""
    for at, index in enumerate(todo):
        if actor not in tried[index] or tried[index].issuperset(free):
            del todo[at]
            return index
    return None


def _portable(function: Callable[[Any], Any]) -> tuple[list[str], dict[str, bytes]]:
    """Returns the command that calls a function in a sandbox, and the files that it needs there."""
    module = sys.modules.get(function.__module__)
    by_value = module if module and module.__name__ != "__main__" else None
    if by_value:
        cloudpickle.register_pickle_by_value(by_value)
    try:
        pickled = cloudpickle.dumps((sys.version_info[:2], cloudpickle.dumps(function)))
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(by_value)
    with open(cloudpickle.cloudpickle.__file__, "rb") as file:
        source = file.read()
    own = {"function": pickled, "ray/__init__.py": b"", "ray/cloudpickle/__init__.py": b"", "ray/cloudpickle/cloudpickle.py": source}
    return ["python3", "-c", CALL, CALLED], {f"{CALLED}/{name}": content for name, content in own.items()}


def _call(work: Any, given: Any, function: bool) -> tuple[Any, str | None]:
    """The command of an input, and its stdin."""
    if function:
        return work, base64.b64encode(cloudpickle.dumps(given)).decode()
    if isinstance(work, str) or not any("{}" in part for part in work):
        return work, json.dumps(given)
    return [part.replace("{}", given if isinstance(given, str) else json.dumps(given)) for part in work], None


def _settle(outcome: Outcome, function: bool, bound: int, logs: str | None, report: Any) -> None:
    """Reads the result, which may be hostile: JSON within a bound, or refused."""
    if logs:
        os.makedirs(logs, exist_ok=True)
        with open(os.path.join(logs, f"{outcome.index:06d}.log"), "wb") as file:
            file.write(b"" if function else outcome.stdout)
            file.write(outcome.stderr)
    if function and outcome.state == "done":
        try:
            if len(outcome.stdout) > bound:
                raise ValueError(f"larger than {bound} bytes")
            outcome.value = json.loads(outcome.stdout)
        except (ValueError, RecursionError) as error:
            outcome.state, outcome.error = "failed", f"result refused: {error}"
    if report:
        report(outcome)


def _bar(total: int) -> Callable[[Outcome], None]:
    count: collections.Counter[str] = collections.Counter()

    def draw(outcome: Outcome) -> None:
        count[outcome.state] += 1
        bar = "#" * (30 * (ended := count.total()) // total)
        sys.stderr.write(f"\r[{bar:30}] {ended}/{total}, {count['failed']} failed, {count['died']} died" + "\n" * (ended == total))

    return draw
