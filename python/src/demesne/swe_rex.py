"""A deployment for SWE-ReX, as SWE-agent uses it: DemesneDeployment("local/swe", memory=2 << 30).

pip install demesne[swe-rex] installs what it needs. The program swerex-remote must be in the image, in mounts, or named
by command.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Sequence
from typing import Any

from swerex.deployment.remote import RemoteDeployment
from swerex.exceptions import DeploymentStartupError
from swerex.runtime.abstract import IsAliveResponse

from ._async import AsyncSandbox
from ._errors import DemesneError, SandboxLost

PORT = 8000  # within the sandbox


class DemesneDeployment(RemoteDeployment):
    """Runs SWE-ReX's server in a sandbox, whose port it publishes to this machine.

    image and options are the arguments of Sandbox. command is the program and its first arguments. start raises
    DeploymentStartupError if the sandbox cannot be made, or the server does not answer within startup_timeout seconds.
    """

    def __init__(
        self, image: str | None = None, *, command: Sequence[str] = ("swerex-remote",), startup_timeout: float = 180.0,
        timeout: float = 60.0, logger: logging.Logger | None = None, **options: Any,
    ) -> None:
        super().__init__(logger=logger, auth_token=secrets.token_hex(16), timeout=timeout)
        self._image, self._options, self._command = image, options, list(command)
        self._startup_timeout = startup_timeout
        self.sandbox: AsyncSandbox | None = None
        self._server: asyncio.Task[Any] | None = None

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        alive = await self.runtime.is_alive(timeout=timeout)
        if not alive and self._server:
            await asyncio.wait([self._server], timeout=timeout or 1)  # its connection may end a moment later
            if self._server.done() and (lost := self._server.exception()):
                return IsAliveResponse(is_alive=False, message=str(lost))
        return alive

    async def start(self) -> None:
        try:
            self._hooks.on_custom_step("Starting sandbox")
            self.sandbox = await AsyncSandbox.create(self._image, **self._options)
            host, _, port = (await self.sandbox.publish(PORT)).rpartition(":")
            self._hooks.on_custom_step("Starting runtime")
            argv = [*self._command, "--auth-token", self._config.auth_token, "--port", str(PORT)]
            self._server = asyncio.ensure_future(self.sandbox.run(argv, max_output=1 << 16))
            self._config.host, self._config.port = f"http://{host}", int(port)
            await super().start()
            await self._answers(self._server)
        except BaseException as error:
            await self.stop()
            if isinstance(error, (DemesneError, TimeoutError)):
                raise DeploymentStartupError(str(error)) from error
            raise

    async def _answers(self, server: asyncio.Task[Any]) -> None:
        """Waits for the server. Raises TimeoutError, or SandboxLost if it ended."""
        end = asyncio.get_running_loop().time() + self._startup_timeout
        while not await self.runtime.is_alive(timeout=1):
            if server.done():
                done = server.result()  # raises the error of a program that does not exist
                raise SandboxLost(f"{self._command[0]} ended: {done.stderr.strip()[-1000:] or done.reason}")
            if asyncio.get_running_loop().time() > end:
                raise TimeoutError(f"{self._command[0]} does not answer within {self._startup_timeout} s")
            await asyncio.wait([server], timeout=0.05)

    async def stop(self) -> None:
        """Ends the sandbox. It is no error if nothing was started."""
        sandbox, server = self.sandbox, self._server
        self._runtime = self.sandbox = self._server = None
        if sandbox:
            with contextlib.suppress(DemesneError):  # its time to live ends it
                await sandbox.kill()
        if server:
            await asyncio.gather(server, return_exceptions=True)
