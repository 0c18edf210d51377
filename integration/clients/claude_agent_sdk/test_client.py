"""The client of Claude's Agent SDK, whose program demesne agent starts: the option cli_path names a file of two lines.

The program is the SDK's own one. Its model is a server of this process, which follows a script.
"""

import asyncio
import http.server
import json
import os
import pathlib
import threading

import claude_agent_sdk
import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, TextBlock, ToolResultBlock, UserMessage
from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, create_sdk_mcp_server, query, tool

BUNDLED = pathlib.Path(claude_agent_sdk.__file__).parent / "_bundled"
KEY = "sk-ant-a-key-of-this-machine-0123456789"


class Model(http.server.BaseHTTPRequestHandler):
    """Answers a request that has n results of tools with step n of the script: a text, or the name and input of a tool."""

    script, keys = [], set()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Model.keys.add(self.headers["X-Api-Key"])
        if not body.get("stream"):
            return self.answer("application/json", json.dumps({"input_tokens": 1}))
        parts = [part for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]]
        step = Model.script[sum(part["type"] == "tool_result" for part in parts)] if body.get("tools") else "a title"
        if isinstance(step, str):
            block, delta, end = {"type": "text", "text": ""}, {"type": "text_delta", "text": step}, "end_turn"
        else:
            block = {"type": "tool_use", "id": f"toolu_{len(parts)}", "name": step[0], "input": {}}
            delta, end = {"type": "input_json_delta", "partial_json": json.dumps(step[1])}, "tool_use"
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [], "stop_reason": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        events = [
            {"type": "message_start", "message": message | {"stop_sequence": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": end, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        self.answer("text/event-stream", "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events))

    def answer(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def options(tmp_path):
    """Options of the SDK: a program that demesne starts, in a directory of its own."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Model.keys.clear()
    program = tmp_path / "claude"
    program.write_text(f'#!/bin/sh\nexec {os.environ["DEMESNE_BIN"]} agent claude "$@"\n')
    program.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    env = {"PATH": f"{BUNDLED}:{os.environ['PATH']}", "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}"}

    def options(permission_mode="bypassPermissions", **more):
        return ClaudeAgentOptions(cli_path=program, cwd=project, env=env, permission_mode=permission_mode, **more)

    options.project, options.outside = project, tmp_path
    yield options
    server.shutdown()
    server.server_close()


async def messages(stream):
    return [message async for message in stream]


def results(found):
    """The results of tools, as text."""
    blocks = [block for message in found if isinstance(message, UserMessage) for block in message.content]
    return [str(block.content) for block in blocks if isinstance(block, ToolResultBlock)]


def test_query(options):
    """The program works in its directory, sees nothing beside it, and knows no key of this machine."""
    probe = f"echo made > made; ls {options.outside}; echo $ANTHROPIC_API_KEY; echo ended"
    Model.script = [("Bash", {"command": probe}), "All done."]
    found = asyncio.run(messages(query(prompt="make the file", options=options())))
    (said,) = results(found)
    assert (options.project / "made").read_text() == "made\n"
    assert "ended" in said and "project" in said and "claude" not in said and KEY not in said
    assert isinstance(found[-1], ResultMessage) and found[-1].result == "All done." and not found[-1].is_error
    assert Model.keys == {KEY}


def test_tool_of_this_process(options):
    """A tool of the SDK's user runs in this process: the SDK's own connection to the program carries it."""
    asked = []

    @tool("lookup", "Looks up a name", {"name": str})
    async def lookup(arguments):
        asked.append(arguments["name"])
        return {"content": [{"type": "text", "text": f"found by process {os.getpid()}"}]}

    async def talk():
        tools = {"own": create_sdk_mcp_server("own", tools=[lookup])}
        async with ClaudeSDKClient(options(mcp_servers=tools, allowed_tools=["mcp__own__lookup"])) as client:
            assert "commands" in await client.get_server_info()
            await client.query("look it up")
            return await messages(client.receive_response())

    Model.script = [("ToolSearch", {"query": "select:mcp__own__lookup"}), ("mcp__own__lookup", {"name": "zebra"}), "Found."]
    found = asyncio.run(talk())
    assert asked == ["zebra"] and f"found by process {os.getpid()}" in results(found)[-1]
    texts = [b.text for m in found if isinstance(m, AssistantMessage) for b in m.content if isinstance(b, TextBlock)]
    assert texts == ["Found."]


def test_permission(options):
    """The SDK's user is asked before a tool runs, and its answer holds."""
    asked = []

    async def can_use_tool(name, arguments, _):
        asked.append((name, arguments["command"]))
        return PermissionResultAllow() if len(asked) == 1 else PermissionResultDeny(message="not this one")

    async def talk():
        async with ClaudeSDKClient(options(permission_mode="default", can_use_tool=can_use_tool)) as client:
            await client.query("make the files")
            return await messages(client.receive_response())

    Model.script = [("Bash", {"command": "echo one > one"}), ("Bash", {"command": "echo two > two"}), "Ended."]
    found = asyncio.run(talk())
    assert asked == [("Bash", "echo one > one"), ("Bash", "echo two > two")] and "not this one" in results(found)[-1]
    assert (options.project / "one").exists() and not (options.project / "two").exists()


def test_failing(options):
    """A program that demesne cannot start is the SDK's own error."""
    refused = options()
    refused.cwd = None
    refused.env["DEMESNE_STATE"] = "/proc/none"
    refused.env["PATH"] = "/usr/bin:/bin"
    with pytest.raises((claude_agent_sdk.ProcessError, claude_agent_sdk.CLIConnectionError)):
        asyncio.run(messages(query(prompt="go", options=refused)))
