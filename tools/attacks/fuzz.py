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
import gc
import gzip
import json
import resource
import shutil
import tempfile
import time
from collections import Counter
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.traffic import OWNER, PACKET, Traffic
from emu.errors import EmulatorError
from emu.experiment.profiling import profile_from_trace
from emu.graph_data.partitioning import _silence
from emu.graph_data.readers.dgl_file import read_dgl, read_partitions
from emu.graph_data.readers.npz_file import npz_source
from emu.graph_data.readers.text_table import read_edges, read_numbers, read_words
from emu.graph_data.readers.torch_file import read_torch
from emu.input_file import one_error
from emu.problem import Profile
from emu.runs.array_files import FILE as TRAFFIC
from emu.runs.array_files import (
    SAMPLED,
    SAMPLES,
    read_rates,
    read_realization,
    read_samples,
    read_traffic,
    read_weights,
    write_realization,
    write_samples,
    write_traffic,
)
from emu.runs.audit_inputs import read_to_audit
from emu.runs.lab_file import FILE, read_lab
from emu.runs.problem_json import problem_to_json
from emu.runs.recorded_run import load_run
from emu.runs.retraining import read_progress
from emu.runs.run_directory import RunDirectory
from emu.runs.sweep_record import SweepRecord
from emu.scenario import find_errors
from emu.scenario.scenario_file import load_lab, loads, shipped_scenarios
from emu.scenario.workload_file import ProfileFile, read_profile, write_profile
from emu.simulation import simulate
from emu.testing import two_machine_example

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 5.0  # seconds of processor time for one file
_MOST_MEMORY = 500_000  # kB that reading adds to the peak
NASTY = [b"-1", b"1e999", b"9" * 30, b"nan", b"null", b"[]", b"{}", b'"\\u0000"', b"{"]
NASTY += [b"\x00", b"\xff" * 4, b"\x7f\xff\xff\xff", b"PK\x03\x04", b"..", b"&a"]


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
        self.good = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

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

    return {
        "npz": Loader(folder / "npz", lambda p: npz_source(p, seed=0).load()),
        "profile": Loader(
            folder / "profile", lambda p: read_profile(p).profile(problem.job)
        ),
        "scenario": Loader(folder / "scenario", find_errors),
        "workload": Loader(folder / "workload", find_errors),
        "run": Loader(folder / "run", read_run),
        "trace": Loader(_traces(folder / "trace"), read_trace),
        "lab": Loader(_lab(folder / "lab"), read_lab_file),
        "sweep": Loader(_sweep(folder / "sweep"), lambda p: SweepRecord(p.parent)),
        "text": Loader(_text_graph(folder / "text"), read_text_graph),
    }


def library_loaders(folder: Path) -> dict[str, Loader]:
    """Return those of files that torch and dgl write, where these are installed."""
    found: dict[str, Loader] = {}
    if util.find_spec("torch"):
        found["torch"] = Loader(_torch(folder / "torch"), read_torch)
    if util.find_spec("dgl"):
        found["dgl"] = Loader(_dgl(folder / "dgl"), read_dgl_file)
    return found


def read_run(path: Path) -> None:
    """Read a run as the commands do that look at one."""
    run = load_run(path.parent)
    _ = run.policy, repr(run), run.scenario
    if path.name == "rates.npz":
        read_rates(run.problem.job, path)
    elif path.name == "realization.npz":
        read_realization(run.problem.job, path)
    elif path.name == "weights.npz":
        read_weights(path.parent)
    elif path.name == "validation.csv":
        read_progress(path)
    elif path.name == "training.csv":
        _ = run.training
    elif path.name == "processes.json" or len(path.read_bytes()) % 4 == 0:
        subject = read_to_audit(path.parent)
        subject.audit(subject.tolerance, 1e-6)


def read_lab_file(path: Path) -> None:
    """Read the file of a lab's directory, or the lab itself."""
    if path.suffix == ".yaml":
        load_lab(path)
    else:
        readers = {FILE: read_lab, TRAFFIC: read_traffic, SAMPLES: read_samples}
        readers[path.name](path.parent)


def read_text_graph(path: Path) -> None:
    """Read edges, features or labels as `import_graph` does."""
    with one_error(path):
        if path.stem == "edges":
            read_edges(path, 8)
        elif path.stem.startswith("labels"):
            read_words(path)
        else:
            read_numbers(path)


def read_dgl_file(path: Path) -> None:
    """Read a graph, or the partitions that a file belongs to."""
    if path.suffix == ".bin":
        read_dgl(path)
    else:
        read_partitions(next(path.parents[path.parent.name != "parts"].glob("*.json")))


def read_trace(path: Path) -> None:
    """Read the ranges of a profiler's trace as the times of a small job."""
    kinds = ("graph_store", "sampler", "worker", "parameter_server")
    job = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.001},
        "partitioner": "hash",
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [3, 4],
        "batch_size": 8,
        "workers": 2,
        "iterations": 2,
        "times": dict.fromkeys(kinds, "1 ms"),
    }
    machines = [{"name": "m", "nic": "1 Gbit/s", "count": 2}]
    document = {"name": "traced", "cluster": {"machines": machines}, "job": job}
    profile_from_trace(loads(json.dumps(document)), path, {"worker": ["a", "b"]})


def _traces(folder: Path) -> Path:
    folder.mkdir()
    events = [
        {"ph": "X", "name": name, "cat": "user_annotation", "ts": 100 * n, "dur": 50}
        for n in range(5)
        for name in ("a", "b")
    ]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events})
    (folder / "trace.json").write_text(text)
    (folder / "trace.json.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def _lab(folder: Path) -> Path:
    folder.mkdir()
    way = {name: {"out": 1e6, "in": 1e6} for name in "ab"}
    program = {"program": "p", "machine": "a", "start": 0.0, "end": 3.0}
    crossed = ("out_bytes", "out_packets", "in_bytes", "in_packets")
    tcp = ("segments", "retransmitted", "timeouts")
    times = ("wall", "startup", "computed", "waited")
    lab = {
        **{f"{name}_seconds": 1.0 for name in times},
        "waited_share": 0.5,
        "sharing": "fair",
        "trust": "trusted",
        "nics": way,
        "programs": [{**program, "code": 0, "told": False}],
        "failed": None,
        "events": [{"time": 1.5, "machine": "b", "nic_out": 5e5, "nic_in": 5e5}],
        "dropped": {name: {"out": 0, "in": 0} for name in "ab"},
        "traffic": {name: dict.fromkeys(crossed, 9) for name in "ab"},
        "tcp": {name: dict.fromkeys(tcp, 9) for name in "ab"},
        "capture": {"lost": 7},
    }
    (folder / FILE).write_text(json.dumps(lab))
    packets = np.zeros(20, PACKET)
    packets["destination"], packets["bytes"] = 1, 100
    owners = np.zeros(2, OWNER)
    traffic = Traffic(packets, ("a", "b"), np.full((2, 2), 1e6), ("p",), owners)
    write_traffic(folder, traffic)
    axes: dict[str, tuple[int, ...]] = dict.fromkeys(SAMPLED, (9,))
    axes |= {"retransmitted": (9, 2), "timeouts": (9, 2)}
    axes |= {"dropped": (9, 2, 2), "queued": (9, 2, 2)}
    write_samples(folder, {name: np.ones(shape) for name, shape in axes.items()})
    (folder / "lab.yaml").write_text(
        "cluster:\n  machines: [{name: a, nic: 1 Mbit/s}, {name: b, nic: 1 Mbit/s}]\n"
        "lab:\n  programs:\n    - {name: p, on: [a], run: 'sleep 1'}\n"
    )
    return folder


def _sweep(folder: Path) -> Path:
    record = SweepRecord(folder)
    for n in range(5):
        record.add(f"k{n}", {"x": str(n), "seed": 0}, {"makespan": 2.5, "by": "oes"})
    return folder


def _text_graph(folder: Path) -> Path:
    folder.mkdir()
    edges = "\n".join(f"{n},{(n + 1) % 8}" for n in range(8))
    (folder / "edges.csv").write_text(f"source,destination\n{edges}\n")
    (folder / "features.txt").write_text("1 2 3.5\n4 5 6\n" * 4)
    (folder / "labels.csv.gz").write_bytes(gzip.compress(b"v,label\n0,a\n1,b\n"))
    return folder


def _torch(folder: Path) -> Path:
    import torch

    folder.mkdir()
    ends = torch.arange(8)
    graph = {"edge_index": torch.stack([ends, ends.roll(1)]), "x": torch.ones(8, 3)}
    torch.save(graph, folder / "graph.pt")
    torch.save(graph, folder / "old.pt", _use_new_zipfile_serialization=False)
    return folder


def _dgl(folder: Path) -> Path:
    import dgl
    import torch

    folder.mkdir()
    ends = torch.arange(40)
    graph = dgl.graph((ends, ends.roll(1)))
    graph.ndata["feat"], graph.edata["w"] = torch.ones(40, 2), torch.ones(40)
    graph.ndata["label"] = ends % 3
    for layout in ("coo", "csr", "csc"):
        dgl.save_graphs(str(folder / f"{layout}.bin"), [graph.formats(layout)])
    parts = str(folder / "parts")
    with _silence():
        dgl.distributed.partition_graph(graph, "own", 2, parts, part_method="random")
        gc.collect()  # it leaves files open
    return folder


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
