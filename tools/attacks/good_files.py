"""Good files of every kind, small ones, for the fuzzer to damage."""

from __future__ import annotations

import gc
import gzip
import json
import shutil
from pathlib import Path

import numpy as np

from emu.graph_data.dataset import _silence, open_dataset
from emu.graph_data.prepared import prepare_arrays
from emu.graph_data.readers.split_arrays import SPLIT
from emu.graph_data.whole_graph import Aggregation, open_whole_graph
from emu.prediction.analysis.traffic import OWNER, PACKET, Traffic
from emu.prediction.simulation import simulate
from emu.problem import Profile
from emu.runs.array_files import (
    REALIZATION,
    SAMPLED,
    SAMPLES,
    write_traffic,
)
from emu.runs.lab_file import FILE
from emu.runs.problem_json import problem_to_json
from emu.runs.run_directory import RunDirectory
from emu.runs.sweep_record import SweepRecord
from emu.scenario.scenario_file import list_scenarios, load
from emu.scenario.workload_file import ProfileFile, write_profile
from emu.systems.dgcl.planner import Needs, Topology
from emu.systems.dgcl.plans import make_plan, write_plans
from emu.testing import two_machine_example
from tools.attacks.workload_mutations import cases


def imported_files(folder: Path) -> Path:
    """Write a workload of every format of others, each in a folder of its own."""
    for name, case in cases().items():
        (folder / name).mkdir()
        for file, content in case.files.items():
            (folder / name / file).write_bytes(case.write(content))
    return folder


def trace_files(folder: Path) -> Path:
    """Write a trace of torch.profiler, plain and packed."""
    events = [
        {"ph": "X", "name": name, "cat": "user_annotation", "ts": 100 * n, "dur": 50}
        for n in range(5)
        for name in ("a", "b")
    ]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events})
    (folder / "trace.json").write_text(text)
    (folder / "trace.json.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def lab_files(folder: Path) -> Path:
    """Write what a lab leaves, and the lab's own file."""
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
        "programs": [{**program, "code": 0, "stopped": False}],
        "failed": None,
        "events": [{"time": 1.5, "machine": "b", "nic_out": 5e5, "nic_in": 5e5}],
        "dropped": {name: {"out": 0, "in": 0} for name in "ab"},
        "traffic": {name: dict.fromkeys(crossed, 9) for name in "ab"},
        "tcp": {name: dict.fromkeys(tcp, 9) for name in "ab"},
        "capture": {"lost": 7},
    }
    packets = np.zeros(20, PACKET)
    packets["destination"], packets["bytes"] = 1, 100
    owners = np.zeros(2, OWNER)
    traffic = Traffic(packets, ("a", "b"), np.full((2, 2), 1e6), ("p",), owners)
    axes: dict[str, tuple[int, ...]] = dict.fromkeys(SAMPLED, (9,))
    axes |= {"retransmitted": (9, 2), "timeouts": (9, 2)}
    axes |= {"dropped": (9, 2, 2), "queued": (9, 2, 2)}
    samples = {name: np.ones(shape) for name, shape in axes.items()}
    for name in ("changed", "steady"):
        run = folder / name
        run.mkdir()
        (run / FILE).write_text(json.dumps(lab))
        lab["events"] = []
        write_traffic(run, traffic)
        RunDirectory(run).write_arrays(SAMPLES, **samples)
    (folder / "lab.yaml").write_text(
        "cluster:\n  machines: [{name: a, nic: 1 Mbit/s}, {name: b, nic: 1 Mbit/s}]\n"
        "lab:\n  programs:\n    - {name: p, on: [a], run: 'sleep 1'}\n"
    )
    return folder


def sweep_files(folder: Path) -> Path:
    """Write the record of a sweep."""
    record = SweepRecord(folder)
    for n in range(5):
        record.add(f"k{n}", {"x": str(n), "seed": 0}, {"makespan": 2.5, "by": "oes"})
    return folder


def text_files(folder: Path) -> Path:
    """Write edges, features and labels as tables."""
    edges = "\n".join(f"{n},{(n + 1) % 8}" for n in range(8))
    (folder / "edges.csv").write_text(f"source,destination\n{edges}\n")
    (folder / "features.txt").write_text("1 2 3.5\n4 5 6\n" * 4)
    (folder / "labels.csv.gz").write_bytes(gzip.compress(b"id,label\n0,a\n1,b\n"))
    return folder


def torch_files(folder: Path) -> Path:
    """Write a graph as torch saves it, in its two formats."""
    import torch

    ends = torch.arange(8)
    graph = {"edge_index": torch.stack([ends, ends.roll(1)]), "x": torch.ones(8, 3)}
    torch.save(graph, folder / "graph.pt")
    torch.save(graph, folder / "old.pt", _use_new_zipfile_serialization=False)
    return folder


def dgl_files(folder: Path) -> Path:
    """Write a graph as dgl saves it, in three layouts and as partitions."""
    import dgl
    import torch

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


def graph_content() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """Return the arrays of a graph of eight vertices."""
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


def workload_content() -> dict[str, object]:
    """Return a workload of two tasks."""
    machine = {"nic": "1 GB/s"}
    tasks = [{"name": "a", "time": "1 s"}, {"name": "b", "time": ["1 s", "2 s", "3 s"]}]
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


def npz_files(folder: Path) -> Path:
    """Write a graph as the loaders of benchmarks know it."""
    np.savez_compressed(folder / "graph.npz", allow_pickle=False, **graph_content())
    return folder


def profile_files(folder: Path) -> Path:
    """Write times and volumes of the job of `two_machine_example`."""
    problem, realization = two_machine_example(3)
    stated = Profile(realization.times, realization.volumes)
    write_profile(folder / "profile.json", ProfileFile.of(problem.job, stated))
    return folder


def scenario_files(folder: Path) -> Path:
    """Copy the small ones of the scenarios that ship."""
    for name, path in list_scenarios().items():
        if path.stat().st_size < 4000 and "program:" not in (text := path.read_text()):
            made_up = "name: products-like, scale: 0.004"
            text = text.replace("name: amazon_computers", made_up)
            # Graphs that are drawn at their own size take up to 24 s of CPU each.
            training_scales = load(path).training_scales
            if training_scales:
                scale = 2 * max(training_scales)
                text = text.replace("drawn: true", f"drawn: true, scale: {scale:g}")
            (folder / f"{name}.yaml").write_text(text)
    return folder


def workload_files(folder: Path) -> Path:
    """Write a workload."""
    (folder / "work.json").write_text(json.dumps(workload_content()))
    return folder


def topology_files(folder: Path) -> Path:
    """Write a scenario whose links and routes are those of a file beside it."""
    machines = [{"name": f"m{n}", "nic": "1 GB/s"} for n in range(3)]
    links = [{"name": name, "bandwidth": "1 GB/s"} for name in ("up", "down", "nv")]
    routes = [
        {"from": "m0", "to": "m1", "through": ["up", "down"]},
        {"from": "m1", "to": "m2", "through": ["nv"]},
    ]
    racks = [{"name": "r", "machines": ["m0", "m1"], "uplink": "1 GB/s"}]
    box = {"machines": machines, "links": links, "routes": routes}
    (folder / "box.yaml").write_text(json.dumps(box))
    named = [{"name": "m", "count": 3, "nic": "1 GB/s"}]
    (folder / "racks.yaml").write_text(json.dumps({"machines": named, "racks": racks}))
    for name in ("box", "racks"):
        work = workload_content() | {"cluster": {"topology": f"{name}.yaml"}}
        (folder / f"of_{name}.json").write_text(json.dumps(work))
    return folder


def run_files(folder: Path) -> Path:
    """Write what a run leaves, of `two_machine_example`."""
    problem, realization = two_machine_example(3)
    run = RunDirectory(folder)
    emulated = simulate(problem, realization, record_rates=True)
    run.write_json("problem.json", problem_to_json(problem))
    run.write_json("result.json", {"version": 1, **emulated.to_json()})
    run.write_json("simulated.json", emulated.to_json())
    if emulated.rates is not None:
        run.write_arrays("rates.npz", **vars(emulated.rates))
    run.write_arrays(REALIZATION, **vars(realization))
    return folder


def ogb_files(folder: Path) -> Path:
    """Write a graph of eight vertices in OGB's text files."""
    edges = "".join(f"{n},{(n + 1) % 8}\n" for n in range(8))
    files = {
        "raw/edge": edges,
        "raw/node-feat": "1,2.5\n3,4\n" * 4,
        "raw/node-label": "0\n1\n" * 4,
        "raw/num-node-list": "8\n",
        "raw/num-edge-list": "8\n",
        **{f"split/x/{part}": f"{n}\n" for n, part in enumerate(SPLIT)},
    }
    for name, text in files.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    return folder


def packed_ogb_files(folder: Path) -> Path:
    """Write the same with arrays, as OGB's large graphs have them."""
    raw = ogb_files(folder) / "raw"
    ends = np.arange(8)
    np.savez(
        raw / "data.npz",
        allow_pickle=False,
        edge_index=np.stack([ends, np.roll(ends, 1)]),
        node_feat=np.ones((8, 2), np.float32),
    )
    labels = (ends % 2).reshape(-1, 1)
    np.savez_compressed(raw / "node-label.npz", allow_pickle=False, node_label=labels)
    return folder


def prepared_files(folder: Path) -> Path:
    """Copy a prepared data set, and its whole graph in parts."""
    dataset = open_dataset("products-like", scale=0.001, partitioner="hash", parts=2)
    open_whole_graph(dataset, AGGREGATION)
    for suffix in ("", "-whole-mean-loops"):
        name = dataset.folder.name + suffix
        shutil.copytree(dataset.folder.with_name(name), folder / f"set{suffix}")
    return folder


#: Of the whole graph of `prepared_files`.
AGGREGATION = Aggregation("mean", loops=True)
#: Devices and links of the plan of `plan_files`, and the rows that it brings.
TOPOLOGY = Topology(
    3,
    ("a", "b", "c"),
    np.array([1.0, 2.0, 1.0]),
    {(0, 1): (0,), (1, 0): (0,), (1, 2): (1,), (2, 1): (1,), (0, 2): (2, 0)},
)
NEEDS = Needs(
    np.arange(6), np.array([0, 0, 0, 1, 1, 2], np.int32), np.array([2, 6, 4, 1, 4, 2])
)
PLAN_FACTS = {"parts": "set", "key": "0"}


def plan_files(folder: Path) -> Path:
    """Write a plan of DGCL."""
    stated = {"kind": "spst", "seed": 0, "eps": 1e-3, "group": 1, "sweeps": 1}
    plan = make_plan(NEEDS, TOPOLOGY, stated)
    prepare_arrays(
        folder / "plan", lambda partial: write_plans(partial, [plan], PLAN_FACTS)
    )
    (folder / "plan.lock").unlink()
    return folder


def hosts_files(folder: Path) -> Path:
    """Write a file of hosts."""
    (folder / "hosts").write_text("10.0.0.1 30050\nnode-b # the other\n\nnode-c 22\n")
    return folder
