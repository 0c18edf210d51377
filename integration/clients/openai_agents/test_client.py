"""Runs of the OpenAI Agents SDK with a scripted model, on the package's client and on the SDK's own one for E2B.

It runs in the directory of the SDK's sources, whose scripted model, capabilities and example it uses.
"""

import io
import os
import urllib.request
from pathlib import Path

import pytest
from agents import RunConfig, Runner
from agents.extensions.sandbox import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxType
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import Dir, File, LocalDir
from agents.sandbox.errors import ExecTimeoutError, ExecTransportError, WorkspaceReadNotFoundError, WorkspaceStartError
from demesne.openai_agents import DemesneOptions, DemesneSandboxClient
from examples.sandbox.extensions import e2b_runner
from tests.sandbox.integration_tests._helpers import SandboxFileCapability, read_workspace_text, write_workspace_text
from tests.sandbox.integration_tests.test_model import TestModel

IMAGE = os.environ["DEMESNE_TEST_IMAGE"]
ENTRIES = {"a.txt": File(content=b"a\n"), "tree": Dir(children={"b.txt": File(content=b"b\n")})}


@pytest.fixture(params=["demesne", "e2b"])
def backend(request):
    if request.param == "e2b":
        return E2BSandboxClient(), E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B, exposed_ports=(8000,))
    return DemesneSandboxClient(), DemesneOptions(image=IMAGE, exposed_ports=(8000,))


@pytest.fixture
async def session(backend, tmp_path):
    client, options = backend
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "c.txt").write_text("c\n")
    from agents.sandbox.workspace_paths import SandboxPathGrant

    manifest = Manifest(
        entries=ENTRIES | {"copied": LocalDir(src=tmp_path / "local")}, extra_path_grants=(SandboxPathGrant(path=str(tmp_path)),)
    )
    session = await client.create(manifest=manifest, options=options)
    async with session:
        yield session
    await client.delete(session)


async def test_exec(session):
    done = await session.exec("echo out; echo err >&2; exit 3")
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert (await session.exec("printf", "%s", "a b'", shell=False)).stdout == b"a b'"
    assert (await session.exec("cat a.txt tree/b.txt copied/c.txt")).stdout == b"a\nb\nc\n"
    assert (await session.exec("id -un", user="user")).stdout == b"user\n"
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 60", timeout=0.5)


async def test_files(session):
    data = bytes(range(256)) * 4096
    await session.write(Path("deep/data"), io.BytesIO(data))
    assert (await session.read(Path("deep/data"))).read() == data
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("missing"))
    assert {Path(entry.path).name for entry in await session.ls(".")} >= {"a.txt", "tree", "copied", "deep"}
    await session.rm("deep", recursive=True)
    assert await session.running()


async def test_port(session):
    await session.exec("python3 -m http.server 8000 > /dev/null 2>&1 & until curl -s localhost:8000 > /dev/null; do sleep 0.05; done")
    endpoint = await session.resolve_exposed_port(8000)
    assert not endpoint.tls
    # Names below localhost mean this machine, which only some resolvers know.
    address = "127.0.0.1" if endpoint.host.endswith(".localhost") else endpoint.host
    request = urllib.request.Request(f"http://{address}:{endpoint.port}/", headers={"Host": f"{endpoint.host}:{endpoint.port}"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


async def test_resume(backend, tmp_path):
    """A session that ended is restored from its snapshot, and one that lives on is found again."""
    client, options = backend
    first = await client.create(manifest=Manifest(entries=ENTRIES), snapshot=LocalSnapshotSpec(base_path=tmp_path), options=options)
    async with first:
        await write_workspace_text(first, "note.txt", "kept\n")
    state = client.deserialize_session_state(client.serialize_session_state(first.state))
    second = await client.resume(state)
    async with second:
        assert await read_workspace_text(second, "note.txt") == "kept\n"
        third = await client.resume(client.deserialize_session_state(client.serialize_session_state(second.state)))
        await third.start()
        assert await read_workspace_text(third, "tree/b.txt") == "b\n"
    await client.delete(second)


async def test_runner(backend):
    client, options = backend
    model = TestModel()
    model.queue_function_call("write_file", {"path": "note.txt", "content": "from the model\n"}, call_id="1")
    model.queue_function_call("read_file", {"path": "note.txt"}, call_id="2")
    model.queue_final_output("done")
    agent = SandboxAgent(name="agent", model=model, instructions="Use the tools.", capabilities=[SandboxFileCapability()])
    config = RunConfig(sandbox=SandboxRunConfig(client=client, options=options), tracing_disabled=True)
    result = await Runner.run(agent, "go", run_config=config)
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert outputs == ["wrote note.txt", "from the model\n"] and result.final_output == "done"


@pytest.mark.parametrize("persistence", ["tar", "snapshot"])
async def test_e2b_example(persistence):
    """The published example's own check, unchanged."""
    await e2b_runner._verify_stop_resume(
        sandbox_type="e2b", template=None, timeout=None, pause_on_exit=False, workspace_persistence=persistence
    )


async def test_errors():
    client = DemesneSandboxClient()
    with pytest.raises(WorkspaceStartError, match="none.test/image"):
        await client.create(options=DemesneOptions(image="none.test/image"))
    session = await client.create(options=DemesneOptions(image=IMAGE))
    await session.start()
    await session._inner.sandbox.kill()
    with pytest.raises(ExecTransportError, match="sandbox"):
        await session.exec("true")
    assert not await session.running()
