"""A sandbox client for the OpenAI Agents SDK. pip install demesne[openai-agents] installs what it needs.

RunConfig(sandbox=SandboxRunConfig(client=DemesneSandboxClient(), options=DemesneOptions(image="python"))) names it.
"""

from __future__ import annotations

import contextlib
import io
import uuid
from pathlib import Path
from typing import Literal

from agents.sandbox import errors
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import (
    BaseSandboxClient, BaseSandboxClientOptions, BaseSandboxSession, SandboxSession, SandboxSessionState,
)
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import validate_tar_bytes

from ._adapt import Arguments, pack, raising, unpack
from ._async import AsyncSandbox
from ._errors import DemesneError, NotFound, Unavailable

Account = str | User | None


class DemesneOptions(Arguments, BaseSandboxClientOptions, frozen=True):
    type: Literal["demesne"] = "demesne"
    ttl: int = 86400
    exposed_ports: tuple[int, ...] = ()


class DemesneSessionState(SandboxSessionState):
    type: Literal["demesne"] = "demesne"
    sandbox_id: str
    options: DemesneOptions


class DemesneSession(BaseSandboxSession):
    state: DemesneSessionState

    def __init__(self, sandbox: AsyncSandbox, state: DemesneSessionState) -> None:
        self.sandbox, self.state = sandbox, state

    async def exec(
        self, *command: str | Path, timeout: float | None = None, shell: bool | list[str] = True, user: Account = None
    ) -> ExecResult:
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._exec_internal(*argv, timeout=timeout, user=user)

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None, user: Account = None
    ) -> ExecResult:
        argv = [str(part) for part in command]
        script = ["sh", "-c", 'cd "$0" 2>/dev/null; exec "$@"', self.state.manifest.root]
        with raising(lambda error: errors.ExecTransportError(command=argv, cause=error, message=str(error))):
            done = await self.sandbox.run(script + argv, timeout=timeout, user=_name(user))
        if done.reason == "timed-out":
            raise errors.ExecTimeoutError(command=argv, timeout_s=timeout)
        return ExecResult(stdout=done.stdout_bytes, stderr=done.stderr_bytes, exit_code=done.exit_code)

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        about = {"port": port, "exposed_ports": self.state.exposed_ports, "reason": "backend_unavailable"}
        with raising(lambda error: errors.ExposedPortUnavailableError(**about, cause=error)):
            host, _, listen = (await self.sandbox.publish(port)).rpartition(":")
        return ExposedPortEndpoint(host=host, port=int(listen), tls=False)

    async def read(self, path: Path, *, user: Account = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        where = (await self._validate_path_access(path)).as_posix()
        kinds = {NotFound: errors.WorkspaceReadNotFoundError}
        with raising(lambda e: kinds.get(type(e), errors.WorkspaceArchiveReadError)(path=path, cause=e)):
            return io.BytesIO(await self.sandbox.files.read(where))

    async def write(self, path: Path, data: io.IOBase, *, user: Account = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        payload = coerce_write_payload(path=path, data=data)
        where = (await self._validate_path_access(path, for_write=True)).as_posix()
        with raising(lambda error: errors.WorkspaceArchiveWriteError(path=path, cause=error)):
            await self.sandbox.files.write(where, payload.stream.read())
        if name := _name(user):
            await self.sandbox.run(["chown", name, where], check=True)

    async def running(self) -> bool:
        try:
            return (await self.sandbox.info())["state"] == "running"
        except DemesneError:  # there is no sandbox, or no server
            return False

    async def persist_workspace(self) -> io.IOBase:
        skip = [f"--exclude=./{path.as_posix()}" for path in sorted(self._persist_workspace_skip_relpaths())]
        root = self._workspace_root_path()
        with raising(lambda e: errors.WorkspaceArchiveReadError(path=root, context={"reason": str(e)}, cause=e)):
            return io.BytesIO(await pack(self.sandbox, root.as_posix(), *skip))

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root, raw, wrong = self._workspace_root_path(), data.read(), (ValueError, OSError, DemesneError)
        with raising(lambda error: errors.WorkspaceArchiveWriteError(path=root, cause=error), only=wrong):
            validate_tar_bytes(raw, allow_external_symlink_targets=False)
            await unpack(self.sandbox, root.as_posix(), raw)

    async def _shutdown_backend(self) -> None:
        with contextlib.suppress(DemesneError):  # its time to live ends it
            await self.sandbox.kill()


def _name(user: Account) -> str | None:
    return user.name if isinstance(user, User) else user


def _unmade(error: DemesneError) -> Exception:
    return errors.WorkspaceStartError(path=Path("/"), cause=error, message=f"make sandbox: {error}")


class DemesneSandboxClient(BaseSandboxClient[DemesneOptions]):
    backend_id = "demesne"
    supports_default_options = True

    async def create(
        self, *, snapshot: SnapshotSpec | SnapshotBase | None = None, manifest: Manifest | None = None,
        options: DemesneOptions | None = None,
    ) -> SandboxSession:
        manifest, options = manifest or Manifest(), options or DemesneOptions()
        self._validate_manifest_for_create(manifest)
        session_id = uuid.uuid4()
        sandbox = await self._made(options)
        state = DemesneSessionState(
            session_id=session_id, manifest=manifest, snapshot=resolve_snapshot(snapshot, str(session_id)),
            sandbox_id=sandbox.id, options=options, exposed_ports=options.exposed_ports,
        )
        return self._wrap_session(DemesneSession(sandbox, state))

    async def _made(self, options: DemesneOptions) -> AsyncSandbox:
        with raising(_unmade):
            return await AsyncSandbox.create(**{key: getattr(options, key) for key in Arguments.model_fields})

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, DemesneSession):
            raise TypeError("DemesneSandboxClient.delete expects a session of this client")
        await inner.shutdown()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Finds the sandbox, or makes another one, whose workspace comes from the snapshot."""
        if not isinstance(state, DemesneSessionState):
            raise TypeError("DemesneSandboxClient.resume expects a state of this client")
        try:
            with raising(_unmade, only=Unavailable):
                sandbox, found = await AsyncSandbox.connect(state.sandbox_id), True
        except NotFound:
            sandbox, found = await self._made(state.options), False
            state.sandbox_id, state.workspace_root_ready = sandbox.id, False
        inner = DemesneSession(sandbox, state)
        inner._set_start_state_preserved(found)
        return self._wrap_session(inner)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, DemesneSessionState)
