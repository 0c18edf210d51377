"""Sandbox, and what its calls return."""

from __future__ import annotations

import os
import weakref
from binascii import a2b_base64
from contextlib import AbstractContextManager, suppress
from functools import cache

from ._errors import DemesneError, InvalidRequest, SandboxLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from ._client import Answer, Client

MAX_INPUT = 1 << 18  # characters of input within a request; more, and bytes, go by a file
MAX_OUTPUT = 16 << 20  # bytes of each stream that Result keeps, unless its caller asks for another number


class Result:
    """How a command ended.

    exit_code is its own exit code, or 128 + n for signal n. reason says why it ended: exited, signaled, timed-out, oom,
    disk or pids. stdout and stderr are text in which bytes that are not UTF-8 are replaced; stdout_bytes and
    stderr_bytes are exact. truncated means that output beyond max_output was dropped.
    """

    def __init__(self, answer: Mapping[str, Any], stdout: bytes, stderr: bytes, truncated: bool) -> None:
        self.answer, self.stdout_bytes, self.stderr_bytes, self.truncated = answer, stdout, stderr, truncated
        self.exit_code: int = answer["exit_code"]
        self.reason: str = answer["reason"]
        self.detail: str = answer.get("detail", "")
        self.seconds: float = answer.get("seconds", 0.0)
        self.cpu_seconds: float = answer.get("cpu_seconds", 0.0)
        self.max_rss_bytes: int = answer.get("max_rss_bytes", 0)
        self.denied: list[dict[str, Any]] = answer.get("denied") or []
        self.warnings: list[str] = answer.get("warnings") or []

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode(errors="replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.reason == "exited"

    def __repr__(self) -> str:
        output = f"stdout={self.stdout[:200]!r}, stderr={self.stderr[:200]!r}"
        return f"Result(exit_code={self.exit_code}, reason={self.reason!r}, {output})"


class CommandFailed(DemesneError):
    """A command ended with another exit code than 0, and its caller asked for an error. result has its output."""

    def __init__(self, result: Result) -> None:
        said = result.stderr.strip()[-400:]
        super().__init__(f"command failed: {result.reason}, exit code {result.exit_code}: {said}")
        self.result = result


@cache
def shared() -> Client:
    """The client of sandboxes that name none."""
    from ._client import Client

    return Client()


def _asks(about: str, method: str, *path: str, items: bool = False) -> Callable[..., Any]:
    def call(self: Sandbox) -> Any:
        answer = self._call(method, *path)
        return answer["items"] or [] if items else answer

    call.__doc__ = about
    return call


class Sandbox(AbstractContextManager["Sandbox"]):
    """A sandbox. It ends with kill, at the end of a with statement, with the Python object, or after ttl seconds
    without a command, whichever is first.

    image is its root filesystem: a name of demesne images --all or a reference; None is the server's, by default the
    programs of this machine. env has variables of all commands. cpus is a number of processors, memory and disk are
    bytes, and pids bounds processes and threads; the operator's bounds reduce them, which warnings tells.

    allow and deny are rules of the network such as "example.com", "*.example.com:443" or "10.0.0.0/8:*"; network is a
    mode such as "package-managers" or "open". Without any of them the sandbox has no network. With ask, a connection
    to a name without a rule waits for Client.answer. Sandboxes of one group reach each other by name, on all TCP ports
    that they listen on; name is then name + "." + group, and Client.remove_group ends all of them.

    mounts shows directories of the server's machine: {"/path": "ro" | "rw" | "cow"}. With "cow" the directory stays as
    it is; diff, apply and discard handle the changes. secrets are names of demesne secret.

    Raises InvalidRequest for a wrong argument or an unknown image, Conflict for a name in use, TooMany beyond the
    operator's bound, and Unavailable without a server.
    """

    def __init__(
        self, image: str | None = None, *, name: str | None = None, env: Mapping[str, str] | None = None,
        cpus: float | None = None, memory: int | None = None, disk: int | None = None, pids: int | None = None,
        network: str | None = None, allow: Sequence[str] = (), deny: Sequence[str] = (), ask: bool = False,
        group: str | None = None, secrets: Sequence[str] = (), mounts: Mapping[str, str] | None = None, ttl: int = 3600,
        client: Client | None = None,
    ) -> None:
        limits = {"cpus": cpus, "memory": memory, "disk": disk, "pids": pids}
        shown = [(os.path.realpath(path), os.path.abspath(path), mode) for path, mode in (mounts or {}).items()]
        rules = {"mode": network or "none", "allow": list(allow), "deny": list(deny), "ask": ask}
        client = client or shared()
        self._adopt(client, True, client.ask(
            "POST", "sandboxes", image=image, name=name, group=group, env=dict(env or {}), secrets=list(secrets),
            limits={key: value for key, value in limits.items() if value is not None}, ttl_seconds=ttl,
            mounts=[{"source": source, "target": target, "mode": mode} for source, target, mode in shown],
            network=rules if network or allow or deny or ask else None,
        ))

    def _adopt(self, client: Client, owned: bool, info: dict[str, Any]) -> Sandbox:
        self.client = client
        self.id: str = info["id"]
        self.name: str = info.get("name", "")
        self.warnings: list[str] = info.get("warnings") or []
        self.files = Files(self)
        self._end = weakref.finalize(self, _finalize, client, self.id, os.getpid()) if owned else None
        return self

    @classmethod
    def connect(cls, id: str, client: Client | None = None) -> Sandbox:
        """Returns a sandbox by its id or name. It lives on after the object. Raises NotFound."""
        client = client or shared()
        return cls.__new__(cls)._adopt(client, False, client.ask("GET", "sandboxes", id))

    def _call(self, method: str, *path: str, **given: Any) -> Any:
        return self.client.ask(method, "sandboxes", self.id, *path, **given)

    # Commands

    def run(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        user: str | None = None, input: str | bytes | None = None, timeout: float | None = None, check: bool = False,
        max_output: int = MAX_OUTPUT,
    ) -> Result:
        """Runs a command and returns its result. A string goes to the sandbox's shell; a sequence is argv.

        cwd is absolute. user is "UID", "UID:GID" or an account of the sandbox. input is its standard input. After
        timeout seconds the command is killed: the result has the reason "timed-out" and exit code 124. Of each stream
        the first max_output bytes are kept. With check, CommandFailed is raised unless the command succeeded.

        Raises SandboxLost if the sandbox or its runner ended, NotFound if the sandbox does not exist, and
        InvalidRequest for a program that does not exist.
        """
        return self.stream(command, cwd=cwd, env=env, user=user, input=input, timeout=timeout).result(check, max_output)

    def stream(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        user: str | None = None, input: str | bytes | None = None, timeout: float | None = None,
    ) -> Output:
        """Starts a command, and returns its output as it comes, to be iterated: ("stdout" or "stderr", bytes). Its
        close ends the command. Arguments and errors are those of run.
        """
        given: dict[str, Any] = {"command": command} if isinstance(command, str) else {"argv": list(command)}
        if isinstance(input, str) and len(input) <= MAX_INPUT:
            given["stdin"] = input
        elif input:  # the shell removes the file when it has opened it
            path = f"/tmp/.demesne-input-{os.urandom(8).hex()}"
            self.files.write(path, input)
            argv = ["sh", "-c", command] if isinstance(command, str) else command
            given = {"argv": ["sh", "-c", f'exec < {path}; rm {path}; exec "$@"', "sh", *argv]}
        given |= {"cwd": cwd, "env": env and dict(env), "user": user}
        given["timeout_ms"] = None if timeout is None else max(1, int(timeout * 1000))
        return Output(self.client.open("POST", "sandboxes", self.id, "exec", "stream", **given))

    # Its life

    info = _asks("What the server knows: state, limits, network, expires and others. Raises NotFound.", "GET")
    pause = _asks("Stops the processes, and keeps them in memory until the next command.", "POST", "pause")
    resume = _asks("Lets paused processes go on.", "POST", "resume")
    stop = _asks("Ends the processes, and keeps the files. The next command starts the sandbox again.", "POST", "stop")
    start = _asks("Starts a stopped sandbox.", "POST", "start")

    def stat(self, path: str) -> dict[str, Any] | None:
        """A file's entry as Files.list has it, or None."""
        return self.files._ask("files", "exists", path=path).get("file")

    def fork(self, name: str | None = None) -> Sandbox:
        """Returns a new sandbox with the files of this one and no processes. Raises Conflict for a name in use."""
        return Sandbox.__new__(Sandbox)._adopt(self.client, True, self._call("POST", "fork", name=name))

    def snapshot(self, name: str) -> Sandbox:
        """Keeps the files as they are now, as a stopped sandbox to fork from. It lives on after the object."""
        return Sandbox.__new__(Sandbox)._adopt(self.client, False, self._call("POST", "snapshot", name=name))

    def kill(self) -> None:
        """Removes the sandbox. It is no error if it does not exist. Changes to directories with mode cow that were
        neither applied nor discarded stay, for demesne diff, apply and discard.
        """
        if self._end:
            self._end.detach()
        self.client.remove("sandboxes", self.id)

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"Sandbox(id={self.id!r})"

    # Limits, and what it does

    usage = _asks("What it uses: memory_bytes, cache_bytes, cpu_seconds since its start, processes.", "GET", "usage")
    processes = _asks(
        "Its processes: pid, parent, command, state, cpu_seconds, memory_bytes.", "GET", "processes", items=True
    )
    receipt = _asks("What isolates it, as verified: level, layers and limits with their status.", "GET", "receipt")
    changes = _asks("Files of its root that were added (A), modified (M) or deleted (D).", "GET", "changes", items=True)
    network = _asks("Its rules of the network: mode, allow, deny and ask.", "GET", "egress")

    def set_limits(
        self, *, cpus: float | None = None, memory: int | None = None, pids: int | None = None
    ) -> dict[str, Any]:
        """Changes limits of the running sandbox, and returns all: memory in bytes. pids cannot pass its first value."""
        return self._call("PATCH", "limits", cpus=cpus, memory=memory, pids=pids)["limits"]

    # Directories with mode cow

    def _stopped(self, *arguments: str) -> str:
        from ._client import cli

        self.stop()
        return cli(*arguments)

    def diff(self) -> str:
        """The changes in its directories with mode cow, as a patch. This and the next two end the processes first."""
        return self._stopped("diff", "--patch", self.id)

    def apply(self, *paths: str) -> str:
        """Writes changes to the directories themselves, all or those of paths, and returns what was done. A file that
        changed on both sides raises DemesneError, and nothing is written.
        """
        return self._stopped("apply", self.id, *paths)

    def discard(self, *paths: str) -> str:
        """Drops changes, all or those of paths."""
        return self._stopped("discard", self.id, *paths)

    # Network

    def set_network(
        self, mode: str = "none", *, allow: Sequence[str] = (), deny: Sequence[str] = (), ask: bool = False
    ) -> dict[str, Any]:
        """Replaces its rules, and returns them. Raises InvalidRequest for a sandbox made without a network; one that
        was made with allow=["none.invalid"], a name that does not exist, reaches nothing until this call.
        """
        return self._call("PUT", "egress", mode=mode, allow=list(allow), deny=list(deny), ask=ask)

    def allow(self, *rules: str) -> dict[str, Any]:
        """Adds rules that allow, and returns all. Raises InvalidRequest for a sandbox made without a network."""
        return self._call("POST", "egress", "allow", rules=list(rules))

    def deny(self, *rules: str) -> dict[str, Any]:
        """Adds rules that deny; they win over those that allow."""
        return self._call("POST", "egress", "deny", rules=list(rules))

    def decisions(self) -> list[dict[str, Any]]:
        """The decisions about its connections until now: host, port, verdict, reason and others."""
        log = self.client.open("GET", "sandboxes", self.id, "egress", "log", follow="false")
        return [data for _, data in log.events() if "verdict" in data]

    def publish(self, port: int) -> str:
        """Makes a port of the sandbox reachable from the server's machine, and returns HOST:PORT."""
        return self._call("POST", "ports", to=port)["listen"]

    def unpublish(self, port: int) -> None:
        """Ends that."""
        self._call("DELETE", "ports", str(port))


def _finalize(client: Client, id: str, owner: int) -> None:
    if os.getpid() == owner:  # a copy of the object in a forked process removes nothing
        with suppress(DemesneError):  # its time to live ends it
            client.remove("sandboxes", id)


class Output(AbstractContextManager["Output"]):
    """The output of a command, as it comes, to be iterated once. answer is set at its end. It is a context manager."""

    answer: Mapping[str, Any]

    def __init__(self, answer: Answer) -> None:
        self._http, self._done, self._events = answer, False, self._read()

    def _read(self) -> Iterator[tuple[str, bytes]]:
        try:
            for kind, data in self._http.events():
                if kind == "chunk":
                    yield data["stream"], a2b_base64(data["base64"]) if "base64" in data else data["text"].encode()
                elif kind == "done":
                    self.answer, self._done = data, True
        except DemesneError as error:
            raise SandboxLost(str(error), error.status) from error
        if not self._done or self.answer["reason"] == "lost":
            raise SandboxLost("the command was lost" + (": " + self.answer.get("detail", "") if self._done else ""))

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return self._events

    def result(self, check: bool = False, max_output: int = MAX_OUTPUT) -> Result:
        """Reads all output, and returns the result: see Sandbox.run."""
        kept, truncated = {"stdout": bytearray(), "stderr": bytearray()}, False
        for stream, data in self:
            left = max_output - len(kept[stream])
            kept[stream] += data[:left]
            truncated |= len(data) > left
        result = Result(self.answer, bytes(kept["stdout"]), bytes(kept["stderr"]), truncated)
        if check and not result.ok:
            raise CommandFailed(result)
        return result

    def close(self) -> None:
        """Ends the command, if it runs. Another thread that reads its output gets SandboxLost."""
        if not self._done:
            self._http.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class Files:
    """Files of a sandbox. Relative paths begin at /workspace. Raises NotFound for what does not exist, and
    InvalidRequest for what cannot be done, such as reading a directory.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._id, self._client = sandbox.id, sandbox.client

    def _ask(self, *path: str, **given: Any) -> Any:
        return self._client.ask("POST", "sandboxes", self._id, *path, **given)["data"]

    def read(self, path: str) -> bytes:
        """Returns the content of a file of any size."""
        return self._client.call("GET", "sandboxes", self._id, "files", "raw", path=path)

    def read_text(self, path: str) -> str:
        """Returns the content of a file as text. Raises UnicodeDecodeError if it is not UTF-8."""
        return self.read(path).decode()

    def write(self, path: str, data: str | bytes) -> None:
        """Writes a file of any size, and the directories above it. A file that exists is replaced."""
        raw = data.encode() if isinstance(data, str) else bytes(data)
        self._client.call("PUT", "sandboxes", self._id, "files", "raw", content=raw, path=path)

    def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> int:
        """Replaces text, and returns how often. Without replace_all the old text must be there once."""
        given = {"path": path, "old_string": old, "new_string": new, "replace_all": replace_all}
        return self._ask("files", "edit", **given)["replaced"]

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return self._ask("files", "exists", path=path)["exists"]

    def make_dir(self, path: str) -> None:
        """Makes a directory, and those above it."""
        self._ask("files", "mkdir", path=path)

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it."""
        self._ask("files", "delete", path=path)

    def move(self, source: str, destination: str) -> None:
        """Renames a file or directory."""
        self._ask("files", "move", source=source, destination=destination)

    def copy(self, source: str, destination: str) -> None:
        """Copies a file or directory."""
        self._ask("files", "copy", source=source, destination=destination)

    def glob(self, pattern: str, path: str = ".") -> list[str]:
        """Paths that match a pattern such as **/*.py. Raises InvalidRequest if more than 100 match."""
        found = self._ask("files", "glob", path=path, pattern=pattern)
        if found.get("truncated"):
            raise InvalidRequest(f"glob {pattern!r}: too many paths match: narrow the pattern, or use list")
        return found["paths"] or []

    def grep(self, pattern: str, path: str = ".", limit: int = 1000) -> str:
        """Lines that match a regular expression, as path:line:text: the first limit lines."""
        return self._ask("grep", path=path, pattern=pattern, limit=limit)["output"]

    def list(self, path: str = ".", depth: int = 1) -> list[dict[str, Any]]:  # last: a type checker takes it for list
        """The entries of a directory: name, path, type, size in bytes, mode, owner, modified."""
        return self._ask("files", "list", path=path, depth=depth) or []
