"""Compose files of evaluations, as the arguments of Sandbox. What demesne cannot enforce is refused with its line."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import yaml

from ._adapt import address

OTHERS = re.compile(r"x-(?!inspect-network$|inspect_docker_sandbox$)")  # keys of other programs
UNSUPPORTED = "not supported by demesne"
Service = tuple[dict[str, Any], tuple[str, str] | None, list[str]]  # arguments of Sandbox and build, and argv


def _size(text: str) -> int:
    if not (size := re.fullmatch(r"(\d+)([kmg]?)b?", text.lower())):
        raise ValueError("must be a number of bytes, such as 512m")
    return int(size[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[size[2]]


def _value(text: str) -> str:
    if "$" in text.replace("$$", ""):
        raise ValueError(f"variables of this machine are {UNSUPPORTED}")
    return text.replace("$$", "$")


def _mode(text: str) -> str:
    return {"none": "none", "bridge": "open"}[text]


def _protocol(text: str) -> None:
    {"tcp"}.remove(text.lower())


# Kinds of values. A dict is a mapping with these keys; the key * is any name. A list is a list of its one kind. A function reads
# a text, and raises an error for a wrong one. A tuple has several kinds. The kind None is ignored: it changes nothing.
ARGV = ([str], shlex.split)
SERVICE = {
    **dict.fromkeys(("init", "tty", "stdin_open", "restart", "stop_grace_period")), "image": str,
    "build": ({"context": str, "dockerfile": str}, lambda context: {"context": context}), "entrypoint": ARGV, "command": ARGV,
    "environment": ({"*": _value}, [_value]), "cpus": float, "mem_limit": _size, "pids_limit": int, "network_mode": _mode,
    "depends_on": [str],  # all sandboxes exist before the first command starts; a condition is refused
}
PORT = {"domain": str, "port": int, "protocol": _protocol}
NETWORK = {"allow_domains": [str], "allow_cidr": [str], "allow_domains_ports": [PORT]}
FILE = {"version": None, "name": None, "services": {"*": SERVICE}, "x-inspect-network": NETWORK}


def _read(node: yaml.Node, kind: Any, place: str = "") -> Any:
    """Returns a value of one kind. Raises ValueError with its line."""
    why = UNSUPPORTED
    for one in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(one, dict) and isinstance(node, yaml.MappingNode):
            parts = [(str(key.value), part) for key, part in node.value if "*" in one or not OTHERS.match(str(key.value))]
            wanted = {key: (part, one.get(key, one.get("*", ()))) for key, part in parts}
            return {key: _read(part, of, f"{place}.{key}") for key, (part, of) in wanted.items() if of is not None}
        if isinstance(one, list) and isinstance(node, yaml.SequenceNode):
            return [_read(part, one[0], f"{place}[{n}]") for n, part in enumerate(node.value)]
        if callable(one) and isinstance(node, yaml.ScalarNode):
            try:
                return one(node.value)
            except (ValueError, KeyError) as error:
                why = str(error) if isinstance(error, ValueError) else UNSUPPORTED
        elif why == UNSUPPORTED:
            why = "must be a " + ("mapping" if isinstance(one, dict) else "list" if isinstance(one, list) else "text or a number")
    raise ValueError(f":{node.start_mark.line + 1}: {place[1:]}: {why}")


def read(file: str) -> dict[str, Service]:
    """Returns the services of a file, first the one called default. Raises ValueError with the line that is refused."""
    with open(file) as stream:
        text = yaml.compose(stream, yaml.BaseLoader)  # all of its scalars are texts
    try:
        found = _read(text, FILE) if text else {}
        if not found.get("services"):
            raise ValueError(": no services")
        rules = found.get("x-inspect-network")
        shared = {} if rules is None else _rules(**rules)
    except ValueError as error:
        raise ValueError(f"{file}{error}") from None
    services = sorted(found["services"].items(), key=lambda one: one[0] != "default")
    return {name: _service(os.path.dirname(file), one, shared) for name, one in services}


def _rules(allow_domains: Any = (), allow_cidr: Any = (), allow_domains_ports: Any = ()) -> dict[str, Any]:
    allow = [name for name in allow_domains if name != "*"] + [address(one) for one in allow_cidr]
    for one in allow_domains_ports:
        if not one.keys() >= {"domain", "port"}:
            raise ValueError(": x-inspect-network.allow_domains_ports: needs domain and port")
        allow.append(f"{one['domain']}:{one['port']}")
    return {"network": "open" if "*" in allow_domains else "none", "allow": allow}


def _service(directory: str, one: dict[str, Any], shared: dict[str, Any]) -> Service:
    environment, build = one.get("environment", {}), one.get("build")
    if isinstance(environment, list):
        environment = dict(pair.partition("=")[::2] for pair in environment)
    arguments = {"image": one.get("image"), "env": environment, "cpus": one.get("cpus"), "memory": one.get("mem_limit")}
    arguments |= {"pids": one.get("pids_limit"), "network": one.get("network_mode")} | shared
    context = build and (os.path.join(directory, build.get("context", ".")), build.get("dockerfile", "Dockerfile"))
    return arguments, context, one.get("entrypoint", []) + one.get("command", [])
