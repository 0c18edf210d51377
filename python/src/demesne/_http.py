"""Requests to a server over its socket, and the start of one where none runs.

HTTP/1.1 in as much as demesne serve speaks it: the standard library's client takes longer to import than the rest of the
package, and a millisecond more for each call.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time

from ._errors import InvalidRequest, SandboxLost, Unavailable, of_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LINGER = "10s"  # how long the server stays after its last client
START = 60.0  # seconds that it may take to start
LOST = "what it did until then stays: see the server's log, and make another sandbox"

_starting = threading.Lock()


def state() -> str:
    """The directory of demesne's own files."""
    return os.environ.get("DEMESNE_STATE") or os.path.join(os.path.expanduser("~"), ".demesne")


def quote(text: str) -> str:
    """Text as a part of a URL's path or query."""
    return "".join(chr(b) if 48 <= b <= 57 or 65 <= b <= 90 or 97 <= b <= 122 or b in b"-._~" else f"%{b:02X}" for b in text.encode())


def program() -> str:
    """The path of the program demesne: $DEMESNE_BIN, or that in PATH. Raises Unavailable without one."""
    if given := os.environ.get("DEMESNE_BIN"):
        return given
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.access(path := os.path.join(directory, "demesne"), os.X_OK):
            return path
    raise Unavailable("demesne is not installed: put it into PATH, or name it by DEMESNE_BIN")


class Connection:
    """One connection, which one request uses at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket, self.file, self.rest = connected, connected.makefile("rb"), -1

    def stale(self) -> bool:
        """Whether the server has closed the connection, or sent something without a request."""
        poll = select.poll()  # select(2) takes no descriptor above 1,023
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        except OSError:
            pass
        self.file.close()
        self.socket.close()

    def send(self, head: str, body: bytes) -> int:
        """Sends a request, and returns the status of the answer, whose body is still to be read."""
        self.socket.sendall(head.encode("latin-1") + body)
        line = self._line()
        if not line.startswith(b"HTTP/1.") or not line[9:12].isdigit():
            raise Unavailable(f"the server does not speak HTTP: {line[:80]!r}")
        status, headers = int(line[9:12]), {}
        while (line := self._line()) != b"\r\n":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        self.chunked = headers.get("transfer-encoding") == "chunked"
        self.rest = 0 if status == 204 else int(headers.get("content-length", -1))
        self.last = headers.get("connection", "").lower() == "close" or not self.chunked and self.rest < 0
        return status

    def chunks(self) -> Iterator[bytes]:
        """The parts of the body, as they arrive."""
        if self.chunked:
            while size := int(self._line().split(b";")[0], 16):
                yield self._exactly(size)
                self._line()
            self._line()
        elif self.rest >= 0:
            while self.rest > 0:
                part = self._exactly(min(self.rest, 1 << 20))
                self.rest -= len(part)
                yield part
        else:
            yield self.file.read()

    def _line(self) -> bytes:
        line = self.file.readline(65536)
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the server closed the connection")
        return line

    def _exactly(self, size: int) -> bytes:
        part = self.file.read(size)
        if len(part) < size:
            raise ConnectionResetError("the server closed the connection")
        return part


class Transport:
    """Connections to a server. It may be used by several threads.

    Without a URL it uses the server on this user's socket, and starts it where none runs.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        url = (url or os.environ.get("DEMESNE_URL", "")).rstrip("/").removesuffix("/v1")
        self._own = not url
        self._socket = os.path.join(state(), "server", "python.sock") if self._own else url.removeprefix("unix:")
        self._host: tuple[str, int] | None = None
        if url.startswith("http://"):
            host, _, port = url.removeprefix("http://").rpartition(":")
            if not host or not port.isdigit():
                raise InvalidRequest(f"url {url!r}: must be http://HOST:PORT")
            self._host = (host.strip("[]"), int(port))
        elif url and not url.startswith("unix:"):
            raise InvalidRequest(f"url {url!r}: must begin with http:// or unix:")
        self._token = token or os.environ.get("DEMESNE_TOKEN", "")
        self._idle: list[Connection] = []
        self._pid = os.getpid()

    def _dial(self) -> Connection:
        if self._host:
            connected = socket.create_connection(self._host)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return Connection(connected)
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.connect(self._socket)
        except OSError:
            connected.close()
            raise
        return Connection(connected)

    def _connect(self) -> Connection:
        try:
            return self._dial()
        except OSError as error:
            if not self._own:
                raise Unavailable(f"connect to {self._socket}: {error}: start demesne serve, or correct DEMESNE_URL") from error
        with _starting:
            return self._start()

    def _start(self) -> Connection:
        """Starts the server, or waits for the one that another process starts."""
        import subprocess

        os.makedirs(os.path.dirname(self._socket), mode=0o700, exist_ok=True)
        end = time.monotonic() + START
        log = self._socket + ".log"
        while True:
            try:
                return self._dial()
            except OSError:
                pass
            with open(log, "wb") as to:
                server = subprocess.Popen(
                    [program(), "serve", "--http", "unix:" + self._socket, "--linger", LINGER],
                    stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True, cwd="/",
                )
            while server.poll() is None and time.monotonic() < end:
                try:
                    return self._dial()
                except OSError:
                    time.sleep(0.005)
            with open(log, errors="replace") as said:
                text = said.read(4096).strip()
            if "another server uses" not in text or time.monotonic() > end:
                raise Unavailable(f"start demesne serve: {text or 'it does not answer'}")
            time.sleep(0.05)  # the other one listens soon, or ends
            if time.monotonic() > end - START + 5:
                raise Unavailable("another demesne serve runs: name it by DEMESNE_URL, such as http://127.0.0.1:7480")

    def token(self) -> str:
        try:
            if not self._token:
                with open(os.path.join(state(), "server", "token")) as file:
                    self._token = file.read().strip()
        except OSError as error:
            raise Unavailable(f"read the server's token: {error}") from error
        return self._token

    def open(self, method: str, path: str, body: Any = None) -> Connection:
        """Sends a request, and returns its connection, whose answer chunks reads. A body that is not bytes becomes JSON.
        Raises the error that the answer means.
        """
        connection = self._idle_connection() or self._connect()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token()}\r\n"
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        if body is not None:
            kind = "octet-stream" if isinstance(body, bytes) else "json"
            head += f"Content-Type: application/{kind}\r\n"
        try:
            status = connection.send(f"{head}Content-Length: {len(data)}\r\n\r\n", data)
        except OSError as error:
            connection.close()
            raise SandboxLost(f"{method} {path}: {error}: {LOST}") from error
        except BaseException:
            connection.close()
            raise
        if status >= 300:
            raise failure(status, b"".join(self.chunks(connection)))
        return connection

    def _idle_connection(self) -> Connection | None:
        if self._pid != os.getpid():  # a forked process has its own connections
            self._idle, self._pid = [], os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread may have taken the last one
                return None
            if not connection.stale():
                return connection
            connection.close()

    def chunks(self, connection: Connection) -> Iterator[bytes]:
        """The parts of an answer's body. After the last one the connection is kept for another request, and else closed."""
        whole = False
        try:
            yield from connection.chunks()
            whole = True
        except (OSError, ValueError) as error:  # ValueError: another thread closed the connection
            raise SandboxLost(f"read answer: {error}: {LOST}") from error
        finally:
            if whole and not connection.last:
                self._idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Closes connections that no request uses."""
        while connection := self._idle_connection():
            connection.close()

    def call(self, method: str, path: str, body: Any = None) -> bytes:
        """Returns the body of the answer. Raises the error that it means."""
        return b"".join(self.chunks(self.open(method, path, body)))

    def events(self, method: str, path: str, body: Any = None) -> Iterator[tuple[str, Any]]:
        """The events of an answer, as name and data."""
        return events(self.chunks(self.open(method, path, body)))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Returns the decoded body of the answer."""
        text = self.call(method, path, body)
        return json.loads(text) if text else None


def failure(status: int, text: bytes) -> Exception:
    """Returns the error of an answer. Details that name what is wrong in a request are part of its text."""
    try:
        said = json.loads(text)
        message = said.get("message", "")
        for detail in said.get("data") or []:
            if isinstance(detail, dict):
                message += f"; {detail.get('location', '')}: {detail.get('message', '')}"
    except ValueError:
        message = text[:400].decode(errors="replace")
    return of_status(status, message)


def events(parts: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
    """The events of a stream, as name and data."""
    left = b""
    for part in parts:
        *whole, left = (left + part).split(b"\n\n")
        for event in whole:
            name, data = "message", b""
            for line in event.split(b"\n"):
                if line.startswith(b"event:"):
                    name = line[6:].strip().decode()
                elif line.startswith(b"data:"):
                    data += line[5:].strip()
            if data:
                yield name, json.loads(data)
