"""Compose files of evaluations, as the arguments of Sandbox. What demesne cannot enforce is refused with its line."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import yaml

from ._adapt import address

IGNORED = {"init", "tty", "stdin_open", "restart", "stop_grace_period"}
UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class _Node:
    """A part of a file with its place, such as services.default.image."""

    def __init__(self, file: str, node: yaml.Node, place: str = "") -> None:
        self.file, self.node, self.place = file, node, place

    def refuse(self, why: str = "not supported by demesne") -> ValueError:
        return ValueError(f"{self.file}:{self.node.start_mark.line + 1}: {self.place}: {why}")

    def items(self) -> dict[str, _Node]:
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refuse("must be a mapping")
        return {k.value: _Node(self.file, v, f"{self.place}.{k.value}".lstrip(".")) for k, v in self.node.value}

    def each(self) -> list[_Node]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refuse("must be a list")
        return [_Node(self.file, v, f"{self.place}[{i}]") for i, v in enumerate(self.node.value)]

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.refuse("must be a text or a number")
        return str(self.node.value)

    def number(self) -> int:
        size = re.fullmatch(r"(\d+)([kmg]?)b?", self.text().lower())
        if not size:
            raise self.refuse("must be a number of bytes, such as 512m")
        return int(size[1]) * UNITS[size[2]]


Service = tuple[dict[str, Any], str | None, list[str]]  # arguments of Sandbox, the file of a build, and argv


def read(file: str) -> dict[str, Service]:
    """Returns the services of a file, first the one called default. Raises ValueError with the line that is refused."""
    with open(file) as text:
        root = yaml.compose(text, yaml.SafeLoader)
    parts = _Node(file, root).items() if root else {}
    if "services" not in parts:
        raise ValueError(f"{file}: no services")
    found = {name: _service(part) for name, part in parts["services"].items().items()}
    for key, part in parts.items():
        if key == "x-inspect-network":
            rules = _network(part)
            for arguments, _, _ in found.values():
                arguments.update(rules)
        elif key == "x-inspect_docker_sandbox" or not (key in ("services", "version", "name") or key.startswith("x-")):
            raise part.refuse()
    return dict(sorted(found.items(), key=lambda one: one[0] != "default"))


def _service(service: _Node) -> Service:
    arguments: dict[str, Any] = {}
    built, argv = None, {"entrypoint": [], "command": []}
    for key, part in service.items().items():
        if key == "image":
            arguments["image"] = part.text()
        elif key == "build":
            built = _build(part)
        elif key in argv:
            words = isinstance(part.node, yaml.ScalarNode)
            argv[key] = shlex.split(part.text()) if words else [one.text() for one in part.each()]
        elif key == "environment":
            arguments["env"] = _environment(part)
        elif key == "cpus":
            arguments["cpus"] = float(part.text())
        elif key in ("mem_limit", "pids_limit"):
            arguments["memory" if key == "mem_limit" else "pids"] = part.number()
        elif key == "network_mode":
            if part.text() not in ("none", "bridge"):
                raise part.refuse()
            arguments["network"] = "open" if part.text() == "bridge" else "none"
        elif key == "depends_on":
            part.each()  # all sandboxes exist before the first command starts; a condition is refused
        elif key not in IGNORED and not key.startswith("x-"):
            raise part.refuse()
    return arguments, built, argv["entrypoint"] + argv["command"]


def _build(part: _Node) -> str:
    keys = {"context": part} if isinstance(part.node, yaml.ScalarNode) else part.items()
    for key in keys.keys() - {"context", "dockerfile"}:
        raise keys[key].refuse()
    names = [keys[key].text() for key in ("context", "dockerfile") if key in keys]
    names += [] if "dockerfile" in keys else ["Dockerfile"]
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(part.file)), *names))


def _environment(part: _Node) -> dict[str, str]:
    if isinstance(part.node, yaml.SequenceNode):
        pairs = [(one, *one.text().partition("=")[::2]) for one in part.each()]
    else:
        pairs = [(value, key, value.text()) for key, value in part.items().items()]
    for one, _, value in pairs:
        if "$" in value.replace("$$", ""):
            raise one.refuse("variables of this machine are not supported by demesne")
    return {key: value.replace("$$", "$") for _, key, value in pairs}


def _network(part: _Node) -> dict[str, Any]:
    """x-inspect-network: allow_domains, allow_cidr and allow_domains_ports."""
    rules: dict[str, Any] = {"network": "none", "allow": []}
    for key, value in part.items().items():
        for one in value.each():
            if key == "allow_domains" and one.text() == "*":
                rules["network"] = "open"
            elif key == "allow_domains":
                rules["allow"].append(one.text())
            elif key == "allow_cidr":
                rules["allow"].append(address(one.text()))
            elif key == "allow_domains_ports":
                entry = one.items()
                if "protocol" in entry and entry["protocol"].text().upper() != "TCP":
                    raise entry["protocol"].refuse()
                rules["allow"].append(f"{entry['domain'].text()}:{entry['port'].text()}")
            else:
                raise value.refuse()
        if key not in ("allow_domains", "allow_cidr", "allow_domains_ports"):
            raise value.refuse()
    return rules
