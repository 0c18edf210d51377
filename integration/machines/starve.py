#!/usr/bin/env python3
"""Runs a command while random threads of it have no processor for a while, which finds what depends on luck. Needs root.

    starve.py SHARE COMMAND [ARGUMENT]...

Five times a second, SHARE of the processes that started since, and half that share of the threads of the others, get the policy
SCHED_IDLE (sched(7)) beside endless loops, one for each processor. Until the next time, the threads that they start have it too.
"""
import os
import random
import subprocess
import sys
import time


def started(pid):
    """Returns when a process of this machine started, in ticks since boot, or 0 for a thread of the kernel."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return 0 if int(fields[6]) & 0x00200000 else int(fields[19])  # PF_KTHREAD


def starve(tid, wanted):
    try:
        if (os.sched_getscheduler(tid) == os.SCHED_IDLE) != wanted:
            os.sched_setscheduler(tid, os.SCHED_IDLE if wanted else os.SCHED_OTHER, os.sched_param(0))
    except OSError:
        pass  # it has ended


def threads(since, others):
    """Yields the threads of each process that started since then."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pid) not in others and started(pid) >= since:
                yield [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            continue  # it has ended


def main(share, command):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    since = started(os.getpid())
    work = subprocess.Popen(command)
    others = {os.getpid(), *(loop.pid for loop in loops)}
    try:
        while work.poll() is None:
            for tids in threads(since, others):
                whole = random.random() < share
                for tid in tids:
                    starve(tid, whole or random.random() < share / 2)
            time.sleep(random.uniform(0.1, 0.3))
    finally:
        for loop in loops:
            loop.kill()
        for tids in threads(since, others):
            for tid in tids:
                starve(tid, False)
    return work.returncode


if __name__ == "__main__":
    os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
