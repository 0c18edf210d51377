"""Requests to a server over its socket, and the start of one where none runs.

http.client takes longer to import than the rest of the package: the first request imports it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time

from ._errors import InvalidRequest, SandboxLost, Unavailable, of_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse
    from typing import Any

LINGER = "10s"  # how long the server stays after its last client
START = 60.0  # seconds that it may take to start
OTHER = 5.0  # seconds that a server of the same state may take to listen, or to end
LOST = "what it did until then stays: see the server's log, and make another sandbox"

_starting = threading.Lock()


def quote(text: str) -> str:
    """Text as a part of a URL's path or query."""
    from urllib.parse import quote

    return quote(text, safe="")


def program() -> str:
    """The path of the program demesne: $DEMESNE_BIN, or that in PATH. Raises Unavailable without one."""
    import shutil

    if found := os.environ.get("DEMESNE_BIN") or shutil.which("demesne"):
        return found
    raise Unavailable("demesne is not installed: put it into PATH, or name it by DEMESNE_BIN")


class Transport:
    """Connections to a server. It may be used by several threads.

    Without a URL it uses the server on this user's socket, and starts it where none runs.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        url = (url or os.environ.get("DEMESNE_URL", "")).rstrip("/").removesuffix("/v1")
        state = os.environ.get("DEMESNE_STATE") or os.path.expanduser("~/.demesne")
        self._own, self._state = not url, os.path.join(state, "server")
        self._socket = url.removeprefix("unix:") or os.path.join(self._state, "python.sock")
        scheme, _, rest = url.partition(":")
        host, _, port = rest.removeprefix("//").rpartition(":")
        if scheme not in ("", "unix", "http") or scheme == "http" and not (host and port.isdigit()):
            raise InvalidRequest(f"url {url!r}: must be http://HOST:PORT or unix:PATH")
        self.local = scheme != "http"
        self._host = (host.strip("[]"), int(port)) if scheme == "http" else None
        self._token = token or os.environ.get("DEMESNE_TOKEN", "")
        self._idle: list[socket.socket] = []
        self._pid = os.getpid()

    def _dial(self) -> socket.socket:
        if self._host:
            connected = socket.create_connection(self._host)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(self._socket)
        except OSError:
            connected.close()
            raise
        return connected

    def _connect(self) -> socket.socket:
        try:
            return self._dial()
        except OSError as error:
            if not self._own:
                where = f"connect to {self._socket}: {error}"
                raise Unavailable(f"{where}: start demesne serve, or correct DEMESNE_URL") from error
        with _starting:
            return self._start()

    def _start(self) -> socket.socket:
        """Starts the server, or waits for the one that another process starts."""
        import subprocess

        argv = [program(), "serve", "--http", "unix:" + self._socket, "--linger", LINGER]
        os.makedirs(self._state, mode=0o700, exist_ok=True)
        server, said, end = None, "it does not answer", time.monotonic() + START
        with open(self._socket + ".log", "a+b") as log:
            while time.monotonic() < end:
                try:
                    return self._dial()
                except OSError:
                    time.sleep(0.005 if server else 0)
                if server and server.poll() is not None:
                    log.seek(0)
                    said = log.read(4096).decode(errors="replace").strip()
                    if "another server uses" not in said:
                        break
                    server, end = None, min(end, time.monotonic() + OTHER)
                    time.sleep(0.05)
                if not server:
                    log.truncate(0)
                    how = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": "/"}
                    server = subprocess.Popen(argv, start_new_session=True, **how)
        raise Unavailable(f"start demesne serve: {said}")

    def token(self) -> str:
        try:
            if not self._token:
                with open(os.path.join(self._state, "token")) as file:
                    self._token = file.read().strip()
        except OSError as error:
            raise Unavailable(f"read the server's token: {error}") from error
        return self._token

    def open(self, method: str, path: str, body: Any = None) -> Answer:
        """Sends a request. A body that is not bytes or a file becomes JSON. Raises the error that the answer means."""
        from http.client import HTTPConnection, HTTPException

        raw = body is None or isinstance(body, bytes) or hasattr(body, "read")
        connection = HTTPConnection("localhost")
        connection.sock = connected = self._idle_connection() or self._connect()
        headers = {"Authorization": "Bearer " + self.token()}
        if body is not None:
            headers["Content-Type"] = f"application/{'octet-stream' if raw else 'json'}"
        try:
            connection.request(method, path, body if raw else json.dumps(body), headers)
            answer = Answer(self, connected, connection.getresponse())
        except BaseException as error:
            connected.close()
            if isinstance(error, OSError):
                raise SandboxLost(f"{method} {path}: {error}: {LOST}") from error
            if isinstance(error, HTTPException):
                raise Unavailable(f"the server does not speak HTTP: {error!r}") from error
            raise
        if answer.response.status >= 300:
            raise of_answer(answer.response.status, b"".join(answer.parts()))
        return answer

    def _idle_connection(self) -> socket.socket | None:
        if self._pid != os.getpid():  # a forked process has its own connections
            self._idle, self._pid = [], os.getpid()
        while True:
            try:
                connected = self._idle.pop()
            except IndexError:  # another thread may have taken the last one
                return None
            poll = select.poll()  # select(2) takes no descriptor above 1,023
            poll.register(connected, select.POLLIN)
            if not poll.poll(0):
                return connected
            connected.close()  # the server has closed it, or sent something without a request

    def close(self) -> None:
        """Closes connections that no request uses."""
        while connected := self._idle_connection():
            connected.close()

    def call(self, method: str, path: str, body: Any = None) -> bytes:
        """Returns the body of the answer. Raises the error that it means."""
        return b"".join(self.open(method, path, body).parts())

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Returns the decoded body of the answer."""
        text = self.call(method, path, body)
        return json.loads(text) if text else None


class Answer:
    """An answer, whose body is still to be read."""

    def __init__(self, transport: Transport, connected: socket.socket, response: HTTPResponse) -> None:
        self._transport, self._socket, self.response = transport, connected, response

    def close(self) -> None:
        """Closes the connection. A thread that reads from it gets SandboxLost."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        except OSError:
            pass
        self._socket.close()

    def parts(self) -> Iterator[bytes]:
        """The parts of the body, as they arrive. After the last one the connection is kept, and else closed."""
        from http.client import HTTPException

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
                self._transport._idle.append(self._socket)
            else:
                self._socket.close()

    def events(self) -> Iterator[tuple[str, Any]]:
        """The events of a stream, as name and data. Raises an event of an error."""
        left = b""
        for part in self.parts():
            *whole, left = (left + part).split(b"\n\n")
            for event in whole:
                fields = dict(line.partition(b":")[::2] for line in event.split(b"\n"))
                if fields.get(b"event") == b" error":
                    raise of_answer(json.loads(fields[b"data"]).get("code", 0), fields[b"data"])
                if b"data" in fields:
                    yield fields.get(b"event", b"message").strip().decode(), json.loads(fields[b"data"])
