"""A transpose and a sum of four ranks: nothing here knows of emu."""

import argparse
import time

import numpy as np
from mpi4py import MPI


def work(seconds: float) -> None:
    """Keep a core busy for so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def main() -> None:
    """Exchange blocks and add up, again and again; print a line per step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--kilobytes", type=int, default=400, help="to each rank")
    parser.add_argument("--compute", type=float, default=0.05, help="CPU seconds")
    given = parser.parse_args()
    ranks = MPI.COMM_WORLD
    blocks = np.ones((ranks.size, 125 * given.kilobytes))
    others, total = np.empty_like(blocks), np.empty(125 * given.kilobytes)
    for step in range(given.steps):
        if ranks.rank == 0:
            print(f"step {step}", flush=True)
        work(given.compute)
        ranks.Alltoall(blocks, others)
        ranks.Allreduce(others[0], total)


if __name__ == "__main__":
    main()
