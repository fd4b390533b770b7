"""The memory that a dry run states, against runs that measured it."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment import dry_run as dry_run_module
from emu.experiment import machine_memory
from emu.experiment.dry_run import (
    DryRun,
    count_host_processes,
    dry_run,
    strain,
    training_memory,
)
from emu.experiment.machine_memory import _Payloads, most_waiting
from emu.prediction.simulation import simulate
from emu.scenario import load, prepare
from emu.scenario.scenario_file import loads
from emu.testing.strategies import random_problem
from tests.integration.scenarios import carried_out
from tests.leftovers import Leftovers


def drawn(seed: int) -> dict[str, Any]:
    """Return a job of which payload piles up at slow readers, some on one machine."""
    rng = np.random.default_rng(seed)
    readers = int(rng.integers(1, 4))
    names = [f"r{n}" for n in range(readers)]
    return {
        "name": "piles",
        "cluster": {"machines": [{"name": "m", "count": 2, "nic": "10 GB/s"}]},
        "job": {
            "system": "custom",
            "iterations": int(rng.integers(3, 20)),
            "credit_window": "unlimited",
            "tasks": [{"name": "w", "time": f"{rng.uniform(0.01, 0.1):.3f} s"}]
            + [{"name": r, "time": f"{rng.uniform(0.05, 0.5):.3f} s"} for r in names],
            "flows": [
                {"from": "w", "to": r, "volume": f"{rng.integers(100, 2000)} kB"}
                for r in names
            ],
        },
        "placement": {
            "policy": "explicit",
            "tasks": {"w": "m0"} | {r: f"m{rng.integers(2)}" for r in names},
        },
        "emulation": {"time_scale": 0.3, "byte_scale": 1},
    }


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("seed", range(3))
def test_memory_of_a_run_is_within_its_bound(
    seed: int, tmp_path: Path, leftovers: Leftovers
) -> None:
    file = tmp_path / "piles.json"
    file.write_text(json.dumps(drawn(seed)))
    known = dry_run(prepare(load(file)))
    result = carried_out(file, tmp_path).result
    leftovers.note()
    waited = result["memory"]["total_high_water"]

    assert waited <= known.waiting <= 4 * waited
    assert result["startup"]["memory"] <= known.memory


def ring(tasks: int, machines: int, **emulation: Any) -> dict[str, Any]:
    """Return a job of a ring of tasks that stand on machines by turns."""
    names = [f"t{n}" for n in range(tasks)]
    behind = [*names[1:], names[0]]
    ends = zip(names, behind, strict=True)
    return {
        "name": "ring",
        "cluster": {"machines": [{"name": "m", "count": machines, "nic": "1 GB/s"}]},
        "job": {
            "system": "custom",
            "iterations": 2,
            "tasks": [{"name": name, "time": "20 ms"} for name in names],
            "flows": [
                {"from": source, "to": reader, "lag": 1, "volume": "10 kB"}
                for source, reader in ends
            ],
        },
        "placement": {
            "policy": "explicit",
            "tasks": {name: f"m{n % machines}" for n, name in enumerate(names)},
        },
        "emulation": {"time_scale": 20, **emulation},
    }


@pytest.mark.parametrize(
    ("emulation", "cores", "expected"),
    [
        ({}, 1, 18),
        ({"processes": "machine"}, 64, 3),
        ({"processes": "auto"}, 2, 3),
        ({"processes": "auto"}, 3, 18),
        ({"processes": "auto", "compute": "padded"}, 2, 18),
    ],
)
def test_processes_of_the_host_are_those_that_it_starts(
    emulation: dict[str, str],
    cores: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emu.experiment.dry_run.usable_cores", lambda: cores)
    scenario = ring(18, 3, **emulation)
    assert count_host_processes(prepare(loads(json.dumps(scenario)))) == expected


def test_a_task_that_is_killed_has_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emu.experiment.dry_run.usable_cores", lambda: 1)
    scenario = ring(18, 3, processes="auto")
    scenario["events"] = [{"at": "10 ms", "kill": "t1"}]
    assert count_host_processes(prepare(loads(json.dumps(scenario)))) == 18


@pytest.mark.emulation
@pytest.mark.untimed
def test_tasks_that_share_a_process_need_little_memory(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    file = tmp_path / "ring.json"
    file.write_text(json.dumps(ring(120, 2, processes="machine")))
    known = dry_run(prepare(load(file)))
    started = carried_out(file, tmp_path).result["startup"]
    leftovers.note()

    assert started["memory"] <= known.memory < 120 * 4e7 / 3


P3 = Path(__file__).parents[2] / "scenarios" / "p3_amazon.yaml"
SMALL = [
    "job.dataset={name: products-like, scale: 0.004}",
    "job.iterations=6",
    "expect=null",
    "emulation.time_scale=1",
]


@pytest.mark.parametrize("how", ["real", "padded"])
def test_who_computes_has_torch_and_its_tensors(how: str) -> None:
    """Two processes of P3, 120 MB each and six times the largest payload near each."""
    real, timed = (
        prepare(load(P3, [*SMALL, f"emulation.compute={compute}"]))
        for compute in (how, "timed")
    )
    job, volumes = real.problem.job, real.realization.volumes
    tensors = 0.0
    for tasks in job.processes.values():
        learns = {t for t in tasks if job.tasks[t].phase != "sampling"}
        if not learns:  # a sampler's process
            continue
        near = [
            volumes[e].max()
            for e, edge in enumerate(job.edges)
            if {edge.source, edge.destination} & learns
        ]
        tensors += 6 * max(near)

    assert training_memory(timed, 1.0) == 2e8  # the command's own
    assert training_memory(real, 1.0) == pytest.approx(2e8 + 2 * 1.2e8 + tensors)
    assert training_memory(real, 2.0) == pytest.approx(2e8 + 2 * 1.2e8 + 2 * tensors)
    custom = prepare(loads(json.dumps(drawn(0)), ["emulation.compute=padded"]))
    assert training_memory(custom, 1.0) == 0.0


@pytest.mark.nightly
@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.cold
def test_processes_that_train_are_within_the_bound(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    pytest.importorskip("torch")
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            held = 0
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    held += process.memory_full_info().pss
            peak[0] = max(peak[0], held)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        carried_out(P3, tmp_path, *SMALL)
    finally:
        over.set()
        watching.join()
    leftovers.note()

    # Of that 200 MB are for the command, which is not among them.
    assert 0 < peak[0] <= dry_run(prepare(load(P3, SMALL))).memory - 2e8


@pytest.mark.parametrize("seed", range(40))
def test_what_waits_is_counted_at_every_start(seed: int) -> None:
    """Payload by payload: what was begun and not yet read to the end, ties included."""
    problem, run = random_problem(np.random.default_rng(seed), ties=True)
    schedule, job = simulate(problem, run), problem.job
    there: list[tuple[float, float, float]] = []
    twice = 0.0
    for e, edge in enumerate(job.edges):
        sent = 0 if edge.credit or job.control[e] else job.flow_counts[e]
        for n in range(sent):
            read = schedule.task_end[edge.destination, n + edge.lag]
            end = schedule.makespan if edge.latest else read
            begin = schedule.task_start[edge.source, n]
            there.append((begin, end, run.volumes[e, n]))
        twice += max(run.volumes[e, :sent], default=0.0)
    peak = max(
        (sum(b for begin, end, b in there if begin <= t <= end) for t, *_ in there),
        default=0.0,
    )
    # A quarter more is for buffers, whose sizes are rounded.
    expected = pytest.approx(1.25 * (peak + twice), rel=1e-12)
    assert most_waiting(schedule, run.volumes) == expected


@pytest.mark.parametrize("seed", range(20))
def test_no_more_waits_than_all_payloads(seed: int) -> None:
    """Machine by machine: all that its edges carry, each edge once, and the largest."""
    rng = np.random.default_rng(seed)
    problem, run = random_problem(rng, ties=True)
    job = problem.job
    payloads = _Payloads(simulate(problem, run), run.volumes)
    senders, receivers = rng.integers(4, size=(2, len(job.edges)))
    possible = payloads.most_possible(senders, receivers, 4)

    for machine, most in enumerate(possible):
        is_asked = (senders == machine) | (receivers == machine)
        assert payloads.most_waiting(is_asked) <= most
        sizes = 0.0
        for edge in np.flatnonzero(is_asked).tolist():
            is_order = job.control[edge] or job.edges[edge].credit
            sent = 0 if is_order else job.flow_counts[edge]
            volumes = run.volumes[edge, :sent]
            sizes += volumes.sum() + volumes.max(initial=0.0)
        assert most == pytest.approx(1.25 * sizes, rel=1e-6)


def test_a_run_that_does_not_fit_this_host_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "piles.json"
    file.write_text(json.dumps(drawn(0)))
    known = dry_run(prepare(load(file)))

    class Little:
        available = known.memory - 1

    monkeypatch.setattr(psutil, "virtual_memory", Little)
    for words in (["--dry-run"], ["--runs", str(tmp_path / "runs")]):
        ended = CliRunner().invoke(app, ["run", str(file), *words])
        assert ended.exit_code == 2
        assert "emulation.byte_scale" in ended.stderr
        assert "free: state a smaller" in ended.stderr
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("key", ["time_scale", "byte_scale"])
def test_a_scale_that_no_host_keeps_to_is_warned_of(seed: int, key: str) -> None:
    document = drawn(seed)
    document["placement"]["tasks"]["r0"] = "m1"  # something leaves a machine
    rng = np.random.default_rng([seed, len(key)])
    factor = 10 ** float(rng.uniform(6, 7))
    changed = 1 / factor if key == "time_scale" else factor
    document["emulation"] |= {key: changed}
    scenario = loads(json.dumps(document))
    cores, loopback = int(rng.integers(1, 64)), float(rng.uniform(1e8, 1e10))
    said = strain(dry_run(prepare(scenario)), cores, loopback)
    enough = re.search(r"auto, or (\S+) or more$", said)
    assert enough is not None, said

    slower = loads(json.dumps(document), {"emulation.time_scale": float(enough[1])})
    assert not strain(dry_run(prepare(slower)), cores, loopback)


@pytest.mark.parametrize("name", ["golden", "demo"])
def test_no_shipped_scenario_is_warned_of(name: str) -> None:
    known = dry_run(prepare(load(name)))

    assert not strain(known, 2, 1e9)
    assert not strain(known, 2, None)


#: A run of 2 wall seconds with 8,000 ends, of which the peak is 1 GB/s.
KNOWN = DryRun(
    time_scale=0.5,
    byte_scale=1.0,
    makespan=4.0,
    processes=3,
    flows=2,
    ends=8_000,
    payload=1.0,
    waiting=1.0,
    memory=1.0,
    wall_seconds=2.0,
    peak_traffic=1e9,
    sensitivity=0.0,
)


def test_ends_take_half_a_millisecond_of_a_core_each() -> None:
    """They are 4 s of CPU in 2 s: two cores are just enough, and one is not."""
    assert strain(KNOWN, 2, None) == ""
    said = strain(KNOWN, 1, None)
    assert said.startswith("too fast for this host with 1 cores: 4e+03 ends of tasks")
    # Twice as slow as what is twice too fast.
    assert said.endswith("auto, or 2 or more")
    assert strain(replace(KNOWN, time_scale=None), 1, None) == ""
    assert strain(replace(KNOWN, wall_seconds=0.0), 1, None) == ""
    assert strain(replace(KNOWN, peak_traffic=None), 1, None) == ""


def test_two_cores_carry_half_of_what_a_connection_does() -> None:
    """Two cores, or one, carry 1 GB/s where a connection has 2; six cores carry 3."""
    few = replace(KNOWN, ends=1)
    assert strain(few, 2, 2e9) == strain(few, 1, 2e9) == ""
    said = strain(replace(few, peak_traffic=3.5e9), 6, 2e9)
    assert "28 Gbit/s at the peak, where 24 Gbit/s are carried" in said
    assert said.endswith("auto, or 1.2 or more")
    assert strain(replace(few, peak_traffic=3e9), 6, 2e9) == ""
    both = strain(replace(KNOWN, peak_traffic=4e9), 1, 2e9)
    assert both.endswith("auto, or 4 or more")


@pytest.mark.parametrize(
    ("trains", "room", "is_refused"),
    [(True, 10.0, False), (True, 9.0, True), (False, 9.0, False), (True, None, False)],
)
def test_memory_lacks_where_less_is_stated_than_needed(
    trains: bool,  # noqa: FBT001
    room: float | None,
    is_refused: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """m0 needs 10 bytes; m1 states 1 and takes no part, m2 states nothing."""
    rooms = {"m0": room, "m1": 1.0, "m2": None}
    if room is None:
        rooms["m1"] = None
    machines = [
        SimpleNamespace(name=name, resources={} if size is None else {"memory": size})
        for name, size in rooms.items()
    ]
    experiment: Any = SimpleNamespace(
        problem=SimpleNamespace(cluster=SimpleNamespace(machines=machines)),
        scenario=SimpleNamespace(job=SimpleNamespace(trains=trains)),
    )
    needs = {"m0": 10.0, "m2": 99.0}
    monkeypatch.setattr(machine_memory, "memory_by_machine", lambda *_: needs)
    schedule: Any = None
    if not is_refused:
        machine_memory.check_memory(experiment, schedule)
        return
    with pytest.raises(ScenarioError) as error:
        machine_memory.check_memory(experiment, schedule)
    assert error.value.problem == (
        "does not fit into memory: m0 needs 10 B, 1 B more than it has"
    )


def test_a_dry_run_counts_what_crosses_and_what_shares_a_process() -> None:
    """Each of 18 tasks on 3 machines sends 10 kB, and the second step waits for them.

    Every machine has a process of 40 MB; the 15 others are 1 MB each in these.
    """
    scenario = ring(18, 3, processes="machine", byte_scale=4, time_scale=2)
    experiment = prepare(loads(json.dumps(scenario)))
    known = dry_run(experiment)
    assert (known.processes, known.flows, known.ends) == (18, 18, 36 + 18)
    assert (known.time_scale, known.byte_scale) == (2.0, 4.0)
    assert known.payload == pytest.approx(4 * 18 * 1e4)
    assert known.wall_seconds == pytest.approx(2 * known.makespan)
    waiting = most_waiting(experiment.simulate(), experiment.realization.volumes)
    assert known.waiting == pytest.approx(4 * waiting)
    rest = known.memory - known.waiting
    assert rest == pytest.approx(4e8 + 3 * 4e7 + 15 * 1e6)
    assert known.tcp is None
    labels = [label for label, _ in known.rows()]
    assert labels[-2:] == ["wall time", "real traffic at its peak"]
    open_scale = replace(known, time_scale=None, wall_seconds=None, peak_traffic=None)
    assert open_scale.rows()[0] == ("time scale", "chosen by trials")
    assert len(open_scale.rows()) == len(labels) - 2


@pytest.mark.parametrize(
    ("free", "is_refused"), [(None, False), (1.0, False), (0.5, True)]
)
def test_a_host_has_to_have_as_much_free_as_a_run_may_need(
    free: float | None,
    is_refused: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may need 1 byte; where the host does not say what is free, nobody knows."""
    monkeypatch.setattr(dry_run_module, "memory", lambda _: free)
    if not is_refused:
        dry_run_module.check_memory(KNOWN, 3)
        return
    with pytest.raises(ScenarioError, match="below 3, or run it on several"):
        dry_run_module.check_memory(KNOWN, 3)
