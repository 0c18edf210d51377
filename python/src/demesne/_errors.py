"""The errors of the package."""

from __future__ import annotations

import contextlib
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Kinds = type[Exception] | tuple[type[Exception], ...]


class DemesneError(Exception):
    """An error of demesne. status is the HTTP status of the answer, or 0 without one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unavailable(DemesneError):
    """No server answers, and none could be started; or the machine has no room (502, 503, 507)."""


class NotFound(DemesneError):
    """The sandbox, file or question does not exist (404)."""


class Conflict(DemesneError):
    """A name is in use, or the sandbox is in a state that does not allow the call (409)."""


class InvalidRequest(DemesneError):
    """An argument or a URL is wrong, or a program or an image does not exist (400, 413, 422)."""


class Refused(DemesneError):
    """The token is wrong, or only the operator may do this (401, 403)."""


class TooMany(DemesneError):
    """As many sandboxes or waiting commands as the operator allows (429)."""


class SandboxLost(DemesneError):
    """The sandbox, its runner or the server ended in a call. A command has no exit code, and may have had effects."""


KINDS: dict[int, type[DemesneError]] = {
    400: InvalidRequest, 401: Refused, 403: Refused, 404: NotFound, 409: Conflict, 413: InvalidRequest,
    422: InvalidRequest, 429: TooMany, 502: Unavailable, 503: Unavailable, 507: Unavailable,
}


def of_answer(status: int, text: bytes) -> DemesneError:
    """Returns the error that an answer means. Details that name what is wrong in a request are part of its text."""
    try:
        said = json.loads(text)
        details = [f"{one.get('location', '')}: {one.get('message', '')}" for one in said.get("data") or []]
        message = "; ".join([said.get("message", ""), *details])
    except (ValueError, AttributeError, TypeError):  # of another server
        message = text[:400].decode(errors="replace")
    return KINDS.get(status, DemesneError)(message, status)


@contextlib.contextmanager
def raising(made: Callable[[Any], Exception], what: str = "", only: Kinds = DemesneError) -> Iterator[None]:
    """Raises the framework's error that made returns in place of an error of demesne, or of the kinds that only names.
    made gets the error, or with what a text that begins with it.
    """
    try:
        yield
    except only as error:
        raise made(f"{what}: {error}" if what else error) from error
