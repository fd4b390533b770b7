"""Mutated files into every loader: nothing but our own errors, within bounds.

    python -m tools.fuzz --seconds 600 --seed 1

Each file is a good one with bytes flipped, cut, repeated, moved or replaced by numbers
that tend to hurt. A line per loader says how many were read, refused, and how much
processor time the slowest took; what raised anything else, or took over 5 s, is kept,
and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emu.errors import EmulatorError
from emu.graph_data.readers.npz_file import npz_source
from emu.problem import Profile
from emu.runs.array_files import read_rates, read_realization, write_realization
from emu.runs.problem_json import problem_to_json
from emu.runs.recorded_run import load_run
from emu.runs.run_directory import RunDirectory
from emu.scenario import find_errors
from emu.scenario.profile_file import ProfileFile, read_profile, write_profile
from emu.scenario.shipped import shipped_scenarios
from emu.simulation import simulate
from emu.testing import two_machine_example

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 5.0  # seconds of processor time for one file
NASTY = [b"-1", b"1e999", b"9" * 30, b"nan", b"null", b"[]", b"{}", b'"\\u0000"', b"{"]
NASTY += [
    b"\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"PK\x03\x04",
    b"..",
    b"&a",
]


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the data with one to four changes."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        begin = int(rng.integers(0, len(changed) + 1))
        end = min(len(changed), begin + int(rng.integers(1, 40)))
        part = bytes(changed[begin:end])
        how = rng.integers(5)
        if how == 0 and part:
            changed[begin] ^= 1 << int(rng.integers(8))
        elif how == 1:
            del changed[begin:end]
        elif how == 2:
            changed[begin:begin] = part
        elif how == 3:
            changed[begin:end] = NASTY[rng.integers(len(NASTY))]
        else:
            place = int(rng.integers(0, len(changed) + 1))
            changed[place : place + len(part)] = part
    return bytes(changed)


class Loader:
    """A loader, a folder with good files, and which of these to mutate."""

    def __init__(self, folder: Path, read: Callable[[Path], object]) -> None:
        self.read, self.folder = read, folder
        self.good = {p: p.read_bytes() for p in folder.iterdir() if p.is_file()}

    def try_one(self, rng: np.random.Generator) -> str:
        """Read one mutated file; return ``read`` or the class of our error.

        Raises
        ------
        Exception
            What is no error of ours.
        """
        path = list(self.good)[rng.integers(len(self.good))]
        path.write_bytes(mutated(self.good[path], rng))
        try:
            self.read(path)
        except EmulatorError as error:
            return type(error).__name__
        finally:
            self.keep = path.read_bytes()
            path.write_bytes(self.good[path])
        return "read"


def loaders(folder: Path) -> dict[str, Loader]:
    """Return every loader with files that it reads, written into ``folder``."""
    problem, realization = two_machine_example(3)
    for name in ("npz", "profile", "scenario", "workload", "run"):
        (folder / name).mkdir()
    np.savez_compressed(folder / "npz/graph.npz", allow_pickle=False, **_graph())
    profile = ProfileFile.of(
        problem.job, Profile(realization.times, realization.volumes)
    )
    write_profile(folder / "profile/profile.json", profile)
    for name, path in shipped_scenarios().items():
        if path.stat().st_size < 4000:
            (folder / f"scenario/{name}.yaml").write_bytes(path.read_bytes())
    (folder / "workload/work.json").write_text(json.dumps(_workload()))
    run = RunDirectory(folder / "run")
    emulated = simulate(problem, realization, record_rates=True)
    run.write_json("problem.json", problem_to_json(problem))
    run.write_json("result.json", {"version": 1, **emulated.to_json()})
    run.write_json("simulated.json", emulated.to_json())
    if emulated.rates is not None:
        run.write_rates(emulated.rates)
    write_realization(run.path, realization)

    def read_run(path: Path) -> None:
        load_run(path.parent)
        if path.name == "rates.npz":
            read_rates(problem.job, path)
        if path.name == "realization.npz":
            read_realization(problem.job, path)

    return {
        "npz": Loader(folder / "npz", lambda p: npz_source(p, seed=0).load()),
        "profile": Loader(
            folder / "profile", lambda p: read_profile(p).profile(problem.job)
        ),
        "scenario": Loader(folder / "scenario", find_errors),
        "workload": Loader(folder / "workload", find_errors),
        "run": Loader(folder / "run", read_run),
    }


def _graph() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    pointers = np.arange(9)
    return {
        "adj_indices": np.roll(np.arange(8), 1),
        "adj_indptr": pointers,
        "adj_shape": np.array([8, 8]),
        "attr_data": np.ones(8, np.int64),
        "attr_indices": np.arange(8) % 4,
        "attr_indptr": pointers,
        "attr_shape": np.array([8, 4]),
        "labels": np.arange(8) % 3,
    }


def _workload() -> dict[str, object]:
    machine = {"nic": "1 GB/s"}
    tasks = [{"name": "a", "time": "1 s"}, {"name": "b", "time": [1, 2, 3]}]
    return {
        "name": "work",
        "cluster": {"machines": [{**machine, "name": "m", "count": 2}]},
        "job": {
            "system": "custom",
            "iterations": 3,
            "tasks": tasks,
            "flows": [{"from": "a", "to": "b", "volume": "1 MB"}],
        },
    }


def fuzz(loader: Loader, seed: int, seconds: float, failed: list[str]) -> str:
    """Read mutated files for so long; return what became of them, in words."""
    end = time.monotonic() + seconds
    rng, count, slowest = np.random.default_rng(seed), Counter[str](), 0.0
    while time.monotonic() < end:
        begun, wrong = time.process_time(), ""
        try:
            count[loader.try_one(rng)] += 1
        except Exception as error:  # noqa: BLE001 -- what is looked for
            wrong = f"{type(error).__name__}: {error}"
        took = time.process_time() - begun
        if took > _MOST:
            wrong = wrong or f"took {took:.1f} s"
        if wrong:
            kept = Path(f"fuzz-{loader.folder.name}-{len(failed)}")
            kept.write_bytes(loader.keep)
            failed.append(f"{wrong} ({kept})")
        slowest = max(slowest, took)
    told = ", ".join(f"{n} {what}" for what, n in count.most_common())
    return f"{sum(count.values())} files: {told}; slowest {slowest:.2f} s of CPU"


def main() -> int:
    """Fuzz every loader for its share of the time; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        found = loaders(Path(folder))
        for name, loader in found.items():
            share = options.seconds / len(found)
            print(f"{name}: {fuzz(loader, options.seed, share, failed)}")
    print(*failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
