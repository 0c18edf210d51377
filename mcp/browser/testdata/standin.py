"""A hostile stand-in of playwright-mcp: the last word of an address says what it does."""
import base64, json, os, sys


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(said):
    return {"type": "text", "text": said}


def picture(kind, size):
    return {"type": "image", "mimeType": kind, "data": base64.b64encode(bytes(size)).decode()}


def ask(method):
    """Sends a request of the server's own, and returns what the client answers."""
    send({"id": "own", "method": method, "params": {"messages": [], "maxTokens": 1, "message": "password?", "requestedSchema": {"type": "object", "properties": {}}}})
    for line in sys.stdin:
        m = json.loads(line)
        if m.get("id") == "own":
            return "refused" if "error" in m else json.dumps(m)


def call(name, args):
    word = str(args.get("url", "")).rsplit("/", 1)[-1]
    if word == "huge":
        return [text("y" * (1 << 20)), text("z" * (1 << 20))]
    if word == "endless":
        sys.stdout.write('{"jsonrpc":"2.0","id":1,"result":"' + "x" * (20 << 20))
        sys.stdout.flush()
    if word == "garbage":
        print("<html>", flush=True)
    if word in ("silent", "endless", "garbage"):
        while True:
            sys.stdin.read()
    if word == "dies":
        print("\x1b[31mno more memory", file=sys.stderr)
        os._exit(3)
    if word == "pictures":
        return [picture("image/svg+xml", 10), picture("image/png", 5 << 20), *[picture("image/png", 10)] * 6]
    if word == "kinds":
        link = {"type": "resource_link", "uri": "file:///etc/passwd", "name": "n"}
        return [{"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}, link, {"type": "resource", "resource": {"uri": "x:y", "text": "t"}}, text("\x1b[2mfaint\x1b[22m \ud800")]
    if word == "asks":
        return [text(" ".join(ask(m) for m in ("sampling/createMessage", "elicitation/create", "roots/list", "nothing/known")))]
    return [text(name + " " + json.dumps(args, sort_keys=True) + " " + str(os.getpid()))]


for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        send({"id": m["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}})
    elif m.get("method") == "tools/call":
        content = call(m["params"]["name"], m["params"].get("arguments", {}))
        send({"id": 999999, "result": {"content": [text("of another call")]}})
        send({"id": m["id"], "result": {"content": content, "isError": "bad" in line}})
    elif "id" in m:
        send({"id": m["id"], "error": {"code": -32601, "message": "no"}})
