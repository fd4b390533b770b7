"""Inputs that no command writes within this process: runs, labs, programs' traces.

Each function is a command of transcripts, `$ make NAME WORDS`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from emu.prediction.analysis.traffic import Traffic
from emu.problem.fields.cluster_section import ClusterSection
from emu.runs.array_files import SAMPLES, write_lines, write_traffic
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from emu.virtual.call_group import CallGroup
from emu.virtual.calls import Call
from emu.virtual.recorded_job import describe_job
from emu.virtual.transports import GLOO, Transport
from tests.interchange.test_kineto import gloo, operator, step, write_traces
from tests.interchange.test_workloads import as_graph, as_json, as_protobuf
from tests.lab.fitting.crossed import crossed
from tests.lab.fitting.test_fit import PROGRAMS
from tests.lab.test_prediction import LAB, separate
from tests.report.drawn_run import write_run_of
from tests.virtual.test_recorded_job import Program, make_calls

EXCHANGE = Path(__file__).parents[2] / "docs" / "exchange"


def unpacked(name: str, folder: str) -> None:
    """Unpack a run over sockets that is in docs/exchange."""
    shutil.unpack_archive(EXCHANGE / f"{name}.zip", folder)


def run(scenario: str, folder: str, iterations: str = "") -> None:
    """Write a run of a scenario, whose volumes were 3 % larger than predicted."""
    changes = {"job.iterations": int(iterations)} if iterations else {}
    experiment = prepare(load(scenario, changes))
    path, _ = write_run_of(Path(), experiment.problem, experiment.realization)
    path.rename(folder)


def virtual(transport: str, folder: str) -> None:
    """Write a virtual run of three ranks: calls of each kind, on unequal NICs."""
    matrix = [[0, 80_000, 30_000], [50_000, 0, 10_000], [20_000, 70_000, 0]]
    kinds = ("allreduce", "broadcast", "allgather", "alltoall", "reduce_scatter")
    calls = [
        Call(
            kind,
            {"size": 120_000 * (1 + n), "element": 4, "root": 2, "matrix": matrix},
            "",
        )
        for n, kind in enumerate(kinds)
    ]
    starts = [
        [0.010, 0.020, 0.031, 0.045, 0.050],
        [0.004, 0.024, 0.032, 0.033, 0.061],
        [0.007, 0.009, 0.018, 0.040, 0.070],
    ]
    program = Program(
        rates=[2e7, 5e7, 3e7],
        latency=2e-4,
        calls=calls,
        transport=GLOO if transport == "gloo" else Transport(("tree", "ring")),
        starts=starts,
    )
    group = CallGroup(range(3), transport=program.transport)
    records, _ = make_calls(program, group)
    machines = [
        {
            "name": f"m{rank}",
            "nic": {
                "in": f"{rate} B/s",
                "out": f"{rate} B/s",
                "latency": {"in": "0 s", "out": "200 us"},
            },
        }
        for rank, rate in enumerate(program.rates)
    ]
    cluster = ClusterSection.model_validate({"machines": machines})
    job = describe_job(transport, cluster, range(3), records, [group])
    seconds = [0.03, 0.02, 0.02, 0.025]
    result = {
        "makespan": max(record.end or 0.0 for record in records),
        "steps": {"count": 4, "first": 0.03, "median": 0.02, "seconds": seconds},
        "trust": "degraded",
        "reasons": ["ranks looked out of the window"],
    }
    directory = RunDirectory(Path(folder))
    directory.path.mkdir()
    directory.write_json("job.json", job)
    directory.write_json("virtual.json", result)


def lab(folder: str, rates: str) -> None:
    """Write a lab of servers and trainers whose NICs have so many Mbit/s."""
    document = separate(LAB)
    for machine, rate in zip(
        document["cluster"]["machines"], rates.split(","), strict=True
    ):
        machine["nic"] = f"{rate} Mbit/s"
    file = Path(f"{folder}.json")
    file.write_text(json.dumps(document))
    experiment = prepare(load(file))
    _write_lab(Path(folder), crossed(experiment.simulate(), PROGRAMS, packets=30))


def _write_lab(path: Path, traffic: Traffic) -> None:
    end = float(traffic.packets["time"][-1])
    machines = traffic.machines
    out, into = traffic.nics
    programs = [
        {"program": name, "machine": machine, "start": 0.01 * n, "end": end - 0.02 * n}
        | {"code": -15 if name == "server" else 0, "stopped": name == "server"}
        for name in traffic.programs
        for n, machine in enumerate(machines)
    ]
    content = {
        "wall_seconds": end,
        "startup_seconds": 0.3,
        "sharing": "fair",
        "nics": {
            name: {"out": out[n], "in": into[n]} for n, name in enumerate(machines)
        },
        "programs": programs,
        "failed": None,
        "events": [],
        "traffic": {
            name: {"out_bytes": 9000 + n, "in_bytes": 8000 + n}
            | {"out_packets": 70 + n, "in_packets": 60 + n}
            for n, name in enumerate(machines)
        },
        "tcp": {
            name: {"segments": 90 + n, "retransmitted": n, "timeouts": 2 - n}
            for n, name in enumerate(machines)
        },
        "dropped": {name: {"out": n, "in": 2 * n} for n, name in enumerate(machines)},
        "computed_seconds": 2.0,
        "waited_seconds": 0.01,
        "waited_share": 0.005,
        "trust": "trusted",
    }
    directory = RunDirectory(path)
    path.mkdir()
    directory.write_json("lab.json", content)
    write_traffic(path, traffic)
    lines = [f"step {n}" for n in range(6)]
    times = []
    for program in programs:
        (path / f"{program['program']}-{program['machine']}.log").write_text(
            "\n".join(lines) + "\n"
        )
        times.append(np.linspace(0.1, end, len(lines)))
    write_lines(path, times)
    time = np.linspace(0.0, end, 5)
    counts = np.outer(np.arange(5.0), np.arange(1.0, 1.0 + len(machines)))
    ways = np.stack([counts, 2 * counts], axis=1)
    directory.write_arrays(
        SAMPLES,
        time=time,
        ran=time / 2,
        waited=time / 40,
        retransmitted=counts,
        timeouts=counts // 3,
        dropped=ways,
        queued=3 * ways,
    )


#: Four ranks of a Chakra trace: computing, a sum of all, and messages round a ring.
def _nodes(rank: int) -> list[dict[str, Any]]:
    after, before = (rank + 1) % 4, (rank - 1) % 4
    return [
        {"id": 1, "type": 4, "micros": 3000 + 700 * rank},
        {"id": 2, "type": 7, "deps": [1], "comm_type": 0, "comm_size": 9000},
        {"id": 3, "type": 5, "deps": [1], "comm_size": 2000 + 100 * rank}
        | {"comm_dst": after, "comm_tag": 5},
        {"id": 4, "type": 6, "deps": [2], "comm_size": 2000 + 100 * before}
        | {"comm_src": before, "comm_tag": 5},
        {"id": 5, "type": 4, "deps": [3, 4], "micros": 5000 - 300 * rank},
        {"id": 6, "type": 7, "deps": [5], "comm_type": 2, "comm_size": 4000},
        {"id": 7, "type": 7, "deps": [5], "comm_type": 6, "comm_size": 8000},
        {"id": 8, "type": 4, "deps": [6, 7], "micros": 1000},
    ]


def chakra(form: str, name: str) -> None:
    """Write Chakra traces of four ranks, in a form: et, json, graph."""
    write = {"et": as_protobuf, "json": as_json, "graph": as_graph}[form]
    end = "et" if form == "et" else "json"
    for rank in range(4):
        Path(f"{name}.{rank}.{end}").write_bytes(write(_nodes(rank)))


def kineto(folder: str) -> None:
    """Write traces of torch.profiler of three ranks that use gloo, five steps each."""
    ranks = []
    for rank in range(3):
        events = []
        for n in range(5):
            at = 50.0 * n
            late = at + 12 + 3 * rank + (20 if (n, rank) == (2, 1) else 0)
            events += [
                step(n, at, at + 50),
                operator(at + 1, late),
                gloo(late, at + 38, size=8000 + 400 * n),
                operator(at + 39, at + 44 + rank, "aten::add"),
                gloo(at + 45, at + 49, "all_gather", 1200),
            ]
        ranks.append(events)
    Path(folder).mkdir()
    write_traces(Path(folder), *ranks)


def damaged(name: str) -> None:
    """Make four figures of a simulation false."""
    file = Path(name)
    content = json.loads(file.read_text())
    content["makespan"] += 1.0
    content["tasks"][3]["start"] -= 0.25
    content["flows"][5]["bytes"] *= 2
    content["flows"][9]["end"] -= 0.5
    content["reads"]["w0->file"][4] -= 2
    file.write_text(json.dumps(content))
