"""What the adapters share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ._async import AsyncSandbox
from ._errors import DemesneError, raising as raising

CLOSED = "none.invalid"  # a rule for a name that does not exist: set_network may open the sandbox's network later
MAX_ARCHIVE = 1 << 30  # bytes of a directory that is downloaded


class Arguments(BaseModel, frozen=True):
    """The arguments of Sandbox: sizes in bytes, and ttl in seconds. env has variables of all commands."""

    image: str | None = None
    env: dict[str, str] = {}
    cpus: float | None = None
    memory: int | None = None
    disk: int | None = None
    pids: int | None = None
    network: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ttl: int = 3600


def address(text: str) -> str:
    """A rule for all ports of an address or a range."""
    return f"[{text}]:*" if ":" in text else f"{text}:*"


def check_file(info: Mapping[str, Any] | None, path: str, reads: bool) -> int:
    """Returns the size of a file, or raises the error of a path that is not one. info is the path's Sandbox.stat."""
    if info is None:
        if reads:
            raise FileNotFoundError(f"{path}: no such file")
        return 0
    if info["is_dir"]:
        raise IsADirectoryError(f"{path} is a directory")
    if ("r" if reads else "w") not in info["mode"][1:4]:  # root may do it all the same, which no agent should see
        raise PermissionError(f"{path}: permission denied")
    return int(info["size"])


async def pack(sandbox: AsyncSandbox, directory: str, *options: str) -> bytes:
    """Returns a directory as a tar archive. options are for tar. Raises DemesneError above MAX_ARCHIVE bytes."""
    tar = ["tar", "-cf", "-", *options, "-C", directory, "."]
    done = await sandbox.run(tar, check=True, max_output=MAX_ARCHIVE)
    if done.truncated:
        raise DemesneError(f"{directory}: larger than {MAX_ARCHIVE} bytes: download parts of it")
    return done.stdout_bytes


async def unpack(sandbox: AsyncSandbox, directory: str, archive: bytes, *options: str) -> None:
    """Unpacks a tar archive into a directory, which it makes."""
    script = 'mkdir -p "$0" && tar -xf - -C "$0" "$@"'
    await sandbox.run(["sh", "-c", script, directory, *options], input=archive, check=True)
