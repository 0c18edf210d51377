"""Times Sandbox().run("true") with a running server: python3 once.py ROUNDS PAUSE, in seconds. The removal of a sandbox is not part of
a time. It prints milliseconds at the 10th and the 50th percentile.
"""

import sys
import time

begin = time.perf_counter()
from demesne import Sandbox  # noqa: E402

imported = time.perf_counter() - begin
kept = Sandbox()
kept.run("true", check=True)
times = []
for _ in range(int(sys.argv[1])):
    begin = time.perf_counter()
    sandbox = Sandbox()
    sandbox.run("true")
    times.append((time.perf_counter() - begin) * 1e3)
    sandbox.kill()
    time.sleep(float(sys.argv[2]))
kept.kill()
times.sort()
print(f"import {imported * 1e3:.1f}, p10 {times[len(times) // 10]:.2f}, p50 {times[len(times) // 2]:.2f}")
