"""Three programs on a virtual cluster, beside emu's own system of that kind.

    tools/study virtual_programs [OUT] [--only server-4]

Programs are those of `scenarios/virtual`: features by all_to_all beside `whole_graph`,
boundary rows that are an epoch old beside `pipegcn`, a parameter server beside a custom
job with one. Premises are equal: machines of 1 Gbit/s and 50 us, graphs with as many
rows between parts, weights of one size, no time for computing; max-min shares, and of
the server, which takes one gradient at a time, the shortest flow first. Three runs part
the difference: without latency, and with NCCL's messages, which all leave at once.

latency | what latency adds to a step, beyond what it adds in the system
gloo    | without latency, against NCCL's messages; a server's from anyone NCCL has not
rest    | NCCL's messages against the system's flows
job     | the run's recorded job, simulated, against the run
"""

from __future__ import annotations

import json
import math
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emu
from emu.graph_data.dataset import hash_parts
from emu.problem.schedule import Schedule
from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import load_lab, loads
from emu.virtual.launch import nodes_of_lab, plan_ranks
from emu.virtual.run_virtual import Settings, run_virtual
from tools.runner import Study, Work

LAB = Path(__file__).parent.parent.parent / "scenarios" / "virtual" / "lab.yaml"
RANKS = (4, 16)
LATENCIES = ("50 us", "0 s")
#: Steps of a run; lengths are those of the second half.
STEPS = 8
#: What scenarios/virtual/features.py states.
BATCH, FANOUT, DRAWN_VERTICES, CLASSES = 200, 10, 100_000, 256
#: What scenarios/virtual/boundary.py states, and the columns of both.
PART, BOUNDARY, PART_CLASSES, FEATURES = 2000, 300, 16, 128
#: Bytes of the weights of scenarios/virtual/server.py.
SERVED = 4 * (256 * 512 + 512 + 512 * 16 + 16)
#: Rates by which computing takes no time, and no rate is 0.
_NO_TIME = "0.001 ps"
_OPERATIONS = (
    "aggregate", "multiply", "sample", "collect", "collect_device", "step", "launch",
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """A program and a system of its kind: seconds of a step, bytes of a step."""

    case: str
    virtual: float
    system: float
    virtual_alone: float
    """Without latency, as what follows."""
    system_alone: float
    nccl_alone: float
    """With NCCL's messages; nan where it has none."""
    virtual_bytes: float
    system_bytes: float
    job: float
    """The recorded job's length over that of the run, less 1."""

    @property
    def parts(self) -> list[float]:
        """Shares of the system's step: `latency`, `gloo` and `rest`."""
        latency = self.virtual - self.virtual_alone
        beyond = latency - (self.system - self.system_alone)
        gloo = self.virtual_alone - self.nccl_alone
        rest = self.nccl_alone - self.system_alone
        if math.isnan(gloo):
            rest = self.virtual_alone - self.system_alone
        return [seconds / self.system for seconds in (beyond, gloo, rest)]


def work(_: Namespace) -> Iterator[Work[Compared]]:
    """Yield every program at every number of ranks."""
    for program in SYSTEMS:
        for ranks in RANKS:
            case = f"{program}-{ranks}"
            yield case, partial(compare, case, program, ranks)


def compare(case: str, program: str, ranks: int) -> list[Compared]:
    """Return the row of a program."""
    half = STEPS // 2
    usual, none = LATENCIES
    build = SYSTEMS[program]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        found = run(program, ranks, folder, STEPS, usual)
        alone = run(program, ranks, folder, half, none)
        nccl = math.nan
        if program != "server":
            nccl = run(program, ranks, folder, half, none, ("ring",)).step
        systems = {
            latency: [build(ranks, steps, folder, latency) for steps in (half, STEPS)]
            for latency in LATENCIES
        }

    steps = STEPS - half
    lengths = {}
    for latency, (shorter, longer) in systems.items():
        lengths[latency] = (longer.makespan - shorter.makespan) / steps
    shorter, longer = systems[usual]
    return [
        Compared(
            case=case,
            virtual=found.step,
            system=lengths[usual],
            virtual_alone=alone.step,
            system_alone=lengths[none],
            nccl_alone=nccl,
            virtual_bytes=(found.sent - alone.sent) / steps,
            system_bytes=(count_bytes(longer) - count_bytes(shorter)) / steps,
            job=found.job,
        )
    ]


@dataclass(frozen=True)
class VirtualRun:
    """Seconds and bytes of a run of a program."""

    step: float
    job: float
    sent: float


def run(
    program: str,
    ranks: int,
    folder: Path,
    steps: int,
    latency: str,
    algorithms: tuple[str, ...] = (),
) -> VirtualRun:
    """Run a program on a virtual cluster, without time for computing."""
    options = "--backend nccl" if algorithms else ""
    lab = load_lab(
        LAB,
        {
            "cluster.machines[0].count": ranks,
            "cluster.machines[0].nic": nic_of(latency),
            "lab.programs[0].env.PROGRAM": f"{program}.py",
            "lab.programs[0].env.STEPS": str(steps),
            "lab.programs[0].env.OPTIONS": options,
        },
    )
    settings = Settings(at_once=1, charge=1e-9, mark="step ", algorithms=algorithms)
    plans = plan_ranks(nodes_of_lab(lab))
    directory = RunDirectory.create(f"{program}-{ranks}", folder)
    result = run_virtual(lab, plans, directory, settings, lambda *_: None)
    recorded = emu.simulate(emu.load(directory.path, large=True))

    # A server's lines are answers: a step is one to every worker.
    lines = ranks - 1 if program == "server" else 1
    return VirtualRun(
        step=lines * result["steps"]["median"],
        job=recorded.makespan / result["makespan"] - 1,
        sent=sum(sum(row.values()) for row in result["bytes"].values()),
    )


def nic_of(latency: str) -> dict[str, str]:
    """Return the NIC of a machine."""
    return {"in": "1 Gbit/s", "out": "1 Gbit/s", "latency": latency}


def count_bytes(schedule: Schedule) -> float:
    """Return the bytes that crossed between machines."""
    problem = schedule.problem
    places = problem.placement.machine_of
    total = 0.0
    for edge, sizes in zip(problem.job.edges, schedule.flow_bytes, strict=True):
        if places[edge.source] != places[edge.destination]:
            total += float(np.nansum(sizes))
    return total


def features(ranks: int, steps: int, folder: Path, latency: str) -> Schedule:
    """Return the schedule of `whole_graph` where every vertex has FANOUT neighbours."""
    drawn = np.random.default_rng(0)
    vertices = np.arange(DRAWN_VERTICES)
    orders = [drawn.permutation(DRAWN_VERTICES) for _ in range(FANOUT // 2)]
    edges = np.concatenate([[vertices, order] for order in orders], axis=1)
    return simulate(
        cluster_of(ranks, latency),
        {
            "system": "whole_graph",
            "dataset": write_graph(folder, "drawn", edges, CLASSES),
            "model": {"kind": "sage", "hidden": CLASSES, "layers": 1},
            "fanouts": [FANOUT],
            "batch_size": BATCH,
            "iterations": steps,
            "features": "device",
            "cache": None,
            "credit_window": 1,  # a batch is drawn when the one before has been trained
            "rates": dict.fromkeys(_OPERATIONS, _NO_TIME),
        },
    )


def boundary(ranks: int, steps: int, folder: Path, latency: str) -> Schedule:
    """Return the schedule of `pipegcn` where each part reads BOUNDARY rows of each."""
    owners = hash_parts(ranks * PART, ranks, 0)
    members = [np.flatnonzero(owners == part) for part in range(ranks)]
    drawn = np.random.default_rng(0)
    edges = []
    for part, vertices in enumerate(members):
        edges.append([vertices, np.roll(vertices, 1)])
        for other in members[:part]:
            read = drawn.choice(vertices, BOUNDARY, replace=False)
            given = drawn.choice(other, BOUNDARY, replace=False)
            edges.append([read, given])
    return simulate(
        cluster_of(ranks, latency),
        {
            "system": "pipegcn",
            "dataset": write_graph(
                folder, "parts", np.concatenate(edges, axis=1), PART_CLASSES
            ),
            "partitioner": "hash",
            "model": {"kind": "gcn", "hidden": FEATURES, "layers": 2},
            "epochs": steps,
            "rates": dict.fromkeys(_OPERATIONS, _NO_TIME),
        },
    )


def server(ranks: int, steps: int, _: Path, latency: str) -> Schedule:
    """Return the schedule of workers and a server that answers each by itself."""
    workers = range(1, ranks)
    tasks: list[dict[str, Any]] = []
    flows: list[dict[str, Any]] = []
    places = {}
    for worker in workers:
        name = f"w{worker}"
        answer = f"s{worker}"
        tasks.append({"name": name, "kind": "worker", "time": "1 ns"})
        tasks.append({"name": answer, "server": "kv", "time": "1 ns"})
        size = f"{SERVED} B"
        flows.append({"from": name, "to": answer, "volume": size})
        flows.append({"from": answer, "to": name, "volume": size, "lag": 1})
        places[name] = f"m{worker}"
        places[answer] = "m0"
    job = {"system": "custom", "iterations": steps, "tasks": tasks, "flows": flows}
    placement = {"policy": "explicit", "tasks": places}
    return simulate(cluster_of(ranks, latency), job, placement=placement, rule="mrtf")


SYSTEMS = {"features": features, "boundary": boundary, "server": server}


def write_graph(
    folder: Path, name: str, edges: NDArray[np.int64], classes: int
) -> dict[str, str]:
    """Leave a graph for `job.dataset`, which is returned."""
    path = folder / name / "graph.npz"
    if not path.exists():
        path.parent.mkdir()
        vertices = int(edges.max()) + 1
        rows = np.zeros((vertices, FEATURES), np.float32)
        labels = np.arange(vertices) % classes
        np.savez(path, edge_index=edges, x=rows, y=labels)
    return {"name": name, "directory": str(folder)}


def cluster_of(ranks: int, latency: str) -> dict[str, Any]:
    """Return the machines of a job, as those of the programs."""
    machine = {"name": "m", "count": ranks, "cpu": 8, "gpu": 1, "nic": nic_of(latency)}
    return {"machines": [machine]}


def simulate(
    cluster: Mapping[str, Any],
    job: Mapping[str, Any],
    *,
    placement: Mapping[str, Any] | None = None,
    rule: str = "maxmin",
) -> Schedule:
    """Return the schedule of a job."""
    document = {
        "name": "beside",
        "cluster": cluster,
        "job": job,
        "placement": placement or {},
        "schedule": {"policy": rule},
        "emulation": {"time_scale": "auto"},
    }
    # JSON is YAML.
    return emu.simulate(loads(json.dumps(document)))


def table(rows: list[Compared], _: Namespace) -> Iterator[str]:
    """Yield a row per program and size, as Markdown."""
    yield (
        "program, ranks | virtual | own system | off | latency | gloo | rest | bytes | "
        "job"
    )
    yield "---|---|---|---|---|---|---|---|---"
    for row in rows:
        parts = ["-" if math.isnan(part) else f"{part:+.1%}" for part in row.parts]
        yield (
            f"{row.case} | {1e3 * row.virtual:.2f} ms | {1e3 * row.system:.2f} ms | "
            f"{row.virtual / row.system - 1:+.1%} | {' | '.join(parts)} | "
            f"{row.virtual_bytes / row.system_bytes - 1:+.2%} | {row.job:+.3%}"
        )


STUDY = Study(row=Compared, work=work, table=table)
