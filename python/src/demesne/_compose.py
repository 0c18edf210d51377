"""Compose files of evaluations, as the arguments of Sandbox. What demesne cannot enforce is refused with its line."""

from __future__ import annotations

import os
import re
import shlex
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from ._adapt import address

OTHERS = re.compile(r"x-(?!inspect-network$|inspect_docker_sandbox$)")  # keys of other programs
WORDS = {
    "dict_type": "must be a mapping", "model_type": "must be a mapping", "list_type": "must be a list",
    "string_type": "must be a text or a number", "extra_forbidden": "not supported by demesne",
    "literal_error": "not supported by demesne",
}
Service = tuple[dict[str, Any], tuple[str, str] | None, list[str]]  # arguments of Sandbox and build, and argv


def _size(text: str) -> int:
    if not (size := re.fullmatch(r"(\d+)([kmg]?)b?", text.lower())):
        raise ValueError("must be a number of bytes, such as 512m")
    return int(size[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[size[2]]


def _value(text: str) -> str:
    if "$" in text.replace("$$", ""):
        raise ValueError("variables of this machine are not supported by demesne")
    return text.replace("$$", "$")


def _either(of: type, made: Any) -> BeforeValidator:
    """A value that may have another form."""
    return BeforeValidator(lambda value: made(value) if isinstance(value, of) else value)


Argv = Annotated[list[str], _either(str, shlex.split)]
Variables = _either(list, lambda pairs: dict(str(pair).partition("=")[::2] for pair in pairs))


class _Part(BaseModel, extra="forbid"):
    ignored: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {k: v for k, v in data.items() if k not in cls.ignored and not OTHERS.match(k)}


class _Build(_Part):
    context: str = "."
    dockerfile: str = "Dockerfile"


class _Service(_Part):
    ignored = ("init", "tty", "stdin_open", "restart", "stop_grace_period")
    image: str | None = None
    build: Annotated[_Build | None, _either(str, lambda context: {"context": context})] = None
    entrypoint: Argv = []
    command: Argv = []
    environment: Annotated[dict[str, Annotated[str, AfterValidator(_value)]], Variables] = {}
    cpus: float | None = None
    mem_limit: Annotated[str, AfterValidator(_size)] | None = None
    pids_limit: int | None = None
    network_mode: Literal["none", "bridge"] | None = None
    depends_on: list[str] = []  # all sandboxes exist before the first command starts; a condition is refused


class _Port(_Part):
    domain: str
    port: int
    protocol: Literal["TCP", "tcp"] = "TCP"


class _Network(_Part):
    allow_domains: list[str] = []
    allow_cidr: list[str] = []
    allow_domains_ports: list[_Port] = []


class _File(_Part):
    ignored = ("version", "name")
    services: dict[str, _Service] = {}
    network: _Network | None = Field(None, alias="x-inspect-network")


def read(file: str) -> dict[str, Service]:
    """Returns the services of a file, first the one called default. Raises ValueError with the line that is refused."""
    with open(file) as stream:
        text = stream.read()
    try:
        found = _File.model_validate(yaml.load(text, yaml.BaseLoader) or {})  # all of its scalars are texts
    except ValidationError as error:
        raise _refused(file, text, error.errors()[0]) from None
    if not found.services:
        raise ValueError(f"{file}: no services")
    shared: dict[str, Any] = {}
    if rules := found.network:
        allow = [name for name in rules.allow_domains if name != "*"] + [address(one) for one in rules.allow_cidr]
        allow += [f"{one.domain}:{one.port}" for one in rules.allow_domains_ports]
        shared = {"network": "open" if "*" in rules.allow_domains else "none", "allow": allow}
    services = sorted(found.services.items(), key=lambda one: one[0] != "default")
    return {name: _service(os.path.dirname(file), one, shared) for name, one in services}


def _service(directory: str, one: _Service, shared: dict[str, Any]) -> Service:
    arguments = {"image": one.image, "env": one.environment, "cpus": one.cpus, "memory": one.mem_limit}
    arguments |= {"pids": one.pids_limit, "network": {"bridge": "open"}.get(one.network_mode, one.network_mode)}
    built = one.build and (os.path.join(directory, one.build.context), one.build.dockerfile)
    return arguments | shared, built, one.entrypoint + one.command


def _refused(file: str, text: str, error: Any) -> ValueError:
    node, place = yaml.compose(text, yaml.BaseLoader), ""
    for part in error["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}"
        if isinstance(node, yaml.SequenceNode):
            node = node.value[part] if isinstance(part, int) else node
        elif isinstance(node, yaml.MappingNode):
            node = {key.value: value for key, value in node.value}.get(part, node)
    why = WORDS.get(error["type"], error["msg"].removeprefix("Value error, "))
    return ValueError(f"{file}:{node.start_mark.line + 1}: {place[1:]}: {why}")
