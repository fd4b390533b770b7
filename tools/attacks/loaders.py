"""Loaders of every kind of file, each with good files to be damaged."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Mapping
from importlib import util
from pathlib import Path
from zlib import crc32

import numpy as np

import emu
from emu.emulation.launch.ssh import read_hosts_file
from emu.errors import EmulatorError
from emu.experiment.trace_profile import profile_from_trace
from emu.graph_data.dataset import Dataset
from emu.graph_data.prepared import PreparedArrays
from emu.graph_data.readers.array_files import npz_source, read_torch
from emu.graph_data.readers.dgl_file import read_dgl
from emu.graph_data.readers.dgl_parts import read_partitions
from emu.graph_data.readers.edge_list import read_edge_list
from emu.graph_data.readers.ogb_folder import ogb_source
from emu.graph_data.readers.text_table import TableOptions
from emu.graph_data.readers.vertex_table import read_features, read_labels
from emu.graph_data.whole_graph import open_whole_graph
from emu.host.input_file import one_error
from emu.interchange.workload_formats import read_workload
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.iterations import fit_iterations
from emu.report.explanation_tables import explanation_tables
from emu.report.html.page import write_report
from emu.report.trace import write_trace
from emu.runs.array_files import FILE as TRAFFIC
from emu.runs.array_files import (
    SAMPLES,
    read_rates,
    read_realization,
    read_samples,
    read_traffic,
    read_weights,
)
from emu.runs.audit_inputs import read_to_audit
from emu.runs.lab_file import FILE, read_lab
from emu.runs.recorded_run import load_run
from emu.runs.sweep_record import SweepRecord
from emu.scenario import find_errors
from emu.scenario.scenario_file import load_lab, loads
from emu.scenario.workload_file import read_profile
from emu.systems.dgcl.plans import read_plans
from emu.testing import two_machine_example
from tools.attacks import good_files
from tools.attacks.good_files import AGGREGATION, NEEDS, PLAN_FACTS, TOPOLOGY
from tools.attacks.mutations import mutated_file


class Loader:
    """A loader, a folder with good files, and which of these to mutate."""

    def __init__(self, folder: Path, read: Callable[[Path], object]) -> None:
        self.read, self.folder = read, folder
        self.good = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    def try_one(self, rng: np.random.Generator) -> str:
        """Read one mutated file; return ``read`` or the class of our error.

        Raises what is no error of ours.
        """
        path = list(self.good)[rng.integers(len(self.good))]
        path.write_bytes(mutated_file(path.name, self.good[path], rng))
        try:
            with warnings.catch_warnings(action="error"):  # one line is an error's
                self.read(path)
        except EmulatorError as error:
            return type(error).__name__
        finally:
            self.keep = path.read_bytes()
            path.write_bytes(self.good[path])
        return "read"


def loaders(folder: Path, *only: str) -> dict[str, Loader]:
    """Return every loader with files that it reads, written into ``folder``.

    ``only``: the names of those that are wanted, where not all are.
    """
    kinds: dict[str, Callable[[Path], object]] = {
        "npz": lambda path: npz_source(path, seed=0).load(),
        "profile": lambda path: read_profile(path).profile(
            two_machine_example(3)[0].job, 1.0
        ),
        "scenario": read_scenario,
        "workload": read_scenario,
        "topology": lambda path: read_scenario(
            path if path.suffix == ".json" else path.with_name(f"of_{path.stem}.json")
        ),
        "run": read_run,
        "trace": read_trace,
        "lab": read_lab_file,
        "sweep": read_sweep,
        "text": read_text_graph,
        "ogb": lambda path: ogb_source(_above(path, "raw", "split")).load(),
        "packed_ogb": lambda path: ogb_source(_above(path, "raw", "split")).load(),
        "prepared": read_prepared,
        "plan": read_plan_files,
        "hosts": read_hosts_file,
        "imported": lambda path: read_workload(
            *(sorted(path.parent.glob("rank*")) or [path])
        ),
    }
    wanted = {name: kinds[name] for name in only or kinds}
    return _with_files(folder, wanted)


def _with_files(
    folder: Path, kinds: Mapping[str, Callable[[Path], object]]
) -> dict[str, Loader]:
    found = {}
    for name, read in kinds.items():
        (folder / name).mkdir()
        found[name] = Loader(getattr(good_files, f"{name}_files")(folder / name), read)
    return found


def _above(path: Path, *names: str) -> Path:
    """Return the folder that holds one of so many names, with the path in it."""
    return next(each.parent for each in path.parents if each.name in names)


def library_loaders(folder: Path) -> dict[str, Loader]:
    """Return those of files that torch and dgl write, where these are installed."""
    kinds: dict[str, Callable[[Path], object]] = {"torch": read_torch}
    kinds["dgl"] = read_dgl_file
    there = {name: read for name, read in kinds.items() if util.find_spec(name)}
    return _with_files(folder, there)


def read_scenario(path: Path) -> None:
    """Look for errors as `emu validate` does; a vague one is a traceback elsewhere.

    Raises what is no error of ours, and was made one without a key.
    """
    try:
        errors = find_errors(path)
    except EmulatorError as error:
        if isinstance(error.__cause__, _OF_CODE):
            raise error.__cause__ from error
        raise
    if errors:
        raise errors[0]


_OF_CODE = (TypeError, AttributeError, KeyError, IndexError, AssertionError)


def read_run(path: Path) -> None:
    """Read a run as the commands do that look at one, one of them by its content."""
    run = load_run(path.parent)
    _ = run.policy, repr(run), run.scenario
    of_its_own: dict[str, Callable[[], object]] = {
        "rates.npz": lambda: read_rates(run.problem.job, path),
        "realization.npz": lambda: read_realization(run.problem.job, path),
        "weights.npz": lambda: read_weights(path.parent),
        "training.csv": lambda: run.training,
    }
    of_its_own.get(path.name, lambda: None)()
    commands: list[Callable[[], object]] = [
        lambda: explanation_tables(emu.explain(run), 3, 1, {}),
        lambda: write_report(path.parent, path.parent.with_name("report.html")),
        lambda: write_trace(path.parent, path.parent.with_name("trace.json")),
        lambda: (run.tasks, run.flows, run.ports),
        lambda: None,
    ]
    which = crc32(path.read_bytes()) % (2 * len(commands))
    if path.name == "processes.json" or which >= len(commands):
        subject = read_to_audit(path.parent)
        subject.audit(subject.tolerance, 1e-6)
    else:
        commands[which]()


def read_sweep(path: Path) -> None:
    """Read what a sweep has done, and write its table."""
    record = SweepRecord(path.parent)
    record.take("k1", {"x": "1", "seed": 0})
    record.write_table(record.rows)


def read_lab_file(path: Path) -> None:
    """Read the file of a lab's directory, or the lab itself; report it, or fit it."""
    if path.suffix == ".yaml":
        load_lab(path)
        return
    readers = {FILE: read_lab, TRAFFIC: read_traffic, SAMPLES: read_samples}
    readers[path.name](path.parent)
    which = crc32(path.read_bytes()) % 4
    if which == 0:
        write_report(path.parent, path.parent.with_name("report.html"))
    elif which == 1 and path.name == TRAFFIC:
        with contextlib.suppress(Unfittable):
            fit_iterations(read_traffic(path.parent))


def read_prepared(path: Path) -> None:
    """Open a data set and its whole graph as processes do."""
    dataset = Dataset(PreparedArrays(path.parent.with_name("set")))
    whole = open_whole_graph(dataset, AGGREGATION)
    _ = dataset.structure, dataset.labels, dataset.train, dataset.owner
    for number in range(2):
        whole.part(number).vertices.sum()
        dataset.features(number).sum()


def read_plan_files(path: Path) -> None:
    """Read a plan; every other changed one has a checksum that is right."""
    manifest = path.parent / "manifest.json"
    if path == manifest:
        _use_plan(path.parent)
        return
    stated = manifest.read_text()
    if crc32(path.read_bytes()) % 2:
        content = json.loads(stated)
        size = {"bytes": path.stat().st_size, "crc32": crc32(path.read_bytes())}
        content["body"]["files"][path.name] = size
        body = json.dumps(content["body"], sort_keys=True)
        content["crc32"] = crc32(body.encode())
        manifest.write_text(json.dumps(content))
    try:
        _use_plan(path.parent)
    finally:
        manifest.write_text(stated)


def _use_plan(folder: Path) -> None:
    (plan,) = read_plans(PreparedArrays(folder), PLAN_FACTS, [NEEDS], TOPOLOGY)
    plan.cost(TOPOLOGY)
    plan.reverse(atomic=False)


def read_text_graph(path: Path) -> None:
    """Read edges, features or labels as `import_graph` does."""
    with one_error(path):
        if path.stem == "edges":
            read_edge_list(path, TableOptions())
        elif path.stem.startswith("labels"):
            read_labels(path, TableOptions())
        else:
            read_features(path, TableOptions())


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
