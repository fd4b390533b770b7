"""trace.json as an independent reader sees it."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emu.errors import DataError
from emu.prediction.simulation import simulate
from emu.problem import Schedule
from emu.report.lanes import pack_lanes
from emu.report.trace import trace_events, write_trace
from emu.testing import two_machine_example
from emu.testing.strategies import random_problem
from tests.report import trace_reader
from tests.report.recorded import schedules, with_deaths, write_run


def test_both_runs_are_there(run: Path, tmp_path: Path) -> None:
    emulated, _ = schedules()
    out = write_trace(run, tmp_path / "trace.json")
    trace = trace_reader.read(out)

    assert sorted(trace.processes.values()) == [
        "emulated: m0",
        "emulated: m1",
        "simulated: m0",
        "simulated: m1",
    ]
    assert min(trace.processes) == 1, "0 is the process of what idles"
    shown = trace_reader.names(trace)
    assert shown["w0 0"] == 2, "once emulated, once simulated"
    assert shown["s1->w0 2"] == 4, "where it leaves and where it arrives, in both"
    assert sum(shown.values()) == 2 * (6 * 3 + 2 * len(emulated.flows()))


def test_bars_are_the_schedule(run: Path, tmp_path: Path) -> None:
    emulated, _ = schedules()
    trace = trace_reader.read(write_trace(run, tmp_path / "trace.json"))
    (pid,) = [pid for pid, name in trace.processes.items() if name == "emulated: m0"]
    (track,) = [
        track
        for track, name in trace.threads.items()
        if track[0] == pid and name == "w0 (worker)"
    ]
    bars = np.array([(start, end) for start, end, *_ in trace.slices[track]]) / 1e6

    np.testing.assert_allclose(bars[:, 0], emulated.task_start[4])
    np.testing.assert_allclose(bars[:, 1], emulated.task_end[4])


def test_flows_say_their_latency_where_they_have_one() -> None:
    problem, realization = two_machine_example(2)
    near = simulate(problem, realization)
    m0, m1 = problem.cluster.machines
    machines = replace(m0, latency_out=0.25), replace(m1, latency_in=2.0)
    far = replace(problem, cluster=replace(problem.cluster, machines=machines))

    def latencies(schedule: Schedule) -> list[float | None]:
        events = trace_events({"simulated": schedule})
        told = [one["args"] for one in events if "bytes" in one.get("args", {})]
        assert len(told) == len(schedule.flows())
        return [args.get("latency_s") for args in told]

    assert latencies(near) == [None] * len(near.flows())
    delayed = latencies(simulate(far, realization))
    assert set(delayed) == {2.25, None}  # none on the way from m1 to m0


def test_attempts_before_the_last_are_bars_and_all_begin_at_0(tmp_path: Path) -> None:
    emulated, _ = schedules()
    out = write_trace(with_deaths(write_run(tmp_path / "run")), tmp_path / "trace.json")
    trace = trace_reader.read(out)
    shown: dict[str, list[tuple[float, float]]] = {}
    for track, slices in trace.slices.items():
        shown.setdefault(trace.processes[track[0]], []).extend(
            (start / 1e6, end / 1e6) for start, end, *_ in slices
        )
    assert shown["emulated: attempts"] == [
        *((0.0, 4.0), (4.0, 6.0), (6.0, 7.0)),
        *((7.0, 7.0), (7.0, 10.0), (10.0, 10.5)),
    ]
    assert shown["simulated: attempts"] == [(3.5, 7.5), (7.5, 9.5), (9.5, 10.5)]
    first = min(start for start, _ in shown["emulated: m0"] + shown["emulated: m1"])
    assert first == pytest.approx(10.5 + np.nanmin(emulated.task_start))


def test_a_flow_leaves_through_one_nic_and_comes_in_through_another(
    run: Path, tmp_path: Path
) -> None:
    trace = trace_reader.read(write_trace(run, tmp_path / "trace.json"))
    places = {
        (trace.processes[track[0]], trace.threads[track].rpartition(" ")[0])
        for track, bars in trace.slices.items()
        if any(name == "s1->w0 0" for _, _, name, _ in bars)
    }

    assert places == {
        (f"{kind}: {machine}", f"NIC {direction}")
        for kind in ("emulated", "simulated")
        for machine, direction in (("m1", "out"), ("m0", "in"))
    }


def test_arrows_are_the_dependencies(run: Path, tmp_path: Path) -> None:
    trace = trace_reader.read(write_trace(run, tmp_path / "trace.json"))
    arrows = Counter(trace.arrows)

    assert arrows["s1 0", "s1->w0 0"] == 2
    assert arrows["s1->w0 0", "w0 0"] == 2
    assert arrows["s0 0", "w0 0"] == 2, "a handoff within m0"
    assert arrows["p0->w0 0", "w0 1"] == 2, "lag 1"
    assert arrows["w0 0", "g1 2"] == 2, "a credit, window 2"


def test_counters_return_to_zero_and_stay_within_the_nic(
    run: Path, tmp_path: Path
) -> None:
    trace = trace_reader.read(write_trace(run, tmp_path / "trace.json"))

    assert {name for _, name in trace.counters} == {
        "NIC in, assigned rate (MB/s)",
        "NIC out, assigned rate (MB/s)",
        "not delivered (MB)",
    }
    for (_, name), levels in trace.counters.items():
        assert levels == sorted(levels, key=lambda level: level[0])
        assert levels[-1][1] == pytest.approx(0.0, abs=1e-12)
        if name.startswith("NIC"):
            assert max(value for _, value in levels) <= 10e-6 * (1 + 1e-9)


def test_half_a_run_is_half_a_trace(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "result.json").unlink()
    trace = trace_reader.read(write_trace(run))

    assert set(trace.processes.values()) == {"simulated: m0", "simulated: m1"}
    (run / "simulated.json").unlink()
    with pytest.raises(DataError, match="missing"):
        write_trace(run)


def test_random_runs_are_valid(tmp_path: Path) -> None:
    import json

    from emu.report.trace import trace_events

    rng = np.random.default_rng(2)
    for seed in range(20):
        schedule = simulate(*random_problem(rng))
        path = tmp_path / f"{seed}.json"
        events = [*trace_events({"simulated": schedule})]
        path.write_text(json.dumps({"traceEvents": events}))
        shown = trace_reader.names(trace_reader.read(path))
        tasks = schedule.task_end.size
        assert sum(shown.values()) == tasks + 2 * len(schedule.flows())


def test_lanes_are_as_few_as_overlap() -> None:
    rng = np.random.default_rng(1)
    start = rng.uniform(0, 10, 200)
    end = start + rng.uniform(0, 1, 200)
    lane, _ = pack_lanes(start, end)

    for number in range(lane.max() + 1):
        mine = np.argsort(start[lane == number])
        ends, begins = end[lane == number][mine], start[lane == number][mine]
        assert (ends[:-1] <= begins[1:]).all()
    most = max(int(((start <= t) & (end > t)).sum()) for t in start)
    assert lane.max() + 1 == most


def test_bars_that_meet_share_a_lane() -> None:
    lane, count = pack_lanes(np.array([0.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0]))

    assert (lane.tolist(), count) == ([0, 0, 1], 2)


def test_a_trace_processor_reads_it(run: Path, tmp_path: Path) -> None:
    """Perfetto's own reader, where its package and its binary are to be had."""
    perfetto = pytest.importorskip(
        "perfetto.trace_processor", reason="the perfetto package is not installed"
    )
    out = write_trace(run, tmp_path / "trace.json")
    try:
        processor = perfetto.TraceProcessor(trace=str(out))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"perfetto cannot fetch its trace processor: {error}")
    with processor:
        query = "select count(*) as bars from slice where name = 'w0 0'"
        assert next(iter(processor.query(query))).bars == 2


def test_what_waits_for_its_turn_is_not_delivered() -> None:
    schedule = simulate(*two_machine_example(3))
    flows = tuple(schedule.flows().T)
    ready = schedule.flow_ready[flows]
    assert (ready < schedule.flow_start[flows]).any()

    changes = {
        event["ts"]
        for event in trace_events({"simulated": schedule})
        if event["ph"] == "C" and event["name"].startswith("not delivered")
    }
    instants = [*ready, *schedule.flow_end[flows]]
    assert changes == {round(float(instant) * 1e6, 3) for instant in instants}
