"""A sandbox provider for Inspect: sandbox="demesne", sandbox=("demesne", "IMAGE"), ("demesne", "Containerfile") or
SandboxEnvironmentSpec("demesne", DemesneConfig(...)). pip install demesne[inspect] registers it.

Each sample has one sandbox, without a network unless its configuration allows one.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult, OutputLimitExceededError, SandboxConnection, SandboxEnvironment, SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits as Limits, SandboxUnavailableError, sandboxenv,
)
from inspect_ai.util._sandbox.compose import COMPOSE_FILES, is_compose_yaml
from pydantic import BaseModel

from . import _compose
from ._adapt import Arguments, check_file, raising
from ._async import AsyncSandbox, away
from ._errors import InvalidRequest, NotFound, SandboxLost, Unavailable
from ._client import build

WORKDIR = "/workspace"
Config = SandboxEnvironmentConfigType | None


class DemesneConfig(Arguments, frozen=True):
    """The arguments of Sandbox: sizes in bytes, and ttl in seconds. env has variables of all commands."""


@sandboxenv(name="demesne")
class DemesneSandboxEnvironment(SandboxEnvironment):
    """A sandbox of a sample."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    @classmethod
    def config_files(cls) -> list[str]:
        return [*COMPOSE_FILES, "Containerfile", "Dockerfile"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return DemesneConfig(**config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Config, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        group = f"inspect-{uuid.uuid4().hex[:12]}"
        services = await _services(config)
        made: dict[str, DemesneSandboxEnvironment] = {}
        try:
            with raising(SandboxUnavailableError, "make sandbox"):
                for name, (wanted, _) in services.items():
                    within = {"group": group, "name": name} if len(services) > 1 else {}
                    made[name if made else "default"] = cls(await AsyncSandbox.create(**wanted.model_dump(), **within))
                for environment, (_, argv) in zip(made.values(), services.values()):
                    if argv:  # it ends with the sandbox, and its output is not read
                        start = ["sh", "-c", '"$@" > /dev/null 2>&1 < /dev/null &', "sh", *argv]
                        await environment.sandbox.run(start, check=True)
        except BaseException:
            await cls.sample_cleanup(task_name, config, {**made}, True)
            raise
        return {**made}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Config, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        for environment in environments.values():
            await environment.as_type(DemesneSandboxEnvironment).sandbox.kill()

    async def exec(
        self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None,
        env: dict[str, str] | None = None, user: str | None = None, timeout: int | None = None,
        timeout_retry: bool = True, concurrency: bool = True,
    ) -> ExecResult[str]:
        try:
            done = await self.sandbox.run(
                cmd, input=input, cwd=posixpath.join(WORKDIR, cwd or ""), env=env, user=user, timeout=timeout,
                max_output=Limits.MAX_EXEC_OUTPUT_SIZE,
            )
        except InvalidRequest as error:  # the program cannot be executed
            if "/" in cmd[0] and await self.sandbox.files.exists(cmd[0]):
                raise PermissionError(f"{cmd[0]}: {error}") from error
            return ExecResult(False, 127, "", f"{cmd[0]}{f' as user {user}' if user else ''}: {error}")
        except (SandboxLost, NotFound, Unavailable) as error:
            raise SandboxUnavailableError(str(error)) from error
        if done.reason == "timed-out":
            raise TimeoutError(f"command timed out after {timeout} seconds: {cmd[0]}")
        if done.truncated:
            raise OutputLimitExceededError(Limits.MAX_EXEC_OUTPUT_SIZE_STR, done.stdout)
        return ExecResult(done.ok, done.exit_code, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        check_file(await self.sandbox.stat(file), file, reads=False)
        with raising(PermissionError, file):
            await self.sandbox.files.write(file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        size = check_file(await self.sandbox.stat(file), file, reads=True)
        if size > Limits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(Limits.MAX_READ_FILE_SIZE_STR, None)
        with raising(PermissionError, file):
            data: bytes = await self.sandbox.files.read(file)
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        command = f"demesne exec {'--user ' + user + ' ' if user else ''}{self.sandbox.id} sh"
        return SandboxConnection(type="demesne", command=command, container=self.sandbox.id)


async def _services(config: Config) -> dict[str, tuple[DemesneConfig, list[str]]]:
    """The sandboxes that a task asks for, with their commands: by an image, a Containerfile or a compose file."""
    if isinstance(config, DemesneConfig):
        return {"default": (config, [])}
    if config is not None and not isinstance(config, str):
        raise ValueError(f"{type(config).__name__}: not supported by demesne: name a file")
    services: dict[str, _compose.Service] = {"default": ({"image": config}, None, [])}
    if config and is_compose_yaml(config):
        services = _compose.read(config)
    elif config and os.path.isfile(config):
        if os.path.basename(config) not in DemesneSandboxEnvironment.config_files():
            raise ValueError(f"{config}: not supported by demesne: name an image, a Containerfile or a compose file")
        services = {"default": ({}, os.path.split(config), [])}
    for arguments, built, _ in services.values():
        if built:
            directory = os.path.realpath(built[0])
            name = uuid.uuid5(uuid.NAMESPACE_URL, os.path.join(directory, built[1])).hex
            arguments["image"] = f"local/inspect-{name}"
            await away(build, directory, arguments["image"], file=built[1])
    return {name: (DemesneConfig(**arguments), argv) for name, (arguments, _, argv) in services.items()}
