"""Measures what an item costs at a warm node, beside Ray's own task of the same command, in turn: make ray PARTS=bench."""

import statistics
import subprocess
import time

import demesne.ray
import ray

COUNT = 100


class Node(demesne.ray._Node):
    def settle(self, slots):
        while self._ready.qsize() < slots:
            time.sleep(0.001)


@ray.remote
def task():
    return subprocess.run(["true"]).returncode


def timed(call):
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1000


def main():
    ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False)
    node = ray.remote(Node).options(num_cpus=1, max_concurrency=4).remote()
    ray.get(node.prepare.remote("busybox:latest", {}, None, {}, 2, 1))
    took = {"task": [], "item": []}
    for turn in range(COUNT + 5):
        ray.get(node.settle.remote(2))
        for name, call in (("task", lambda: ray.get(task.remote())), ("item", lambda: ray.get(node.run.remote(["true"], None, None, 1000)))):
            took[name].append(timed(call))
    medians = {name: statistics.median(times[5:]) for name, times in took.items()}
    print(f"median of {COUNT} each: {medians['task']:.1f} ms a task of Ray, {medians['item']:.1f} ms an item")
    print(f"90th percentile: {sorted(took['task'][5:])[90]:.1f} ms and {sorted(took['item'][5:])[90]:.1f} ms")
    ray.get(node.close.remote())


main()
