"""Rootless sandboxes on this Linux machine.

    from demesne import Sandbox

    with Sandbox() as sandbox:
        print(sandbox.run("id").stdout)

Sizes are bytes and times are seconds. Every error is a subclass of DemesneError. A command that fails is a Result and not an
error; a sandbox that ends during a command raises SandboxLost.
"""

from ._errors import (
    CommandFailed as CommandFailed,
    Conflict as Conflict,
    DemesneError as DemesneError,
    InvalidRequest as InvalidRequest,
    NotFound as NotFound,
    Refused as Refused,
    SandboxLost as SandboxLost,
    TooMany as TooMany,
    Unavailable as Unavailable,
)
from ._sandbox import Client as Client, Files as Files, Output as Output, Result as Result, Sandbox as Sandbox, build as build

__version__ = "0.1.0"


def __getattr__(name: str):
    # asyncio takes longer to import than the rest of the package.
    if name in ("AsyncSandbox", "AsyncFiles"):
        from . import _async

        return getattr(_async, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
