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
from ._sandbox import CommandFailed as CommandFailed, Files as Files, Output as Output, Result as Result, Sandbox as Sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._async import AsyncFiles as AsyncFiles, AsyncSandbox as AsyncSandbox
    from ._client import Client as Client, build as build

__version__ = "0.1.0"
_LATER = {"AsyncFiles": "_async", "AsyncSandbox": "_async", "Client": "_client", "build": "_client"}  # their imports take long


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("." + _LATER[name], __name__), name)
