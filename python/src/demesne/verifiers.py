"""A runtime for verifiers: DemesneRuntime(DemesneConfig(image="python", allow=["a.example"])).

pip install demesne[verifiers] installs what it needs. Setup has the network that the operator allows;
prepare_execution then restricts it to the configuration's.
"""

from __future__ import annotations

import contextlib
import posixpath
import shlex
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes.base import BaseRuntimeInfo, ProgramResult, Runtime, register

from ._adapt import raising
from ._async import AsyncSandbox
from ._errors import DemesneError


class DemesneConfig(NetworkPolicyConfig):
    """image is one of Sandbox. memory and disk are GB, as elsewhere in verifiers. ttl is in seconds. Without a network
    rule the sandbox has the mode setup_network also during execution.
    """

    type: Literal["demesne"] = "demesne"
    image: str | None = None
    workdir: str | None = None
    cpu: float | None = None
    memory: float | None = None
    disk: float | None = None
    setup_network: str = "open"
    ttl: int = 86400


class DemesneRuntimeInfo(DemesneConfig, BaseRuntimeInfo):
    pass


class DemesneRuntime(Runtime):
    supports_user: ClassVar[bool] = True

    def __init__(self, config: DemesneConfig, name: str | None = None) -> None:
        super().__init__(name)
        self.config = config.model_copy(update={"workdir": config.workdir or "/app"})
        self.info = DemesneRuntimeInfo(**self.config.model_dump())
        self._made: AsyncSandbox | None = None
        register(self)

    @property
    def sandbox(self) -> AsyncSandbox:
        if self._made is None:
            raise SandboxError("the runtime is not started")
        return self._made

    async def start(self) -> None:
        config, sizes = self.config, {"memory": self.config.memory, "disk": self.config.disk}
        limits = {key: int(size * (1 << 30)) for key, size in sizes.items() if size} | {"cpus": config.cpu}
        with raising(SandboxError, "make sandbox"):
            self._made = await AsyncSandbox.create(config.image, network=config.setup_network, ttl=config.ttl, **limits)
            await self.sandbox.files.make_dir(config.workdir)
        self.info.id = self.sandbox.id

    def cleanup(self) -> None:
        if self._made:
            with contextlib.suppress(DemesneError):  # its time to live ends it
                self._made.sandbox.kill()
            self._made = None

    async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
        with raising(SandboxError, f"run {argv[0]}"):
            done = await self.sandbox.run(argv, env=self.process_env(env), cwd=self.config.workdir, user=self.user)
        if done.reason not in ("exited", "signaled", "timed-out"):
            raise SandboxError(f"run {argv[0]}: ended by {done.reason} {done.detail}")
        if done.truncated:
            raise SandboxError(f"run {argv[0]}: more output than the bound: write it to a file")
        return ProgramResult(done.exit_code, done.stdout, done.stderr)

    async def run_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
        command = f"nohup {shlex.join(argv)} > {shlex.quote(log)} 2>&1 &"
        result = await self.run(["sh", "-c", command], env)
        if result.exit_code:
            raise SandboxError(f"start {argv[0]}: {result.stderr.strip()}")

    async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None or self.user:
            return await super()._read(path, 1 << 30 if max_bytes is None else max_bytes)
        with raising(SandboxError, f"read {path!r}"):
            return await self.sandbox.files.read(posixpath.join(self.config.workdir, path))

    async def write(self, path: str, data: bytes) -> None:
        path = posixpath.join(self.config.workdir, path)
        with raising(SandboxError, f"write {path!r}"):
            await self.sandbox.files.write(path, data)
        if self.user:
            await self.with_user(None).run(["chown", self.user, path], {})

    async def prepare_execution(self, routes: list[str] | None) -> None:
        if not self.network_restricted:
            return
        rules: dict[str, Any] = {"mode": self.config.setup_network}
        if routes is not None:
            rules["deny"] = [rule for rule in self.config.block if rule != "*"]
            if "*" not in self.config.allow:
                hosts = [urlsplit(route).netloc for route in routes]
                rules = {"allow": list(dict.fromkeys([*hosts, *self.config.allow]))}
        with raising(SandboxError, "restrict the network"):
            await self.sandbox.set_network(**rules)

    async def expose(self, port: int) -> str:
        with raising(SandboxError, f"publish port {port}"):
            return f"http://{await self.sandbox.publish(port)}"
