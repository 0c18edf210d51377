"""The same for asyncio. Each call runs in a thread of its own; a call that is cancelled ends its command."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._client import Client
from ._sandbox import MAX_OUTPUT, Result, Sandbox

_threads = ThreadPoolExecutor(1024, "demesne")


async def away(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls a function in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_threads, functools.partial(call, *args, **options))


class AsyncFiles:
    """Files of a sandbox: the methods of Files, to be awaited."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(away, getattr(self._of, name))


class AsyncSandbox(AsyncFiles):
    """A sandbox for asyncio. It is made by await AsyncSandbox.create(...) or in an async with statement; arguments,
    methods and errors are those of Sandbox, and each method is to be awaited.
    """

    sandbox: Sandbox

    def __init__(self, image: str | None = None, **options: Any) -> None:
        self._make = functools.partial(Sandbox, image, **options)

    @classmethod
    async def create(cls, image: str | None = None, **options: Any) -> AsyncSandbox:
        """Makes a sandbox, with the arguments of Sandbox."""
        return await cls(image, **options)._made()

    @classmethod
    async def connect(cls, id: str, client: Client | None = None) -> AsyncSandbox:
        """Returns a sandbox by its id or name. Raises NotFound."""
        return await cls()._made(Sandbox.connect, id, client)

    async def _made(self, make: Callable[..., Sandbox] | None = None, *args: Any) -> AsyncSandbox:
        self.sandbox = self._of = await away(make or self._make, *args)
        self.id, self.files = self.sandbox.id, AsyncFiles(self.sandbox.files)
        return self

    async def __aenter__(self) -> AsyncSandbox:
        return self if "_of" in self.__dict__ else await self._made()

    async def __aexit__(self, *_: object) -> None:
        await away(self.sandbox.kill)

    async def run(
        self, command: str | Sequence[str], *, check: bool = False, max_output: int = MAX_OUTPUT, **options: Any
    ) -> Result:
        """Runs a command as Sandbox.run does, with its arguments. Cancelling the call ends the command."""
        output = await away(self.sandbox.stream, command, **options)
        try:
            return await away(output.result, check, max_output)
        except asyncio.CancelledError:
            output.close()
            raise

    async def fork(self, name: str | None = None) -> AsyncSandbox:
        """Returns a new sandbox with the files of this one."""
        return await AsyncSandbox()._made(self.sandbox.fork, name)
