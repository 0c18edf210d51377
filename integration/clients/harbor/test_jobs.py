"""Jobs of Harbor's own program with its oracle agent, on the package's environment and on Harbor's own one for E2B.

The tasks have the shapes of its template: the verifier in the agent's sandbox, one of its own, and networks per phase.
"""

import json
import os
import subprocess
import sys
import threading

import demesne
import pytest
from badinput import other_server  # noqa: F401

IMAGE = os.environ["DEMESNE_TEST_IMAGE"]
DOCKERFILE = f"FROM {IMAGE}\nRUN echo made > /made\nWORKDIR /app\n"
REWARD = "#!/bin/bash\nif {check}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
PROBE = "curl -sf -m 10 http://a.example/; python3 -c 'import socket; socket.create_connection((\"b.example\", 80), 5)'"

SHARED = {
    "task.toml": 'schema_version = "1.4"\n[environment]\ncpus = 1\nmemory_mb = 512\n[environment.env]\nWHO = "task"\n',
    "environment/Dockerfile": DOCKERFILE,
    "solution/solve.sh": '#!/bin/bash\necho "$WHO $(cat /made) $(pwd)" > answer.txt\n',
    "tests/test.sh": REWARD.format(check='[ "$(cat answer.txt)" = "task made /app" ]'),
}
SEPARATE = {
    "task.toml": 'schema_version = "1.4"\nartifacts = ["/app/answer.txt"]\n[verifier]\nenvironment_mode = "separate"\n',
    "environment/Dockerfile": DOCKERFILE,
    "solution/solve.sh": "#!/bin/bash\necho 42 > answer.txt\n[ ! -e /expected ]\n",
    "tests/Dockerfile": DOCKERFILE + "COPY . /tests/\nRUN echo 42 > /expected\n",
    "tests/test.sh": REWARD.format(check="cmp /expected /app/answer.txt"),
}
NETWORK = {
    "task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "public"\n[agent]\nnetwork_mode = "no-network"\n'
    '[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.example"]\n',
    "environment/Dockerfile": DOCKERFILE,
    "solution/solve.sh": f"#!/bin/bash\n({PROBE}) || echo closed > answer.txt\n",
    "tests/test.sh": REWARD.format(check=f'[ "$(cat answer.txt)" = closed ] && ! ({PROBE})'),
}
# The agent leaves a process, and a file where the verifier's results go.
CHEATING = {
    "task.toml": 'schema_version = "1.4"\n[verifier]\nnetwork_mode = "no-network"\n',
    "environment/Dockerfile": DOCKERFILE,
    "solution/solve.sh": "#!/bin/bash\necho 42 > answer.txt; touch /logs/verifier/planted\nnohup sleep 600 > /dev/null 2>&1 < /dev/null &\n",
    "tests/test.sh": REWARD.format(check="[ $(cat answer.txt) = 42 ] && [ ! -e /logs/verifier/planted ] && ! pgrep sleep"),
}
MANY = SHARED | {
    "solution/solve.sh": "#!/bin/bash\nmkdir /logs/agent/many && cd /logs/agent/many && seq 10000 | xargs touch\n",
    "tests/test.sh": REWARD.format(check='[ "$(ls /tests/many | wc -l)" = 10000 ]'),
} | {f"tests/many/{n}": str(n) for n in range(10_000)}
SLEEPING = SHARED | {"solution/solve.sh": "#!/bin/bash\nsleep 600\n"}
REFUSED = SHARED | {"environment/docker-compose.yaml": "services:\n  main:\n    build: .\n"}
REFUSED = {name: text for name, text in REFUSED.items() if name != "environment/Dockerfile"}
FAILING = SHARED | {"environment/Dockerfile": f"FROM {IMAGE}\nRUN exit 7\n"}


def write(directory, files):
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (directory / "instruction.md").write_text("Solve it.\n")


def harbor(tmp_path, environment, *more, **tasks):
    """Runs a job, and returns the result of each trial by its task."""
    for name, files in tasks.items():
        write(tmp_path / "tasks" / name, files)
    argv = [os.path.join(os.path.dirname(sys.executable), "harbor"), "run", "-p", str(tmp_path / "tasks"), "-a", "oracle"]
    argv += ["-e", environment, "-o", str(tmp_path / "jobs"), "--quiet", "--yes", "-n", "3", "--max-retries", "0", *more]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=300, env=os.environ | {"COLUMNS": "400"})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    results = [json.loads(path.read_text()) for path in tmp_path.glob("jobs/*/*/result.json")]
    return {result["task_name"].rpartition("/")[2]: result for result in results}


def rewards(results):
    def of(result):
        if error := result["exception_info"]:
            return f"{error['exception_type']}: {error['exception_message']}"
        return result["verifier_result"]["rewards"]["reward"]

    return {name: of(result) for name, result in results.items()}


@pytest.mark.parametrize("environment", ["demesne.harbor:DemesneEnvironment", "e2b"])
def test_tasks(tmp_path, environment):
    results = harbor(tmp_path, environment, shared=SHARED, separate=SEPARATE, network=NETWORK)
    assert rewards(results) == {"shared": 1, "separate": 1, "network": 1}


@pytest.mark.parametrize("fork", [False, True])
def test_fork(tmp_path, fork):
    """A verifier in a fork has the agent's files, and none of its processes."""
    got = harbor(tmp_path, "demesne.harbor:DemesneEnvironment", "--ek", f"fork_verifier={str(fork).lower()}", cheating=CHEATING)
    assert rewards(got) == {"cheating": float(fork)}


def test_refused(tmp_path):
    with pytest.raises(AssertionError, match="docker-compose.yaml: not supported by demesne"):
        harbor(tmp_path, "demesne.harbor:DemesneEnvironment", refused=REFUSED)


def test_failing_build(tmp_path):
    got = rewards(harbor(tmp_path, "demesne.harbor:DemesneEnvironment", failing=FAILING))
    assert "SandboxBuildFailedError" in str(got["failing"]) and "RUN exit 7" in str(got["failing"])


def test_many_files(tmp_path):
    """10,000 files to the sandbox, and 10,000 from it."""
    assert rewards(harbor(tmp_path, "demesne.harbor:DemesneEnvironment", many=MANY)) == {"many": 1}
    assert len(list(tmp_path.glob("jobs/*/*/agent/many/*"))) == 10_000


def test_gone(tmp_path, other_server, monkeypatch):
    """The server ends in the middle of a command. Harbor has no type of its own for that."""
    monkeypatch.setenv("DEMESNE_URL", other_server.url)
    monkeypatch.setenv("DEMESNE_TOKEN", other_server.token)

    def end():
        client = demesne.Client(other_server.url, other_server.token)
        while not any("sleep 600" in process["command"] for one in client.sandboxes() for process in processes(one["id"], client)):
            if done.wait(0.2):
                return
        other_server.kill()

    def processes(id, client):
        try:
            return demesne.Sandbox.connect(id, client).processes()
        except demesne.DemesneError:  # it is not yet made
            return []

    done = threading.Event()
    ending = threading.Thread(target=end)
    ending.start()
    try:
        got = harbor(tmp_path, "demesne.harbor:DemesneEnvironment", sleeping=SLEEPING)
    finally:
        done.set()
        ending.join()
    assert "SandboxLost" in rewards(got)["sleeping"] and "see the server's log" in rewards(got)["sleeping"]
