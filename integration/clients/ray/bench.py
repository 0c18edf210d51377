"""Measures what an item costs at a warm node, beside Ray's own task of the same command, in turn: make ray PARTS=bench."""

import os
import statistics
import subprocess
import sys
import time

import demesne.ray
import ray
from ray.cluster_utils import Cluster

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


def growth():
    """What an item costs by the number of nodes, and of items."""
    node = {"num_cpus": 2, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False)
    for nodes, items in ((1, 400), (2, 400), (4, 400), (4, 100), (4, 1000), (4, 10000)):
        while sum(n["Alive"] for n in ray.nodes()) < nodes:
            cluster.add_node(**node)
        ends = []
        outcomes = demesne.ray.map(["true"], range(items), image="busybox:latest", progress=lambda _: ends.append(time.perf_counter()))
        assert all(o.state == "done" for o in outcomes)
        print(f"{nodes} nodes, {items} items: {(ends[-1] - ends[0]) / items * 1000:.1f} ms an item, load {os.getloadavg()[0]:.1f}", flush=True)
    ray.shutdown()
    cluster.shutdown()


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


growth() if sys.argv[1:] == ["growth"] else main()
