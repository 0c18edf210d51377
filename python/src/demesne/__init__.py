"""Rootless sandboxes on this Linux machine.

    from demesne import Sandbox

    with Sandbox() as sandbox:
        print(sandbox.run("id").stdout)

Sizes are bytes and times are seconds. Every error is a subclass of DemesneError. A command that fails is a Result and
not an error; a sandbox that ends during a command raises SandboxLost.
"""

from ._errors import (
    Conflict as Conflict, DemesneError as DemesneError, InvalidRequest as InvalidRequest, NotFound as NotFound,
    Refused as Refused, SandboxLost as SandboxLost, TooMany as TooMany, Unavailable as Unavailable,
)
from ._sandbox import (
    Client as Client, CommandFailed as CommandFailed, Files as Files, Output as Output, Result as Result,
    Sandbox as Sandbox, build as build,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._async import AsyncFiles as AsyncFiles, AsyncSandbox as AsyncSandbox

__version__ = "0.1.0"


def __getattr__(name: str) -> type:
    if name not in ("AsyncSandbox", "AsyncFiles"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _async  # asyncio takes longer to import than the rest of the package

    return getattr(_async, name)
