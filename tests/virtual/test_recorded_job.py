"""The job of a virtual run: as long as the run, by the same messages, to other readers.

Calls are made by gloo's scripts over `emu.virtual.streams`; the job that is recorded of
them is simulated by the scheduler of all jobs, which shares no code with those.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.problem.fields.cluster_section import ClusterSection
from emu.scenario import load, prepare
from emu.virtual.call_group import CallForm, CallGroup, MadeCall
from emu.virtual.calls import Call
from emu.virtual.cluster_server import Event, RankRecord
from emu.virtual.gloo_transport import HEADER
from emu.virtual.nccl_operations import ALGORITHMS
from emu.virtual.recorded_job import describe_job
from emu.virtual.transports import GLOO, CallsInOrder, Transport
from tests.virtual.test_gloo import Network

JOB = {
    "cluster": {"machines": [{"name": "m", "count": 2, "nic": "1 Gbit/s"}]},
    "job": {
        "system": "custom",
        "iterations": 1,
        "tasks": [{"name": "r0.0", "time": "3 ms"}, {"name": "r1.0", "time": "1 ms"}],
        "flows": [{"from": "r0.0", "to": "r1.0", "volume": "250 kB"}],
    },
    "placement": {"tasks": {"r0.0": "m0", "r1.0": "m1"}},
}
STEPS = {"count": 4, "first": 0.009, "median": 0.002, "seconds": [0.009, *[0.002] * 3]}
RESULT = {
    "makespan": 0.00601,
    "steps": STEPS,
    "trust": "degraded",
    "reasons": ["ranks looked out of the window"],
}
#: Calls of groups, of which each rank brings as many bytes.
KINDS = (
    *("allreduce", "reduce", "broadcast", "allgather", "gather", "scatter"),
    *("reduce_scatter", "reduce_scatter_list", "barrier"),
    "alltoall",
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run directory with a job of 3 + 2 + 1 ms."""
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    (tmp_path / "virtual.json").write_text(json.dumps(RESULT))
    return tmp_path


@dataclass(frozen=True)
class Program:
    """Calls that all ranks make one after the other, and then wait for."""

    rates: list[float]
    """Bytes per second of every NIC, each way."""
    latency: float
    calls: list[Call]
    transport: Transport
    starts: list[list[float]]
    """Seconds at which every rank makes each call."""


@st.composite
def programs(draw: st.DrawFn, transport: Transport = GLOO) -> Program:
    """Draw a program of two to four ranks that are not equally early."""
    ranks = draw(st.integers(2, 4))
    rates = st.floats(5e6, 2e8)
    kinds = [kind for kind in KINDS if not transport.is_nccl or kind in ALGORITHMS]
    calls = [
        draw(calls_of(ranks, kinds, transport)) for _ in range(draw(st.integers(1, 3)))
    ]
    gaps = st.lists(st.floats(1e-4, 0.03), min_size=len(calls), max_size=len(calls))
    starts = []
    for _ in range(ranks):
        gaps_of_rank = draw(gaps)
        starts.append([sum(gaps_of_rank[: n + 1]) for n in range(len(calls))])
    return Program(
        rates=draw(st.lists(rates, min_size=ranks, max_size=ranks)),
        latency=draw(st.floats(1e-6, 2e-3)),
        calls=calls,
        transport=transport,
        starts=starts,
    )


@st.composite
def calls_of(
    draw: st.DrawFn, ranks: int, kinds: list[str], transport: Transport
) -> Call:
    """Draw a call of a group of so many ranks, of elements of four bytes."""
    kind = draw(st.sampled_from(kinds))
    parts = st.lists(st.integers(0, 500_000), min_size=ranks, max_size=ranks)
    figures: dict[str, Any] = {
        "size": 4 * ranks * draw(st.integers(1, 100_000)),
        "element": 4,
        "root": draw(st.integers(0, ranks - 1)),
        "matrix": draw(st.lists(parts, min_size=ranks, max_size=ranks)),
    }
    if kind == "reduce_scatter_list" and not transport.is_nccl:
        sizes = st.integers(0, 100_000).map(lambda count: 4 * count)
        figures["parts"] = draw(st.lists(sizes, min_size=ranks, max_size=ranks))
    return Call(kind, figures, "")


def of_member(call: Call, member: int) -> Call:
    """Return a call as a member makes it: of an exchange it knows its own part."""
    matrix = call.figures["matrix"]
    if call.kind != "alltoall":
        return call
    given = matrix[member]
    taken = [row[member] for row in matrix]
    return Call(call.kind, {"given": given, "taken": taken}, "")


def make_calls(program: Program, group: CallGroup) -> tuple[list[RankRecord], float]:
    """Make the calls of a program; return what each rank did, and the bytes sent."""
    ranks = len(program.rates)
    transport = program.transport
    network = Network(program.rates, program.latency, transport.wire)
    queues = [CallsInOrder() for _ in range(ranks)]
    records = [RankRecord() for _ in range(ranks)]
    posts = []
    for rank, starts in enumerate(program.starts):
        posts += [(start, rank, slot) for slot, start in enumerate(starts)]
    for start, rank, slot in sorted(posts):
        network.go_on(start)
        call = of_member(program.calls[slot], rank)
        made = MadeCall(rank, CallForm(group, rank, call), name=slot, slot=slot)
        records[rank].events.append(Event("post", start, made))
        lanes = made.form.lanes
        if transport.is_nccl:
            begin = partial(network.begin_call, made, queues[rank].end)
            queues[rank].add(begin)
        else:
            (lane,) = lanes
            is_barrier = call.kind == "barrier"
            network.begin_steps(rank, lane.steps, slot, is_barrier=is_barrier)
    network.go_on()

    for rank, record in enumerate(records):
        ends = network.all_ends[rank]
        for event in record.events:
            assert event.call
            event.call.ended = ends[event.call.slot]
        last = max(ends.values())
        names = range(len(program.calls))
        record.events.append(Event("wait", program.starts[rank][-1], names=names))
        record.events.append(Event("go", last))
        record.end = last
    return records, float(network.messages.count_written(network.group).sum())


@given(programs())
def test_the_job_takes_as_long_as_the_calls_did(program: Program) -> None:
    """However late ranks are, whatever their NICs, over queues of two workers."""
    # Frames of headers that are written at one instant have another order.
    headers = 4 * HEADER / min(program.rates)
    check_job(program, relative=1e-9, seconds=headers)


@given(st.sampled_from([("ring",), ("tree", "ring")]), st.data())
def test_the_job_of_nccl_s_messages_is_exact(
    algorithms: tuple[str, ...], data: st.DataObject
) -> None:
    """They have no frames beside the data, and go one call after the other."""
    program = data.draw(programs(Transport(algorithms)))

    check_job(program, relative=1e-9, seconds=0.0)


@pytest.mark.parametrize("late", range(3))
def test_messages_of_one_instant_go_in_the_order_of_the_run(late: int) -> None:
    """A late rank is ready for two trees at once, which share connections."""
    figures = {"size": 786_432, "element": 4, "root": 0, "matrix": []}
    starts = [[0.01] if rank == late else [1e-4] for rank in range(3)]
    program = Program(
        rates=[1e8] * 3,
        latency=1e-6,
        calls=[Call("allreduce", figures, "")],
        transport=Transport(("tree",)),
        starts=starts,
    )

    check_job(program, relative=1e-9, seconds=0.0)


def check_job(program: Program, relative: float, seconds: float) -> None:
    """Check that the job of a program is as long as its calls, with as many bytes."""
    group = CallGroup(range(len(program.rates)), transport=program.transport)
    records, sent = make_calls(program, group)
    machines = [
        {
            "name": f"m{rank}",
            "nic": {
                "in": f"{rate} B/s",
                "out": f"{rate} B/s",
                "latency": {"in": "0 s", "out": f"{program.latency} s"},
            },
        }
        for rank, rate in enumerate(program.rates)
    ]
    cluster = ClusterSection.model_validate({"machines": machines})
    ranks = range(len(records))
    scenario = describe_job("drawn", cluster, ranks, records, [group])
    with TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(scenario))
        experiment = prepare(load(file))

    schedule = experiment.simulate()
    ends = [record.events[-1].time for record in records]
    assert schedule.makespan == pytest.approx(max(ends), rel=relative, abs=seconds)
    assert schedule.flow_bytes.sum() == pytest.approx(sent, rel=1e-9)


@pytest.mark.parametrize("machine_of", [[0, 1, 1, 1, 2], [0, 0, 0, 1, 2], [2] * 3])
def test_every_machine_has_a_core_for_each_rank_of_the_fullest_or_what_is_stated(
    machine_of: list[int],
) -> None:
    names = [{"name": f"m{number}", "nic": "1 Gbit/s"} for number in range(3)]
    cluster = ClusterSection.model_validate(
        {"machines": [{**names[0], "cpu": 9}, *names[1:]]}
    )
    records = [RankRecord([Event("end", 1.0)], end=1.0) for _ in machine_of]

    scenario = describe_job("cores", cluster, machine_of, records, [])

    cores = [machine["cpu"] for machine in scenario["cluster"]["machines"]]
    assert cores == [9, 3, 3]


def test_a_task_takes_on_its_machine_what_it_took_in_the_run() -> None:
    """Machine m1 computes four times as fast as this computer, and has half a core."""
    names = [{"name": f"m{number}", "nic": "1 Gbit/s"} for number in range(2)]
    cluster = ClusterSection.model_validate(
        {"machines": [names[0], {**names[1], "speed": 4, "cpu": 0.5}]}
    )
    events = [Event("mark", 0.5), Event("mark", 2.0)]
    records = [RankRecord(events, end=2.25), RankRecord(events, end=3.0)]

    scenario = describe_job("fast", cluster, [0, 1], records, [])

    times = {task["name"]: task["time"] for task in scenario["job"]["tasks"]}
    assert times == {
        "r0.0": "500 ms",
        "r0.1": "1.5 s",
        "r0.2": "250 ms",
        "r1.0": "2 s",
        "r1.1": "6 s",
        "r1.2": "4 s",
    }
    demands = [task.get("demands") for task in scenario["job"]["tasks"]]
    assert demands == [{"cpu": 1.0}, None, None, {"cpu": 0.5}, None, None]


def test_the_directory_stands_for_its_job(run: Path) -> None:
    out = run / "out.json"
    fast = ["--set", "cluster.machines[0].nic=2 Gbit/s"]
    for options, makespan in (([], 0.006), (fast, 0.005)):
        words = ["simulate", str(run), *options, "--json", str(out)]
        shown = CliRunner().invoke(app, words, catch_exceptions=False).stdout
        assert json.loads(out.read_text())["makespan"] == pytest.approx(makespan)
        assert "emu fit" not in shown  # which refuses it

    explained = CliRunner().invoke(app, ["explain", str(run)])
    assert "Why this long" in explained.stdout
    assert CliRunner().invoke(app, ["validate", str(run)]).exit_code == 0


def invoke(*words: str) -> str:
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert not done.stderr  # nothing is missing of it
    return done.stdout


def test_its_page_has_the_run_s_figures_and_the_job_s_pictures(run: Path) -> None:
    invoke("report", str(run))
    page = (run / "report.html").read_text()
    assert "6.01 ms" in page
    assert "-0.166 %" in page  # the simulation's 6 ms beside it
    assert "ranks looked out of the window" in page
    assert "training.csv" not in page

    invoke("report", str(run), "--as", "trace")
    names = {
        event["name"]
        for event in json.loads((run / "trace.json").read_text())["traceEvents"]
    }
    assert "r0.0 0" in names
    invoke("report", str(run), "--as", "csv")
    (flow,) = csv.DictReader((run / "flows.csv").read_text().splitlines())
    assert float(flow["bytes"]) == 250_000
    invoke("report", str(run), "--as", "chakra")
    assert len([*(run / "chakra").glob("*.et")]) == 2
    assert "keeps (5)-(15)" in invoke("audit", str(run))


def test_its_steps_stand_beside_those_of_a_lab(run: Path) -> None:
    lab = run / "lab.csv"
    lab.write_text("iteration,seconds\n" + "".join(f"{n},0.004\n" for n in range(6)))
    out = run / "out.json"
    invoke("compare", str(run), str(lab), "--json", str(out))

    row, measured = json.loads(out.read_text())
    assert row["virtual"]["mean"] == 0.00601
    (figures,) = measured["rows"]
    assert figures["schedule"] == "virtual"
    assert figures["here"] == pytest.approx(0.002)
    assert figures["iterations"] == 3
    assert figures["error"] == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("words", "told"), [("share", "job.json"), ("evaluate", "evaluates its weights")]
)
def test_what_it_has_not_is_refused_with_what_there_is(
    run: Path, words: str, told: str
) -> None:
    names = [words, str(run), *([str(run / "out.zip")] * (words == "share"))]

    done = CliRunner().invoke(app, names)

    assert done.exit_code != 0
    assert told in f"{done.stderr} {done.exception}"
