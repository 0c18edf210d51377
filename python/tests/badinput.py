"""A server for tests of frameworks, which they may end: the fixture other_server. Sandboxes that name no client use it."""

import os
import subprocess

import demesne
import pytest


@pytest.fixture
def other_server(tmp_path, monkeypatch):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DEMESNE_") or k == "DEMESNE_IMAGE_STORE"}
    environment |= {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "DEMESNE_STATE": str(tmp_path / "state")}
    program = os.environ["DEMESNE_BIN"]
    server = subprocess.Popen([program, "serve", "--http", "127.0.0.1:0"], env=environment, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "listening on " in line:
            break
    server.url = line.split("listening on ")[1].strip()
    server.token = (tmp_path / "state/server/token").read_text().strip()
    monkeypatch.setattr(demesne._sandbox, "_shared", demesne.Client(server.url, server.token))
    yield server
    server.kill()
    server.wait()
    environment.pop("DEMESNE_IMAGE_STORE", None)  # which other tests use
    subprocess.run([program, "gc", "--all"], env=environment, capture_output=True)
