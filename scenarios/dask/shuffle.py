"""Rows become columns on dask's workers: nothing here knows of emu."""

import argparse

from dask import array
from distributed import Client, wait


def main() -> None:
    """Shuffle an array, again and again; print a line when a step begins."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scheduler")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--rows", type=int, default=1800)
    given = parser.parse_args()
    client = Client(given.scheduler)
    client.wait_for_workers(3)
    block = given.rows // 3
    shape, workers = (given.rows, given.rows), list(client.scheduler_info()["workers"])
    rows = array.random.random(shape, chunks=(block, given.rows)).persist()
    wait(rows)
    client.rebalance()
    for step in range(given.steps):
        print(f"step {step}", flush=True)
        columns = rows.rechunk((given.rows, block))
        columns.sum().compute(workers=workers)
    client.close()


if __name__ == "__main__":
    main()
