"""The driver of a list: a task of Ray for each share, which is one process of demesne. Arguments: a JSON object, and the share's argv."""

import ctypes
import json
import os
import subprocess
import sys

import ray

plan, argv = json.loads(sys.argv[1]), sys.argv[2:]


def attend(argv, log, env):
    """Ends its process with this worker. An exit code says that demesne could not work here; what a command does is in its result."""
    libc = ctypes.CDLL(None)
    with open(log, "ab") as f:
        p = subprocess.Popen(argv, stdout=f, stderr=f, stdin=subprocess.DEVNULL, env={**os.environ, **env},
                             preexec_fn=lambda: libc.prctl(1, 15))  # PR_SET_PDEATHSIG, SIGTERM
    if code := p.wait():
        raise RuntimeError(f"demesne ended with {code}")


ray.init(log_to_driver=False, logging_level="ERROR")
task = ray.remote(attend).options(num_cpus=plan["cpus"], memory=plan["memory"] or None, max_retries=3, retry_exceptions=True,
                                  scheduling_strategy="SPREAD")
failed, waiting = False, []
for share in range(plan["shares"] + 1):
    last = share == plan["shares"]
    while waiting and (last or len(waiting) >= plan["parallel"]):
        done, waiting = ray.wait(waiting)
        try:
            ray.get(done)
        except ray.exceptions.RayError as e:
            failed = True
            print(str(e).strip().splitlines()[-1], flush=True)
    if not last:
        waiting.append(task.remote([*argv, str(share), str(plan["shares"])], plan["log"], plan["env"]))
sys.exit(failed)
