from ._async import AsyncFiles as AsyncFiles, AsyncSandbox as AsyncSandbox
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
from ._sandbox import Client as Client, Files as Files, Result as Result, Sandbox as Sandbox

__version__: str
