#!/usr/bin/python3
"""A coding agent for tests: it asks the Messages interface, runs shell commands, calls MCP tools, and prints a stream.

    agent.py PROMPT | agent.py --resume SESSION PROMPT

It does not show the model the prompt that continues an interrupted run.

Prompts may direct it: SILENT ends without a result, and CRASH exits with 3.
"""
import json, os, subprocess, sys, urllib.error, urllib.request

URL, TOKEN, STATE = os.environ["FAKE_URL"], os.environ["FAKE_TOKEN"], os.path.expanduser("~/session.json")
MODEL, SESSION = os.environ["FAKE_MODEL"], "session-1"
TOOLS = ["agent", "research", "script", "create", "exec", "destroy", "status", "wait", "cancel"]


def say(**event):
    print(json.dumps({**event, "session_id": SESSION}), flush=True)


def post(url, body, headers):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    return urllib.request.urlopen(request, timeout=600)


class Server:
    """A client of the MCP server in the sandbox."""

    def __init__(self, url):
        self.url, self.session, self.n = url, None, 0
        self.call("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fake", "version": "1"}})
        self.call("notifications/initialized", {}, notify=True)

    def call(self, method, params, notify=False):
        headers = {"Accept": "application/json, text/event-stream"}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        if not notify:
            self.n += 1
            body["id"] = self.n
        with post(self.url, body, headers) as answer:
            self.session = answer.headers.get("Mcp-Session-Id") or self.session
            for line in answer:
                if line.startswith(b"data: "):
                    line = line[6:]
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if message.get("id") == self.n and "method" not in message:
                    return message.get("result") or message

    def tool(self, name, args):
        result = self.call("tools/call", {"name": name, "arguments": args})
        return "\n".join(c.get("text", "") for c in result.get("content", [])) or json.dumps(result)


def run(call, server):
    if call["name"] == "Bash":
        p = subprocess.run(["/bin/sh", "-c", call["input"]["command"]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return p.stdout.decode("utf-8", "replace")
    _, name, tool = call["name"].split("__", 2)
    return server(name).tool(tool, call["input"])


def main():
    messages = []
    if sys.argv[1] == "--resume":
        messages = json.load(open(STATE))
        if not sys.argv[3].startswith("Continue the task"):
            messages.append({"role": "user", "content": sys.argv[3]})
    else:
        messages.append({"role": "user", "content": sys.argv[1]})
    prompt = messages[0]["content"]
    say(type="system", subtype="init", model=MODEL)
    if "SILENT" in prompt:
        return 0
    if "CRASH" in prompt:
        print("out of luck", file=sys.stderr)
        return 3
    servers = json.load(open(os.environ["FAKE_CONFIG"] + "/servers.json"))
    open_servers = {}

    def server(name):
        if name not in open_servers:
            open_servers[name] = Server(servers[name])
        return open_servers[name]

    tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
    tools += [{"name": "mcp__demesne__sandbox_" + t, "input_schema": {"type": "object"}} for t in TOOLS]
    for name in servers:
        if name != "demesne":
            listed = server(name).call("tools/list", {}).get("tools", [])
            tools += [{"name": "mcp__%s__%s" % (name, t["name"]), "input_schema": {"type": "object"}} for t in listed]
    n = 0
    while True:
        json.dump(messages, open(STATE, "w"))
        body = {"model": MODEL, "max_tokens": 100, "messages": messages, "tools": tools}
        try:
            answer = json.load(post(URL + "/v1/messages", body, {"X-Api-Key": TOKEN}))
        except urllib.error.HTTPError as e:
            text = "API Error: %d" % e.code
            say(type="result", subtype="success", is_error=True, api_error_status=e.code, result=text)
            return 1
        n += 1
        say(type="assistant", message={"id": "m%d-%d" % (os.getpid(), n), "model": MODEL, "content": answer["content"]})
        messages.append({"role": "assistant", "content": answer["content"]})
        calls = [c for c in answer["content"] if c["type"] == "tool_use"]
        json.dump(messages, open(STATE, "w"))
        if not calls:
            text = "".join(c["text"] for c in answer["content"])
            say(type="result", subtype="success", is_error=False, result=text)
            return 0
        results = [{"type": "tool_result", "tool_use_id": c["id"], "content": run(c, server)} for c in calls]
        say(type="user", message={"content": results})
        messages.append({"role": "user", "content": results})


sys.exit(main())
