"""Sums of gradients by torch's gloo: nothing here knows of emu."""

import argparse
import time

import torch
from torch import distributed


def work(seconds: float) -> None:
    """Keep a core busy for so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def main() -> None:
    """Sum tensors of zeros, with a pause of what computing would take between."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--sums", type=int, default=13)
    parser.add_argument("--compute", type=float, default=0.05, help="seconds")
    parser.add_argument("--cpu", action="store_true", help="compute, do not sleep")
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    gradients = torch.zeros(int(given.megabytes * 1e6) // 4)
    for number in range(given.sums):
        work(given.compute) if given.cpu else time.sleep(given.compute)
        began = time.monotonic()
        distributed.all_reduce(gradients)
        print(f"sum {number} {time.monotonic() - began:.4f} s", flush=True)
    distributed.barrier()  # who leaves early takes others' connections along
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
