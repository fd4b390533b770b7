"""CPU seconds of gloo per byte and per frame: two ranks on the loopback interface.

    python -m emu.virtual.rank.measure_messages

prints them as JSON. It is the CPU of gloo's threads, those of the program apart: sends,
sums, TCP. All-reduces of two sizes give two equations.
"""

from __future__ import annotations

import json
import os
import sys
import time
from statistics import median

import numpy as np
import torch
import torch.distributed as dist

from emu.host.files import scratch_folder
from emu.virtual.gloo_operations import Ring, all_reduce
from emu.virtual.gloo_transport import HEADER, write_steps

#: Elements of the two tensors, and how often each is summed.
_SIZES = ((1000, 200), (2_000_000, 8))
#: Measurements of each, of which the median counts.
_ROUNDS = 5
#: Frames of a message.
_FRAMES = 3


def main() -> int:
    """Measure in two processes; return the exit status."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with scratch_folder("virtual") as folder:
        child = os.fork()
        rank = int(child > 0)
        meeting = folder / "meeting"
        dist.init_process_group(
            "gloo",
            f"file://{meeting}",
            rank=rank,
            world_size=2,
        )
        seconds = []
        for elements, repeats in _SIZES:
            figures = measure(elements, repeats)
            seconds.append(figures)
        dist.barrier()
        if child == 0:
            os._exit(0)
        _, status = os.waitpid(child, 0)

    amounts = [count(elements) for elements, _ in _SIZES]
    per_byte, per_frame = np.linalg.solve(amounts, seconds)
    costs = {
        "per_byte": max(0.0, per_byte),
        "per_frame": max(0.0, per_frame),
    }
    text = json.dumps(costs)
    sys.stdout.write(text)
    return status


def measure(elements: int, repeats: int) -> float:
    """Return the CPU seconds of gloo's threads for an all-reduce, of this rank."""
    tensor = torch.ones(elements)
    found = []
    for _ in range(_ROUNDS):
        dist.all_reduce(tensor)
        began = _cpu_of_others()
        for _ in range(repeats):
            dist.all_reduce(tensor)
        passed = _cpu_of_others() - began
        found.append(passed / repeats)
    return median(found)


def _cpu_of_others() -> float:
    """Return the CPU seconds of all threads of this process but the calling one."""
    return time.process_time() - time.thread_time()


def count(elements: int) -> tuple[float, int]:
    """Return the bytes and frames that a rank sends and takes in an all-reduce."""
    ring = Ring(ranks=2, size=4 * elements, element=4)
    script = all_reduce(0, ring)
    steps = write_steps(script)
    frames = _FRAMES * steps.posts
    sizes = steps.rows[:, 2]
    data = int(sizes.sum())
    return data + HEADER * frames, frames


if __name__ == "__main__":
    sys.exit(main())
