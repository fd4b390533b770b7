"""Actors on every machine but the driver's pull each other's objects.

Nothing here knows of emu.
"""

import argparse
import time

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


class Actor:
    """Computes, makes an object, and takes that of another."""

    def make(self, seconds: float, kilobytes: int) -> np.ndarray:
        """Return an object after so much CPU time."""
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return np.ones(125 * kilobytes)

    def take(self, other: np.ndarray) -> float:
        """Return the first number of an object."""
        return float(other[0])


def main() -> None:
    """Exchange objects round a ring, again and again; print a line per step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--kilobytes", type=int, default=1000)
    parser.add_argument("--compute", type=float, default=0.05, help="CPU seconds")
    given = parser.parse_args()
    while True:
        try:
            ray.init(given.address, log_to_driver=False, logging_level="error")
            break
        except ConnectionError:
            time.sleep(1)
    here = given.address.partition(":")[0]
    while len(nodes := [n for n in ray.nodes() if n["Alive"]]) < 4:
        time.sleep(0.5)
    nodes.sort(key=lambda node: node["NodeManagerAddress"])
    made = ray.remote(num_cpus=0)(Actor)
    places = [
        NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        for node in nodes
        if node["NodeManagerAddress"] != here
    ]
    actors = [made.options(scheduling_strategy=place).remote() for place in places]
    for step in range(given.steps):
        print(f"step {step}", flush=True)
        objects = [one.make.remote(given.compute, given.kilobytes) for one in actors]
        others = objects[1:] + objects[:1]
        ray.get([a.take.remote(o) for a, o in zip(actors, others, strict=True)])


if __name__ == "__main__":
    main()
