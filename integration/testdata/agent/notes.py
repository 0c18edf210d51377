#!/usr/bin/python3
"""An MCP server over stdio for tests: the tools search (which changes nothing), remove, and draw, which makes a file."""
import json, os, sys

TOOLS = [
    {"name": "search", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "remove", "inputSchema": {"type": "object"}},
    {"name": "draw", "inputSchema": {"type": "object"}},
]


def tool(name, args):
    with open(os.environ["NOTES_LOG"], "a") as log:
        log.write(name + "\n")
    if name == "draw":
        path = os.environ["NOTES_DIR"] + "/picture.txt"
        with open(path, "w") as f:
            f.write("a picture")
        return "drawn: " + path
    return "found " + args.get("q", "") + " as " + os.environ["NOTES_OWNER"]


for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    result = {}
    if m["method"] == "initialize":
        result = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}}
    elif m["method"] == "tools/list":
        result = {"tools": TOOLS}
    elif m["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": tool(m["params"]["name"], m["params"].get("arguments") or {})}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
