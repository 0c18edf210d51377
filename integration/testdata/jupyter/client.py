# Drives a kernel with jupyter_client, as JupyterLab and nbclient do. Arguments: the kernel's name, and a part:
#   tour   execute, complete, interrupt, restart, shut down
#   death  the kernel's process is killed
#   peers  hostile clients connect beside the real one
#   wait   start a kernel, say so, and wait to be killed
import json, socket, struct, sys, time
import zmq
from jupyter_client.manager import start_new_kernel
from jupyter_client.session import Session


def outputs(kc, code, timeout=60):
    found = []
    reply = kc.execute_interactive(code, timeout=timeout, output_hook=lambda m: found.append((m["msg_type"], m["content"], m["parent_header"])))
    content = reply["content"]
    assert all(p["msg_id"] == reply["parent_header"]["msg_id"] for _, _, p in found), found
    return content, [(t, c) for t, c, _ in found if t not in ("status", "execute_input")]


def value(kc, code):
    content, found = outputs(kc, code)
    assert content["status"] == "ok", content
    return [c["data"]["text/plain"] for t, c in found if t == "execute_result"][0]


def loop(kc):
    """Starts code without end, and waits until it runs."""
    kc.execute("import time\nx = 1\nprint('on', flush=True)\nwhile True: time.sleep(0.01)")
    while (m := kc.get_iopub_msg(timeout=60))["msg_type"] != "stream" or m["content"]["text"] != "on\n":
        pass


def settle(kc):
    """Waits until ipykernel, which aborts what arrives right after an error, executes code again."""
    while outputs(kc, "pass")[0]["status"] == "aborted":
        time.sleep(0.05)


def tour(km, kc):
    content, found = outputs(kc, "import os, sys\nprint('a'); print('b', file=sys.stderr)\n6 * 7")
    text = {name: "".join(c["text"] for t, c in found if t == "stream" and c["name"] == name) for name in ("stdout", "stderr")}
    assert content["status"] == "ok" and content["execution_count"] == 1, content
    assert text == {"stdout": "a\n", "stderr": "b\n"}, found
    assert [c["data"]["text/plain"] for t, c in found if t == "execute_result"] == ["42"], found
    assert value(kc, "os.getcwd()") == "'/workspace'"
    assert value(kc, "open('beside').read()") == "'of the host\\n'"
    outputs(kc, "open('made', 'w').write('by the kernel')")
    content, found = outputs(kc, "class H:\n    def _repr_html_(self): return '<b>x</b><script>alert(1)</script>'\nH()")
    page = [c["data"]["text/html"] for t, c in found if t == "execute_result"]
    assert page == ["<b>x</b>"], found
    # A widget of which no type may be shown says what was withheld, and its comm is not opened.
    if value(kc, "'ipykernel' in sys.modules") == "True":
        content, found = outputs(kc, "from IPython.display import display\ndisplay({'application/vnd.jupyter.widget-view+json': {'model_id': 'm'}}, raw=True)")
        shown = [c["data"] for t, c in found if t == "display_data"]
        want = "demesne withheld this output (application/vnd.jupyter.widget-view+json)"
        assert len(shown) == 1 and list(shown[0]) == ["text/plain"] and shown[0]["text/plain"].startswith(want), found
    kc.shell_channel.send(kc.session.msg("comm_open", {"comm_id": "c", "target_name": "jupyter.widget", "data": {}}))
    assert kc.comm_info(reply=True, timeout=20)["content"]["comms"] == {}
    # A debugger gets no answer: that to the next request is the first.
    kc.control_channel.send(kc.session.msg("debug_request", {"type": "request", "seq": 1, "command": "initialize", "arguments": {"clientID": "test", "adapterID": ""}}))
    kc.control_channel.send(kc.session.msg("kernel_info_request", {}))
    assert kc.get_control_msg(timeout=20)["msg_type"] == "kernel_info_reply"
    content, _ = outputs(kc, "def f():\n    return 1 / 0\nf()")
    assert content["ename"] == "ZeroDivisionError", content
    matches = kc.complete("os.getcw", reply=True, timeout=20)["content"]["matches"]
    assert any("getcwd" in m for m in matches), matches
    assert kc.inspect("os.getcwd", 9, reply=True, timeout=20)["content"]["found"]
    kc.is_complete("def f():")
    assert kc.get_shell_msg(timeout=20)["content"]["status"] == "incomplete"
    assert kc.kernel_info(reply=True, timeout=20)["content"]["language_info"]["name"] == "python"
    past = kc.history(reply=True, timeout=20, hist_access_type="tail", n=2)["content"]
    assert past["status"] == "ok" and "return 1 / 0" in past["history"][-1][2], past
    # A client may talk to the control channel while the kernel is busy.
    loop(kc)
    control = kc.session.msg("kernel_info_request", {})
    kc.control_channel.send(control)
    assert kc.get_control_msg(timeout=20)["content"]["status"] == "ok"
    km.interrupt_kernel()
    assert kc.get_shell_msg(timeout=20)["content"]["ename"] == "KeyboardInterrupt"
    settle(kc)
    loop(kc)
    kc.control_channel.send(kc.session.msg("interrupt_request", {}))
    assert kc.get_shell_msg(timeout=20)["content"]["ename"] == "KeyboardInterrupt"
    assert kc.get_control_msg(timeout=20)["msg_type"] == "interrupt_reply"
    settle(kc)
    assert value(kc, "x") == "1"
    outputs(kc, "open('/tmp/kept', 'w').write('kept')")
    km.restart_kernel()
    kc.wait_for_ready(timeout=60)
    assert value(kc, "open('/tmp/kept').read()") == "'kept'"
    content, _ = outputs(kc, "x")
    assert content["ename"] == "NameError", content
    km.shutdown_kernel()
    assert not km.is_alive()


def comms(km, kc):
    """Widgets of a kernel whose outputs are trusted: messages in both directions, with raw buffers."""
    outputs(kc, "from ipykernel.comm import Comm\ngot = []\ndef opened(comm, m):\n    comm.on_msg(lambda m: (got.append((m['content']['data'], [bytes(b) for b in m['buffers']])), comm.send({'again': 1}, buffers=[b'raw'])))\nget_ipython().kernel.comm_manager.register_target('t', opened)")
    for typ, content, buffers in (("comm_open", {"comm_id": "c", "target_name": "t", "data": {}}, []), ("comm_msg", {"comm_id": "c", "data": {"a": 1}}, [b"\x00\xff"])):
        m = kc.session.msg(typ, content)
        kc.session.send(kc.shell_channel.socket, m, buffers=buffers)
    end = time.time() + 30
    while time.time() < end:
        m = kc.get_iopub_msg(timeout=30)
        if m["msg_type"] == "comm_msg":
            break
    assert m["content"]["data"] == {"again": 1} and bytes(m["buffers"][0]) == b"raw", m
    assert value(kc, "got") == "[({'a': 1}, [b'\\x00\\xff'])]"
    content, found = outputs(kc, "from IPython.display import Javascript\nJavascript('1')")
    assert "application/javascript" in [c["data"] for t, c in found if t == "execute_result"][0], found
    # A question of the code, which the client answers.
    reply = kc.execute_interactive("answer = input('name? ')", timeout=30, stdin_hook=lambda m: kc.input(m["content"]["prompt"] + "ada"), output_hook=lambda m: None)
    assert reply["content"]["status"] == "ok", reply
    assert value(kc, "answer") == "'name? ada'"
    km.shutdown_kernel()


def death(km, kc):
    kc.execute("import os, signal\nprint('last', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)")
    end = time.time() + 60
    while km.is_alive() and time.time() < end:
        time.sleep(0.05)
    assert not km.is_alive()
    text = ""
    while "137" not in text:  # or the last one raises
        m = kc.get_iopub_msg(timeout=60)
        if m["msg_type"] == "stream":
            text += m["content"]["text"]
    assert "the kernel ended" in text and "137" in text, text
    km.shutdown_kernel(now=True)


def peers(km, kc):
    info = km.get_connection_info()
    context = zmq.Context.instance()

    def shell(key):
        s = context.socket(zmq.DEALER)
        s.linger = 0
        s.connect("tcp://%s:%d" % (info["ip"], info["shell_port"]))
        return s, Session(key=key)

    # A wrong signature, and no signature: nothing is executed, and nothing answered.
    for key in (b"wrong", b""):
        s, session = shell(key)
        session.send(s, "execute_request", {"code": "open('forged', 'w')", "silent": False})
        assert s.poll(1000) == 0
        s.close()
    # What is not ZMTP, a greeting of a socket that does not exist, and a frame of 2^62 bytes.
    hello = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + bytes(32)
    odd = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x01X"
    odd = b"\x04" + bytes([len(odd) - 2]) + odd[2:]
    ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
    ready = b"\x04" + bytes([len(ready)]) + ready
    for text in (b"GET / HTTP/1.1\r\n\r\n" * 10, hello + odd, hello + ready + b"\x02" + struct.pack(">Q", 1 << 62), hello + ready + b"\x01\x00" * 1000):
        c = socket.create_connection((info["ip"], info["shell_port"]))
        c.settimeout(20)
        c.sendall(text)
        try:
            while c.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        c.close()
    idle = [socket.create_connection((info["ip"], info["iopub_port"])) for _ in range(100)]
    assert value(kc, "6 * 7") == "42"
    assert value(kc, "__import__('os').path.exists('forged')") == "False"
    for c in idle:
        c.close()
    km.shutdown_kernel()


name, part = sys.argv[1:]
km, kc = start_new_kernel(kernel_name=name, startup_timeout=120)
try:
    if part == "wait":
        print("ready", flush=True)
        time.sleep(600)
    globals()[part](km, kc)
    print("done", flush=True)
finally:
    if part != "wait":
        km.shutdown_kernel(now=True)
        kc.stop_channels()
