"""The same for asyncio. Each call runs in a thread of its own; a call that is cancelled ends its command."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor

from ._sandbox import MAX_OUTPUT, Client, Files, Result, Sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

_threads = ThreadPoolExecutor(1024, "demesne")


async def _away(call: Callable[..., T], *args: Any, **options: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads, functools.partial(call, *args, **options))


class AsyncFiles:
    """Files of a sandbox: the methods of Files, to be awaited."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return functools.partial(_away, getattr(self._files, name))


class AsyncSandbox:
    """A sandbox for asyncio. It is made by await AsyncSandbox.create(...) or in an async with statement; arguments, methods
    and errors are those of Sandbox, and each method is to be awaited.
    """

    def __init__(self, image: str | None = None, **options: Any) -> None:
        self._arguments: tuple[str | None, dict[str, Any]] = (image, options)
        self.sandbox: Sandbox

    @classmethod
    async def create(cls, image: str | None = None, **options: Any) -> AsyncSandbox:
        """Makes a sandbox, with the arguments of Sandbox."""
        return await cls(image, **options).__aenter__()

    @classmethod
    async def connect(cls, id: str, client: Client | None = None) -> AsyncSandbox:
        """Returns a sandbox by its id or name. Raises NotFound."""
        return cls._of(await _away(Sandbox.connect, id, client))

    @classmethod
    def _of(cls, sandbox: Sandbox) -> AsyncSandbox:
        made = cls()
        made.sandbox, made.files = sandbox, AsyncFiles(sandbox.files)
        return made

    async def __aenter__(self) -> AsyncSandbox:
        if "sandbox" not in self.__dict__:
            image, options = self._arguments
            self.sandbox = await _away(Sandbox, image, **options)
            self.files = AsyncFiles(self.sandbox.files)
        return self

    async def __aexit__(self, *_: object) -> None:
        await _away(self.sandbox.kill)

    @property
    def id(self) -> str:
        return self.sandbox.id

    async def run(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        user: str | None = None, input: str | bytes | None = None, timeout: float | None = None, check: bool = False,
        max_output: int = MAX_OUTPUT,
    ) -> Result:
        """Runs a command as Sandbox.run does. Cancelling the call ends the command."""
        output = await _away(self.sandbox.stream, command, cwd=cwd, env=env, user=user, input=input, timeout=timeout)
        try:
            return await _away(output.result, check, max_output)
        except asyncio.CancelledError:
            output.close()
            raise

    async def fork(self, name: str | None = None) -> AsyncSandbox:
        """Returns a new sandbox with the files of this one."""
        return self._of(await _away(self.sandbox.fork, name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "sandbox":
            raise AttributeError(name)
        return functools.partial(_away, getattr(self.sandbox, name))
