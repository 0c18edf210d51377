"""The same calls of verifiers' runtime contract on the package's runtime, and on verifiers' own E2B runtime."""

import os

import pytest
from demesne.verifiers import DemesneConfig, DemesneRuntime
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import E2BConfig, make_runtime


@pytest.fixture(params=["demesne", "e2b"])
async def runtime(request):
    image = os.environ["DEMESNE_TEST_IMAGE"]
    if request.param == "e2b":
        runtime = make_runtime(E2BConfig(image=image, allow=["a.example"]))
    else:
        runtime = DemesneRuntime(DemesneConfig(image=image, allow=["a.example"]))
    runtime.env = {"TASK": "of the task"}
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()
    assert runtime.stopped


async def test_run(runtime):
    done = await runtime.run(["sh", "-c", 'echo "$TASK $OWN"; pwd; echo err >&2; exit 3'], {"OWN": "own"})
    assert (done.exit_code, done.stdout, done.stderr) == (3, "of the task own\n/app\n", "err\n")
    assert (await runtime.run(["printf", "%s", "a b'\"$"], {})).stdout == "a b'\"$"
    assert await runtime.alive()


async def test_run_program(runtime):
    done = await runtime.run_program(["sh", "-c", "seq 100000 | tail -1; exit 4"], {})
    assert (done.exit_code, done.stdout) == (4, "100000\n")


async def test_files(runtime):
    data = bytes(range(256)) * 4096
    await runtime.write("deep/data", data)
    assert await runtime.read("deep/data") == data
    assert await runtime.read("/app/deep/data", max_bytes=len(data)) == data
    with pytest.raises(SandboxError, match="over the 10 byte limit"):
        await runtime.read("deep/data", max_bytes=10)
    with pytest.raises(SandboxError):
        await runtime.read("missing")
    with pytest.raises(SandboxError):
        await runtime.read("missing", max_bytes=10)


async def test_background(runtime):
    await runtime.run_background(["sh", "-c", "echo started; sleep 60"], {}, "log")
    done = await runtime.run(["sh", "-c", "until grep started log; do sleep 0.05; done"], {})
    assert done.exit_code == 0


async def test_network(runtime):
    """Setup may reach every public name, and execution only the names of the configuration and of the framework."""
    assert runtime.network_restricted
    await runtime.prepare_setup()
    await runtime.prepare_execution(["http://framework.example:80/path"])
    done = await runtime.run(["curl", "-sf", "-m", "10", "http://b.example/"], {})
    assert done.exit_code != 0
    await runtime.prepare_setup()
    await runtime.prepare_execution(None)


async def test_uv_script(runtime):
    """What verifiers prepares scripts with: uv itself needs a network, so a stub stands for it."""
    stub = '#!/bin/sh\ncase "$*" in *--help*) echo " --script ";; "python find"*) command -v python3;; esac\n'
    await runtime.write("/usr/local/bin/uv", stub.encode())
    assert (await runtime.run(["chmod", "755", "/usr/local/bin/uv"], {})).exit_code == 0
    done = await runtime.run_uv_script("import sys; print(sys.argv[1:])", ["a", "b c"])
    assert done.stdout == "['a', 'b c']\n", done


async def test_user(runtime):
    if not runtime.supports_user:
        pytest.skip("verifiers runs no command as another user here")
    runtime.env = {}
    user = runtime.with_user("user", "/home/user")
    assert (await user.run(["sh", "-c", "id -un; echo $HOME"], {})).stdout == "user\n/home/user\n"
    await user.write("/tmp/own", b"x")
    assert (await user.run(["stat", "-c", "%U", "/tmp/own"], {})).stdout == "user\n"
    assert await user.read("/tmp/own") == b"x"


async def test_expose(runtime):
    if not runtime.is_local:
        pytest.skip("needs a domain with TLS")
    await runtime.run_background(["python3", "-m", "http.server", "8000"], {}, "log")
    await runtime.run(["sh", "-c", "until curl -s localhost:8000; do sleep 0.05; done"], {})
    import urllib.request

    with urllib.request.urlopen(await runtime.expose(8000)) as answer:
        assert answer.status == 200
