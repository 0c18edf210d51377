"""Runs trajectories at once, each of actions one after another, and prints seconds and failures as JSON.

    trajectories.py demesne TRAJECTORIES ACTIONS
    trajectories.py argv TRAJECTORIES ACTIONS ARGV…

An action executes a command of about 1 ms, writes a file and reads it. With argv one start of ARGV, with a script for sh, does all
three; "{}" in ARGV is a directory of the trajectory. The time begins when all sandboxes exist.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time

mode, trajectories, actions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
failures, times = [], []
begin = threading.Barrier(trajectories + 1)


def by_package(each):
    from demesne import Sandbox

    with Sandbox() as sandbox:
        def act(i):
            sandbox.run(["sh", "-c", ":"], check=True)
            sandbox.files.write("file", f"content {i}\n" * 100)
            return sandbox.files.read_text("file")

        each(act)


def by_argv(each):
    with tempfile.TemporaryDirectory() as own:
        os.chmod(own, 0o777)
        prefix = [part.replace("{}", own) for part in sys.argv[4:]]
        text = 'sh -c :; i=0; while [ $i -lt 100 ]; do echo "$1"; i=$((i+1)); done > "$2"; cat "$2"'

        def act(i):
            argv = [*prefix, "sh", "-c", text, "sh", f"content {i}", f"/tmp/{os.path.basename(own)}"]
            return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout

        each(act)


def trajectory():
    started = False

    def each(act):
        nonlocal started
        started = True
        begin.wait()
        for i in range(actions):
            start = time.monotonic()
            try:
                if act(i) != f"content {i}\n" * 100:
                    raise ValueError("another content")
            except Exception as error:
                failures.append(f"{type(error).__name__}: {error} {getattr(error, 'stderr', '')}"[:500])
            times.append(time.monotonic() - start)

    try:
        (by_package if mode == "demesne" else by_argv)(each)
    except Exception as error:
        failures.append(f"{type(error).__name__}: {error}"[:500])
        if not started:
            begin.abort()


threads = [threading.Thread(target=trajectory) for _ in range(trajectories)]
made = time.monotonic()
for thread in threads:
    thread.start()
try:
    begin.wait()
except threading.BrokenBarrierError:
    pass
start = time.monotonic()
for thread in threads:
    thread.join()
end = time.monotonic()
print(json.dumps({"made": start - made, "seconds": end - start, "times": times, "failures": len(failures), "first": failures[:1]}))
