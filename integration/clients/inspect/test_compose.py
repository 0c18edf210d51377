"""Compose files of Inspect's tasks: their services, and what is refused with the line that names it."""

import os

import pytest
from demesne.inspect import DemesneSandboxEnvironment
from inspect_ai.util import SandboxUnavailableError

IMAGE = os.environ["DEMESNE_TEST_IMAGE"]
DEFAULT = f"services:\n  default:\n    image: {IMAGE}\n"


@pytest.fixture
def started(tmp_path):
    async def start(text):
        path = tmp_path / "compose.yaml"
        path.write_text(text)
        made = await DemesneSandboxEnvironment.sample_init("compose", str(path), {})
        environments.extend(made.values())
        assert next(iter(made)) == "default"
        return made["default"].as_type(DemesneSandboxEnvironment)

    environments = []
    yield start
    for environment in environments:
        environment.sandbox.sandbox.kill()


async def test_service(started, tmp_path):
    (tmp_path / "Tools").write_text(f"FROM {IMAGE}\nRUN echo built > /built\n")
    env = await started(
        "name: task\nservices:\n  default:\n    build: {context: ., dockerfile: Tools}\n    init: true\n    command: tail -f /dev/null\n"
        "    environment: [A=1, B=$$x]\n    cpus: 0.5\n    mem_limit: 512m\n    network_mode: none\n    x-local: true\n"
    )
    assert (await env.exec(["sh", "-c", "cat /built; echo $A $B"])).stdout == "built\n1 $x\n"
    limits = env.sandbox.sandbox.info()["limits"]
    assert (limits["memory"], limits["cpus"]) == (512 << 20, 0.5)


async def test_network(started):
    env = await started(
        DEFAULT + "x-inspect-network:\n  allow_domains: [a.example, '*.b.example']\n  allow_cidr: [1.1.1.1/32]\n"
        "  allow_domains_ports: [{domain: a.example, port: 22}]\n"
    )
    assert env.sandbox.sandbox.network()["allow"] == ["a.example", "*.b.example", "1.1.1.1/32:*", "a.example:22"]
    done = await env.exec(["curl", "-sf", "-m", "10", "http://c.example/"])
    assert not done.success


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DEFAULT + "    privileged: true\n", "compose.yaml:4: services.default.privileged: not supported by demesne"),
        (DEFAULT + "    volumes: ['/:/host']\n", "compose.yaml:4: services.default.volumes: not supported by demesne"),
        (DEFAULT + "    network_mode: host\n", "compose.yaml:4: services.default.network_mode: not supported by demesne"),
        (DEFAULT + "    mem_limit: much\n", "compose.yaml:4: services.default.mem_limit: must be a number of bytes, such as 512m"),
        (DEFAULT + "    environment: {A: '$HOME'}\n", "compose.yaml:4: services.default.environment.A: variables of this machine"),
        (DEFAULT + "networks: {}\n", "compose.yaml:4: networks: not supported by demesne"),
        (DEFAULT + "x-inspect-network: {allow_entities: [world]}\n", "compose.yaml:4: x-inspect-network.allow_entities: not supported"),
        (
            DEFAULT + "x-inspect-network:\n  allow_domains_ports: [{domain: a.example, port: 53, protocol: UDP}]\n",
            "compose.yaml:5: x-inspect-network.allow_domains_ports[0].protocol: not supported",
        ),
        ("services: []\n", "compose.yaml:1: services: must be a mapping"),
        ("", "no services"),
    ],
)
async def test_refused(started, text, said):
    with pytest.raises(ValueError) as refused:
        await started(text)
    assert said in str(refused.value)


async def test_services(started, tmp_path):
    """Services resolve each other by name, and other sandboxes do not."""
    serve = "    command: [python3, -m, http.server, '8000', --directory, /etc]\n"
    text = f"services:\n  db:\n    image: {IMAGE}\n{serve}  default:\n    image: {IMAGE}\n    depends_on: [db]\n"
    env = await started(text)
    fetch = ["curl", "-sf", "--retry", "20", "--retry-delay", "1", "--retry-all-errors", "http://db:8000/hostname"]
    assert (await env.exec(fetch)).success
    other = await started(DEFAULT)
    assert not (await other.exec(["curl", "-sf", "-m", "5", "http://db:8000/"])).success
    with pytest.raises(ValueError, match="compose.yaml:5: services.default.depends_on: must be a list"):
        await started(DEFAULT + "    init: true\n    depends_on: {db: {condition: service_healthy}}\n")


async def test_no_image(started):
    with pytest.raises(SandboxUnavailableError, match="none.test/image"):
        await started("services:\n  default:\n    image: none.test/image\n")
