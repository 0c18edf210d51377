"""Requests to a server, and its start. The first client of a process imports this, which takes longest to import."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import BadStatusLine, HTTPException, HTTPResponse, RemoteDisconnected
from typing import Any
from urllib.parse import quote, urlencode

from ._errors import DemesneError, InvalidRequest, NotFound, SandboxLost, Unavailable, of_answer, raising
from ._sandbox import shared

LINGER = "10s"  # how long the server stays after its last client
START = 60.0  # seconds that it may take to start
OTHER = 5.0  # seconds that a server of the same state may take to listen, or to end
AT_ONCE = 1 << 16  # bytes of a request that are sent in one call, so that the server wakes up once
LONGEST, MOST = 1 << 16, 100  # bytes of a line of an answer's head, and its lines
LOST = "what it did until then stays: see the server's log, and make another sandbox"

_starting = threading.Lock()


def program() -> str:
    """The path of the program demesne: $DEMESNE_BIN, or that in PATH. Raises Unavailable without one."""
    if found := os.environ.get("DEMESNE_BIN") or shutil.which("demesne"):
        return found
    raise Unavailable("demesne is not installed: put it into PATH, or name it by DEMESNE_BIN")


def cli(*arguments: str) -> str:
    """Runs the program demesne of this machine for what the server has no route, and returns its output."""
    done = subprocess.run([program(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, errors="replace")
    if done.returncode:
        said = done.stderr.strip()[-2000:] or f"demesne {arguments[0]}: exit code {done.returncode}"
        raise (NotFound if "no such" in said else DemesneError)(said)
    return done.stdout


class Client:
    """A server. Without arguments it is the one on this user's socket, which starts with the first request and ends 10
    seconds after the last client's connection. url, or $DEMESNE_URL, names another one: http://HOST:PORT or unix:PATH.
    token, or $DEMESNE_TOKEN, is its token; without it the file of this user's server is read.

    Several threads may use it. open, call and ask send requests that no other method has.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        url = (url or os.environ.get("DEMESNE_URL", "")).rstrip("/").removesuffix("/v1")
        if not (found := re.fullmatch(r"(?:unix:(.+)|http://(\[?([^/]+?)\]?:(\d+)))?", url)):
            raise InvalidRequest(f"url {url!r}: must be http://HOST:PORT or unix:PATH")
        path, self._name, self._host, self._port = found.groups()
        state = os.environ.get("DEMESNE_STATE") or os.path.expanduser("~/.demesne")
        self._own, self.local, self._state = not url, not self._host, os.path.join(state, "server")
        self._socket = path or os.path.join(self._state, "python.sock")
        self._token = token or os.environ.get("DEMESNE_TOKEN", "")
        self._idle: list[socket.socket] = []
        self._pid = os.getpid()

    def _dial(self) -> socket.socket:
        if self._host:
            connection = socket.create_connection((self._host, self._port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self._socket)
        except OSError:
            connection.close()
            raise
        return connection

    def _connect(self) -> socket.socket:
        try:
            return self._dial()
        except OSError as error:
            if not self._own:
                where = f"connect to {self._host or self._socket}: {error}"
                raise Unavailable(f"{where}: start demesne serve, or correct DEMESNE_URL") from error
        with _starting:
            return self._start()

    def _start(self) -> socket.socket:
        """Starts the server, or waits for the one that another process starts."""
        argv = [program(), "serve", "--http", "unix:" + self._socket, "--linger", LINGER]
        os.makedirs(self._state, mode=0o700, exist_ok=True)
        server, said, end = None, "it does not answer", time.monotonic() + START
        with open(self._socket + ".log", "a+b") as log:
            how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": "/"}
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    return self._dial()
                if not server:
                    log.truncate(0)
                    server = subprocess.Popen(argv, start_new_session=True, **how)
                elif server.poll() is None:
                    time.sleep(0.005)
                else:
                    log.seek(0)
                    said = log.read(4096).decode(errors="replace").strip()
                    if "another server uses" not in said:
                        break
                    server, end = None, min(end, time.monotonic() + OTHER)
                    time.sleep(0.05)
        raise Unavailable(f"start demesne serve: {said}")

    def open(self, method: str, *path: str, content: Any = None, **given: Any) -> Answer:
        """Sends a request to a path below /v1. given is the query of GET and of a request with content, which is bytes or
        a file, and else the JSON body; what is None is left out. Raises the error that the answer means.
        """
        url = "/v1/" + "/".join(quote(part, safe="") for part in path)
        given = {key: value for key, value in given.items() if value is not None}
        kind = "json" if content is None else "octet-stream"
        if content is None and method != "GET":
            content = json.dumps(given).encode()
        else:
            url, content = url + "?" + urlencode(given, doseq=True), b"" if content is None else content
        connection = self._idle_connection() or self._connect()
        if not self._token:  # a server that starts writes it
            with raising(Unavailable, "read the server's token", only=OSError):
                self._token = pathlib.Path(self._state, "token").read_text().strip()
        size = len(content) if isinstance(content, bytes) else os.fstat(content.fileno()).st_size
        head = (
            f"{method} {url} HTTP/1.1\r\nHost: {self._name or 'localhost'}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/{kind}\r\nContent-Length: {size}\r\n\r\n"
        )
        try:
            answer = Answer(self, connection, method, head.encode(), content)
        except OSError as error:  # also a connection that ends without an answer
            raise SandboxLost(f"{method} {url}: {error}: {LOST}") from error
        except HTTPException as error:
            raise Unavailable(f"the server does not speak HTTP: {error!r}") from error
        if answer.response.status >= 300:
            raise of_answer(answer.response.status, b"".join(answer.parts()))
        return answer

    def _idle_connection(self) -> socket.socket | None:
        if self._pid != os.getpid():  # a forked process has its own connections
            self._idle, self._pid = [], os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread may have taken the last one
                return None
            poll = select.poll()  # select(2) takes no descriptor above 1,023
            poll.register(connection, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()  # the server has closed it, or sent something without a request

    def close(self) -> None:
        """Closes connections that no request uses."""
        while connection := self._idle_connection():
            connection.close()

    def sandboxes(self, state: str | None = None, name: str | None = None) -> Iterator[dict[str, Any]]:
        """All sandboxes, the newest first. state and name, a prefix, select some."""
        page: dict[str, Any] = {"next": None}
        while "next" in page:
            page = self.ask("GET", "sandboxes", limit=100, state=state, name=name, cursor=page["next"])
            yield from page["items"] or []

    def questions(self) -> list[dict[str, Any]]:
        """Connections that wait for an answer: see the argument ask of Sandbox."""
        return self.ask("GET", "egress", "questions")["items"] or []

    def answer(self, question: str, allow: bool) -> None:
        """Answers a question. The answer becomes a rule of the sandbox. Raises NotFound if it no longer waits."""
        self.ask("POST", "egress", "questions", question, "allow" if allow else "deny")

    def remove_group(self, group: str) -> None:
        """Removes all sandboxes of a group, at the same time. A group without sandboxes is not an error."""
        self.remove("groups", group)

    def images(self) -> list[dict[str, Any]]:
        """The images of this machine."""
        return self.ask("GET", "images")["items"] or []

    def pull(self, name: str) -> None:
        """Downloads an image. Raises InvalidRequest for an unknown name, and Unavailable if its registry is silent."""
        list(self.open("POST", "images", "pull", name=name).events())

    def call(self, method: str, *path: str, **given: Any) -> bytes:
        """Returns the body of the answer to a request: see open."""
        return b"".join(self.open(method, *path, **given).parts())

    def ask(self, method: str, *path: str, **given: Any) -> Any:
        """Returns the decoded body of the answer to a request: see open."""
        text = self.call(method, *path, **given)
        return json.loads(text) if text else None

    def remove(self, *path: str) -> None:
        """Removes something. It is no error if it does not exist."""
        with contextlib.suppress(NotFound):
            self.call("DELETE", *path)


def build(
    directory: str, tag: str, *, file: str = "", target: str = "", args: Mapping[str, str] | None = None,
    no_cache: bool = False, pull: bool = False, client: Client | None = None,
) -> str:
    """Builds the Containerfile or Dockerfile in a directory, and returns the image's digest. tag is its name, such as
    local/tools; file is the path of another Containerfile in the directory, target the last stage, and args has values
    of ARGs. no_cache executes every step, and pull asks the registry for newer bases. If a step fails, InvalidRequest
    has the end of the log.
    """
    import tarfile
    import tempfile

    client, log = client or shared(), ""
    values = [f"{key}={value}" for key, value in (args or {}).items()]
    directory = os.path.realpath(directory)
    with tempfile.TemporaryFile() as content:
        if not client.local:
            with tarfile.open(fileobj=content, mode="w") as archive:
                archive.add(directory, ".")
            content.seek(0)
        try:
            for kind, data in client.open(
                "POST", "builds", content=content, context=directory if client.local else None, tag=tag, file=file,
                target=target, arg=values, no_cache="true" if no_cache else None, pull="true" if pull else None,
            ).events():
                if kind == "done":
                    return data["digest"]
                log = (log + data["message"] + "\n")[-2000:]
        except InvalidRequest as error:
            raise InvalidRequest((log + str(error))[-2000:], error.status) from error
    raise SandboxLost("the build was lost: " + log)


class _Response(HTTPResponse):
    """An answer. Its head is read here, since http.client's parser of mail takes longer than the rest of a short request."""

    def begin(self) -> None:
        fields: dict[bytes, bytes] = {}
        line = first = self.fp.readline(LONGEST)
        while line.endswith(b"\r\n") and len(fields) < MOST and (line := self.fp.readline(LONGEST)) != b"\r\n":
            name, _, value = line.lower().partition(b":")
            fields[name] = value.strip()
        status = re.match(rb"HTTP/1\.1 ([2-5]\d\d)\b", first)
        if not first or status and not line:
            raise RemoteDisconnected("the server closed the connection without an answer")
        if not status or line != b"\r\n":
            raise BadStatusLine(repr(first[:80]))
        self.status = int(status[1])
        self.chunked, self.chunk_left = fields.get(b"transfer-encoding") == b"chunked", None
        size = fields.get(b"content-length", b"0" if self.status == 204 else b"")
        self.length = int(size) if size.isdigit() and not self.chunked else None
        self.will_close = fields.get(b"connection") == b"close" or not self.chunked and self.length is None


class Answer:
    """An answer, whose body is still to be read."""

    def __init__(self, client: Client, connection: socket.socket, method: str, head: bytes, content: Any) -> None:
        self._client, self._connection = client, connection
        self.response = _Response(connection, method=method)
        try:
            if isinstance(content, bytes):
                connection.sendall(head + content[:AT_ONCE])
                connection.sendall(memoryview(content)[AT_ONCE:])
            else:
                connection.sendall(head)
                connection.sendfile(content)
            self.response.begin()
        except BaseException:
            self.response.close()
            connection.close()
            raise

    def close(self) -> None:
        """Closes the connection. A thread that reads from it gets SandboxLost."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._connection.close()

    def parts(self) -> Iterator[bytes]:
        """The parts of the body, as they arrive. After the last one the connection is kept, and else closed."""
        whole = False
        try:
            while part := self.response.read1(1 << 16):
                yield part
            if self.response.length:
                raise ConnectionResetError("the server closed the connection")
            whole = not self.response.will_close
        except (OSError, HTTPException) as error:
            raise SandboxLost(f"read answer: {error}: {LOST}") from error
        finally:
            self.response.close()
            if whole:
                self._client._idle.append(self._connection)
            else:
                self._connection.close()

    def events(self) -> Iterator[tuple[str, Any]]:
        """The events of a stream, as name and data. Raises an event of an error."""
        left = b""
        for part in self.parts():
            *whole, left = (left + part).split(b"\n\n")
            for event in whole:
                fields = dict(line.partition(b": ")[::2] for line in event.split(b"\n"))
                name, data = fields.get(b"event", b"").decode(), json.loads(fields.get(b"data", b"null"))
                if name == "error":
                    raise of_answer(data.get("code", 0), fields[b"data"])
                if data is not None:
                    yield name, data
