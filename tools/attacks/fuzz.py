"""Mutated files into every loader: nothing but our own errors, within bounds.

    tools/hostile fuzz --seconds 600 --seed 1

Each file is a good one with bytes flipped, cut, repeated, moved or replaced by numbers
that tend to hurt. A line per loader shows how many were read, refused, and how much
processor time and memory the worst took; what raised anything else, or took over 5 s or
500 MB, is kept, and the exit status is 1. --run adds the files of a run directory, such
as one that trained.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tools.attacks.loaders import Loader, library_loaders, loaders, read_run

_MOST = 5.0  # seconds of processor time for one file
_MOST_MEMORY = 500_000  # kB that reading adds to the peak


def fuzz(loader: Loader, seed: int, seconds: float, failed: list[str]) -> str:
    """Read mutated files for so long; return what became of them, in words."""
    end = time.monotonic() + seconds
    rng, count, slowest = np.random.default_rng(seed), Counter[str](), 0.0
    loader.try_one(rng)  # what it imports is no cost of a file
    peak = _peak()
    while time.monotonic() < end:
        begun, wrong, before = time.process_time(), "", _peak()
        try:
            count[loader.try_one(rng)] += 1
        except Exception as error:  # noqa: BLE001 -- what is looked for
            wrong = f"{type(error).__name__}: {error}"
        took = time.process_time() - begun
        if took > _MOST:
            wrong = wrong or f"took {took:.1f} s"
        if _peak() - before > _MOST_MEMORY:
            wrong = wrong or f"took {(_peak() - before) / 1000:.0f} MB"
        if wrong:
            kept = Path(f"fuzz-{loader.folder.name}-{len(failed)}")
            kept.write_bytes(loader.keep)
            failed.append(f"{wrong} ({kept})")
        slowest = max(slowest, took)
    told = ", ".join(f"{n} {what}" for what, n in count.most_common())
    more = (_peak() - peak) / 1000
    return (
        f"{sum(count.values())} files: {told}; slowest {slowest:.2f} s of CPU, "
        f"peak of memory {more:.0f} MB higher"
    )


def _peak() -> int:
    """Return the most memory that this process had, kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    """Fuzz every loader for its share of the time; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, action="append", default=[])
    options = parser.parse_args()
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        found = loaders(Path(folder)) | library_loaders(Path(folder))
        for number, run in enumerate(options.run):
            copy = shutil.copytree(run, Path(folder) / f"run{number}")
            found[f"run {run.name}"] = Loader(copy, read_run)
        for name, loader in found.items():
            share = options.seconds / len(found)
            print(f"{name}: {fuzz(loader, options.seed, share, failed)}", flush=True)
    print(*failed, sep="\n")
    return 1 if failed else 0
