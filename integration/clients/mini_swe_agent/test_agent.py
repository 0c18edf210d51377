"""mini-swe-agent's own agent and its environment for bubblewrap, whose executable is a file that runs demesne."""

import os

import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

# The environment's arguments are --bind DIRECTORY DIRECTORY --chdir DIRECTORY bash -c COMMAND.
PROGRAM = """#!/bin/sh
d=$2; shift 5; exec "$DEMESNE_BIN" run --image "$DEMESNE_TEST_IMAGE" --mount "$d:rw" --workdir "$d" -- "$@"
"""


@pytest.fixture
def environment(tmp_path):
    program = tmp_path / "bwrap"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return get_environment({"environment_class": "bubblewrap", "executable": str(program), "wrapper_args": [], "timeout": 60})


def test_execute(environment, tmp_path):
    """Files of its directory stay from one command to the next, and nothing else of this machine is there."""
    assert environment.execute({"command": "echo kept > a; echo err >&2; exit 3"}) | {"output": ""} == {
        "output": "", "returncode": 3, "exception_info": "",
    }
    found = environment.execute({"command": f"cat a; pwd; ls -d {tmp_path} /home/user"})
    assert found["output"].startswith(f"kept\n{environment.working_dir}\n") and "/home/user\n" in found["output"]
    assert f"'{tmp_path}': No such file" in found["output"]
    assert environment.execute({"command": "curl -sf -m 5 http://a.example/"})["returncode"] != 0


def test_timeout(environment):
    found = environment.execute({"command": "echo begun; sleep 60"}, timeout=3)
    assert found["returncode"] == -1 and found["extra"]["exception_type"] == "TimeoutExpired"


def test_agent(environment):
    """An agent with a scripted model solves its task, and submits it."""
    outputs = [
        make_output("I write.", [{"command": "echo 42 > answer.txt"}]),
        make_output("I submit.", [{"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat answer.txt; id -u"}]),
    ]
    agent = DefaultAgent(DeterministicModel(outputs=outputs), environment, system_template="You work.", instance_template="{{task}}")
    result = agent.run("Write the answer.")
    assert result["exit_status"] == "Submitted" and result["submission"].startswith("42\n"), result
    assert os.path.exists(environment.working_dir / "answer.txt")
