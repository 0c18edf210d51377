"""An environment for Harbor. pip install demesne[harbor] installs what it needs; a job names it by its import path:

    harbor run --environment-import-path demesne.harbor:DemesneEnvironment -p tasks -a oracle

A task's Dockerfile is built by demesne. Network modes hold for each phase; an allowlist has names, *.names and
addresses. GPUs and compose files are refused. With --ek fork_verifier=true the verifier of a shared environment works
in a fork, which has the agent's files and none of its processes; the agent's sandbox never gets the tests.
"""

from __future__ import annotations

import asyncio
import io
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, EnvironmentPath, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import COMPOSE_FILE_NAME, effective_exec_cwd, require_agent_environment_definition
from harbor.environments.definition import should_use_prebuilt_docker_image as prebuilt
from harbor.environments.tar_transfer import extract_dir, pack_dir_to_bytes
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.paths import EnvironmentPaths

from ._adapt import CLOSED, address, pack, raising, unpack
from ._async import AsyncSandbox, away
from ._errors import DemesneError
from ._client import build

PATHS = EnvironmentPaths()


class DemesneEnvironment(BaseEnvironment):
    """ttl: seconds that the sandbox may stay unused. fork_verifier: see above."""

    def __init__(self, *args: Any, ttl: int = 86400, fork_verifier: bool = False, **kwargs: Any) -> None:
        self._ttl, self._forks = ttl, fork_verifier
        self._alive: list[AsyncSandbox] = []  # the agent's sandbox, and the verifier's fork of it
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "demesne"

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        names = ("hostnames", "wildcard_hostnames", "ipv4_addresses", "ipv6_addresses", "ipv4_cidrs", "ipv6_cidrs")
        allowlist = {f"network_allowlist_{name}": True for name in names} | {"network_allowlist": True}
        return EnvironmentCapabilities(disable_internet=True, dynamic_network_policy=True, **allowlist)

    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        if not self.task_env_config.docker_image and (self.environment_dir / COMPOSE_FILE_NAME).exists():
            raise ValueError(f"{self.environment_dir / COMPOSE_FILE_NAME}: not supported by demesne: use a Dockerfile")

    @property
    def sandbox(self) -> AsyncSandbox:
        if not self._alive:
            raise RuntimeError("the environment is not started")
        return self._alive[-1]

    def _rules(self, policy: NetworkPolicy) -> dict[str, Any]:
        if policy.network_mode == NetworkMode.PUBLIC:
            return {"mode": "open"}
        return {"mode": "none", "allow": [_rule(host) for host in policy.allowed_hosts] or [CLOSED]}

    async def start(self, force_build: bool) -> None:
        image = self.task_env_config.docker_image
        if not image or not prebuilt(self.environment_dir, docker_image=image, force_build=force_build):
            image = f"local/harbor-{self.environment_id}"
            with raising(SandboxBuildFailedError):
                await away(build, self.environment_dir, image)
        sizes = (("memory", self._effective_memory_mb), ("disk", self._effective_storage_mb))
        wanted = self._rules(self.network_policy) | {key: size << 20 for key, size in sizes if size}
        wanted |= {"network": wanted.pop("mode"), "cpus": self._effective_cpus, "ttl": self._ttl}
        self._alive = [await AsyncSandbox.create(image, env=self._startup_env(), **wanted)]
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        for sandbox in self._alive:
            await sandbox.set_network(**self._rules(network_policy))

    async def stop(self, delete: bool) -> None:
        while self._alive:
            made = self._alive.pop()
            try:
                await (made.kill() if delete or self._alive else made.stop())  # a fork always ends
            except DemesneError as error:  # its time to live ends it
                self.logger.error(f"stop sandbox {made.id}: {error}")

    async def exec(
        self, command: str, cwd: str | None = None, env: dict[str, str] | None = None, timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command. Raises SandboxLost if the sandbox or the server ended, and TimeoutError after timeout_sec."""
        user, where = self._resolve_user(user), effective_exec_cwd(cwd, self.task_env_config.workdir, None)
        done = await self.sandbox.run(
            ["bash", "-c", command], cwd=where, env=self._merge_env(env), timeout=timeout_sec,
            user=None if user is None else str(user),
        )
        if done.reason == "timed-out":
            raise TimeoutError(f"command timed out after {timeout_sec} seconds")
        if callback := self._output_callback():
            await callback(done.stdout, "stdout")
            await callback(done.stderr, "stderr")
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self.sandbox.files.write(target_path, await asyncio.to_thread(Path(source_path).read_bytes))

    async def empty_dirs(self, dirs: Sequence[EnvironmentPath], *, chmod: bool = True) -> ExecResult | None:
        if str(PATHS.tests_dir) in map(str, dirs) and len(self._alive) > 1:  # before each verifier and the next agent
            await self._alive.pop().kill()
        return await super().empty_dirs(dirs, chmod=chmod)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        if self._forks and len(self._alive) == 1 and target_dir == str(PATHS.tests_dir):
            self._alive.append(await self.sandbox.fork())
            await self.empty_dirs([PATHS.verifier_dir])  # which a process of the agent may have written again
        data = await asyncio.to_thread(pack_dir_to_bytes, source_dir)
        await unpack(self.sandbox, target_dir, data.getvalue(), "--no-same-owner")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await asyncio.to_thread(Path(target_path).write_bytes, await self.sandbox.files.read(source_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        archive = await pack(self.sandbox, source_dir)
        await asyncio.to_thread(extract_dir, io.BytesIO(archive), target_dir)


def _rule(host: str) -> str:
    """An entry of an allowlist as a rule: an address or a range stands for all of its ports."""
    try:
        network = ipaddress.ip_network(host)
    except ValueError:
        return host
    return address(str(network.network_address if network.num_addresses == 1 else network))
