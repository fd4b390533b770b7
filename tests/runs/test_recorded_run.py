"""Run directories are read back whole, and as far as they go when broken."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.errors import DataError, RunError
from emu.prediction.analysis.link_load import mean_rates, sum_rates
from emu.prediction.simulation import makespan, simulate
from emu.problem import CapacityChange, Placement
from emu.runs.array_files import REALIZATION
from emu.runs.audit_inputs import has_one_clock
from emu.runs.lab_file import duration_of
from emu.runs.problem_json import MOST, problem_from_json, problem_to_json
from emu.runs.recorded_run import realization_of, with_simulated_rates
from emu.runs.run_directory import RunDirectory
from emu.testing import two_machine_example
from emu.units import format_duration
from tests.report.recorded import schedules, write_run


def test_reads_what_was_written(run: Path) -> None:
    emulated, simulated = schedules()
    read = emu.load_run(run)

    assert read.missing == ()
    assert read.policy == "oes"
    assert read.emulated is not None
    assert read.simulated is not None
    np.testing.assert_array_equal(read.emulated.task_end, emulated.task_end)
    flows = tuple(emulated.flows().T)
    for name in ("flow_ready", "flow_start", "flow_end", "flow_bytes"):
        np.testing.assert_array_equal(
            getattr(read.simulated, name)[flows], getattr(simulated, name)[flows]
        )


def test_frames(run: Path) -> None:
    read = emu.load_run(run)
    tasks, flows, ports, training = read.tasks, read.flows, read.ports, read.training

    assert len(tasks) == 2 * 6 * 3
    assert len(flows) == 2 * len(schedules()[0].flows())
    last = tasks[tasks.run == "emulated"].end.max()
    assert last == read.best.makespan
    sent = flows[(flows.run == "emulated") & (flows.from_kind == "sampler")]
    assert set(sent.source + sent.destination) == {"s1w0"}
    assert set(sent.from_machine + sent.to_machine) == {"m1m0"}
    assert sent.bytes.sum() == 180.0
    assert set(ports.port) == {"m0 out", "m0 in", "m1 out", "m1 in"}
    assert (ports.rate <= ports.capacity * (1 + 1e-9)).all()
    assert training.value.tolist() == [2.0, 1.75, 1.5]

    emulated, _ = schedules()
    places = tuple(emulated.flows().T)
    of_run = flows[flows.run == "emulated"]
    for column in ("ready", "start", "end"):
        times = getattr(emulated, f"flow_{column}")[places]
        np.testing.assert_array_equal(of_run[column], times)
    assert (of_run.ready < of_run.start).any()


def test_a_port_has_the_capacity_of_each_time(run: Path) -> None:
    read = emu.load_run(run)
    cluster = read.problem.cluster
    changes = (CapacityChange(9.0, "m1 in", 4.0), CapacityChange(20.0, "m1 in", 7.0))
    changed = replace(read.problem, cluster=replace(cluster, changes=changes))
    later = replace(read, emulated=replace(read.best, problem=changed))
    ports = later.ports
    rows = ports[ports.port == "m1 in"]
    stated = [7.0 if t >= 20 else 4.0 if t >= 9 else 10.0 for t in rows.time]
    assert rows.capacity.tolist() == stated
    assert {*stated} == {10.0, 4.0, 7.0}
    assert {*ports[ports.port == "m0 in"].capacity} == {10.0}


def test_a_port_that_changes_while_it_is_idle_has_a_row_of_then(run: Path) -> None:
    """Its capacity looked as at first until its next flow began."""
    read = emu.load_run(run)
    cluster = read.problem.cluster
    before = read.ports[read.ports.port == "m1 in"]
    pause = next(
        t for t, rate in zip(before.time, before.rate, strict=True) if not rate
    )
    changes = (
        CapacityChange(0.5, "m1 in", 4.0),
        CapacityChange(pause + 1e-3, "m1 in", 7.0),
        CapacityChange(1e6, "m1 in", 9.0),
    )
    changed = replace(read.problem, cluster=replace(cluster, changes=changes))
    later = replace(read, emulated=replace(read.best, problem=changed))

    rows = later.ports[later.ports.port == "m1 in"]
    added = rows[~rows.time.isin(before.time)]
    assert added.time.tolist() == [0.5, pause + 1e-3]
    assert added.capacity.tolist() == [4.0, 7.0]
    assert added.rate.tolist() == [0.0, 0.0]
    assert rows.time.is_monotonic_increasing
    kept = rows[rows.time.isin(before.time)]
    assert kept.rate.tolist() == before.rate.tolist()


def test_steps_and_reasons_are_shown_in_part(tmp_path: Path) -> None:
    """All steps but the first, which warms up; two reasons of three."""
    run = write_run(tmp_path / "run")
    result = json.loads((run / "result.json").read_text())
    result["virtual"] = {"steps": {"seconds": [9.0, 1.0, 2.0]}}
    reasons = ["late", "busy", "few cores"]
    result["verdict"] = {"trust": "degraded", "reasons": reasons}
    (run / "result.json").write_text(json.dumps(result))
    read = emu.load_run(run)
    assert read.steps == [1.0, 2.0]
    notes = read.explain(helpful=False).notes
    assert "the run is degraded: late; busy" in notes


def test_rates_of_ports_carry_all_bytes() -> None:
    """The integral of a port's rate is what went through it, either way."""
    emulated, _ = schedules()
    assigned = sum_rates(emulated)
    assert assigned is not None
    sent = np.nansum(emulated.flow_bytes, axis=1)
    for port, both in enumerate(zip(assigned, mean_rates(emulated), strict=True)):
        crossing = [port in hops for hops in emulated.problem.hops]
        for times, rates in both:
            carried = float(np.sum(np.diff(times) * rates[:-1]))
            assert carried == pytest.approx(sent[crossing].sum())
            assert rates[-1] == 0.0


def test_realization_replays(run: Path) -> None:
    read = emu.load_run(run)

    assert read.simulated is not None
    assert makespan(read.problem, read.realization) == pytest.approx(
        read.simulated.makespan
    )


def test_bytes_of_handoffs_are_those_of_like_flows() -> None:
    """g0 -> s0 stays on m0; the three other store flows have 40 bytes each."""
    volumes = realization_of(schedules()[0]).volumes

    assert volumes[0].tolist() == [40.0, 40.0, 40.0]
    assert volumes[-1].tolist() == [0.0, 0.0, 0.0], "a credit"


def test_rates_of_the_simulation_are_simulated_again(run: Path) -> None:
    read = emu.load_run(run)

    assert read.simulated is not None
    assert read.simulated.rates is None
    assert with_simulated_rates(read).rates is not None


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "result.json",
        "simulated.json",
        "rates.npz",
    ],
)
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_what_is_missing_is_named(tmp_path: Path, name: str, damage: str) -> None:
    file = write_run(tmp_path / "run") / name
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    read = emu.load_run(tmp_path / "run")

    (sentence,) = read.missing
    assert sentence.startswith(name)
    assert read.best.makespan > 37


@pytest.mark.parametrize(
    ("network", "sharing", "missing"),
    [
        ("userspace", "fair", ("rates.npz is missing",)),
        ("kernel", "assigned", ("rates.npz is missing",)),
        ("kernel", "fair", ()),
        ("kernel", "tcp", ()),
    ],
)
def test_rates_are_missed_where_some_were_assigned(
    tmp_path: Path, network: str, sharing: str, missing: tuple[str, ...]
) -> None:
    (write_run(tmp_path / "run") / "rates.npz").unlink()
    file = tmp_path / "run" / "result.json"
    stated = {"network": network, "sharing": sharing}
    file.write_text(json.dumps(json.loads(file.read_text()) | stated))

    assert emu.load_run(tmp_path / "run").missing == missing


def test_other_version_is_named(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run") / "result.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "version": 99}))

    read = emu.load_run(tmp_path / "run")

    assert read.emulated is None
    assert read.missing == ("result.json is of version 99, this emu reads 1",)


def test_flows_that_are_missing_are_named(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run") / "result.json"
    content = json.loads(file.read_text())
    content["flows"].pop()
    file.write_text(json.dumps(content))

    read = emu.load_run(tmp_path / "run")

    assert read.emulated is None
    assert "flow" in read.missing[0]


def test_a_run_without_realization_is_whole(tmp_path: Path) -> None:
    """Runs of before it was written; the schedules hold nearly all of it."""
    run = write_run(tmp_path / "run")
    (run / "realization.npz").unlink()
    assert emu.load_run(run).missing == ()

    (run / "realization.npz").write_bytes(b"PK")
    assert emu.load_run(run).missing[0].startswith("realization.npz is damaged")


def test_realization_of_another_job_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    RunDirectory(run).write_arrays(REALIZATION, **vars(two_machine_example(5)[1]))

    read = emu.load_run(run)
    (sentence,) = read.missing
    assert sentence.startswith("realization.npz cannot be used: times (6, 5)")
    assert read.realization.times.shape == (6, 3), "from the schedule"


def test_figures_of_the_training_that_are_missing_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "training.csv").unlink()

    assert emu.load_run(run).missing == ("training.csv is missing",)


@pytest.mark.parametrize(("edge", "iteration"), [(99, 0), (-1, 0), (0, 99), (0, -1)])
def test_rates_of_unknown_flows_are_refused(
    tmp_path: Path, edge: int, iteration: int
) -> None:
    path = write_run(tmp_path / "run") / "rates.npz"
    np.savez(path, time=[0.0], edge=[edge], iteration=[iteration], rate=[1.0])

    assert emu.load_run(tmp_path / "run").missing == (
        "rates.npz names flows that the job does not have",
    )


def test_the_rule_that_a_portfolio_chose_is_that_of_the_result(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    changes = (
        ("manifest.json", {"scenario": {"schedule": {"policy": "portfolio"}}}),
        ("result.json", {"policy": "maxmin"}),
    )
    for name, change in changes:
        content = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(content | change))
    assert emu.load_run(run).policy == "maxmin"
    (run / "result.json").unlink()
    assert emu.load_run(run).policy == "portfolio"


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("manifest.json", "scenario", [1]),
        ("manifest.json", "scenario", {"schedule": 3}),
        ("result.json", "policy", "unheard-of"),
        ("result.json", "predicted_makespan", None),
        ("result.json", "tasks", [{"task": "g0"}]),
        ("simulated.json", "flows", 7),
    ],
)
def test_values_of_another_type_are_named(
    tmp_path: Path, name: str, key: str, value: object
) -> None:
    file = write_run(tmp_path / "run") / name
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))

    read = emu.load_run(tmp_path / "run")
    (sentence,) = read.missing
    assert sentence.startswith(name)
    assert read.policy == "oes"
    assert read.best.makespan > 37


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("machines", 0, "resources"), 1),
        (("machines", 0, "bandwidth_in"), "fast"),
        (("tasks", 0, "kind"), []),
        (("edges", 0, "lag"), 0.5),
        (("edges", 0, "credit"), {}),
        (("iterations",), "many"),
    ],
)
def test_a_problem_of_other_types_is_bad_data(
    tmp_path: Path, path: tuple[str | int, ...], value: object
) -> None:
    file = write_run(tmp_path / "run") / "problem.json"
    content = json.loads(file.read_text())
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    file.write_text(json.dumps(content))

    with pytest.raises(DataError, match=r"problem\.json"):
        emu.load_run(tmp_path / "run")


def test_nothing_to_show_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "result.json").unlink()
    (run / "simulated.json").unlink()

    with pytest.raises(DataError, match=r"result\.json is missing"):
        _ = emu.load_run(run).best
    (run / "problem.json").write_text("{")
    with pytest.raises(DataError, match=r"problem\.json"):
        emu.load_run(run)
    (run / "problem.json").unlink()
    with pytest.raises(DataError, match=r"problem\.json: is missing"):
        emu.load_run(run)
    for elsewhere in ("nowhere", "."):
        with pytest.raises(DataError, match="not a run directory"):
            emu.load_run(tmp_path / elsewhere)


def test_torn_last_line_of_training_is_left_out(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run") / "training.csv"
    file.write_text(file.read_text() + "41.2,w0,3,lo")

    assert len(emu.load_run(tmp_path / "run").training) == 3


def test_the_rule_of_a_run_that_is_ones_own(tmp_path: Path) -> None:
    """Its text is in the manifest; nothing of it runs until something is simulated."""
    mark = tmp_path / "ran"
    schedule = {
        "policy": "/gone/mine.py:Mine",
        "source": f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
        "class Mine:\n def rates(self, flows, capacity): return [0 / 0 for _ in flows]",
    }
    path = write_run(tmp_path / "run")
    for name, change in (
        ("manifest.json", {"scenario": {"schedule": schedule}}),
        ("result.json", {"policy": "mine.py:Mine@00000000"}),
    ):
        file = path / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    read = emu.load_run(path)

    assert read.policy.startswith("mine.py:Mine@")
    assert not mark.exists()
    with pytest.raises(DataError, match=r"ZeroDivisionError.*line 4 of /gone/mine.py"):
        with_simulated_rates(read)
    assert mark.exists()
    (path / "manifest.json").unlink()
    with pytest.raises(DataError, match="states nothing of the policy mine"):
        _ = emu.load_run(path).policy


@given(st.dictionaries(st.sampled_from(["g0", "s0", "w0"]), st.just("m0")))
def test_pins_are_read_back(pins: dict[str, str]) -> None:
    scenario = emu.load("golden", {"placement.policy": "ifs", "placement.tasks": pins})
    problem = emu.place(scenario).problem
    written = json.loads(json.dumps(problem_to_json(problem)))

    again = problem_from_json(written, "problem.json")

    assert [task.pinned for task in again.job.tasks] == [
        pins.get(task.name) for task in again.job.tasks
    ]


def test_a_pin_to_no_machine_is_named() -> None:
    written = problem_to_json(emu.place(emu.load("golden")).problem)
    written["tasks"][0]["pinned"] = "m9"
    with pytest.raises(DataError, match="no machine is called m9"):
        problem_from_json(written, "problem.json")


@pytest.mark.parametrize("content", ['{"scen', "[]", "null", "", "{}", None])
@pytest.mark.parametrize(
    "words", [["report"], ["report", "--as", "csv"], ["compare"]], ids=" ".join
)
def test_what_a_run_lacks_is_said_in_a_line(
    tmp_path: Path, content: str | None, words: list[str]
) -> None:
    run = write_run(tmp_path / "run")
    if content is None:
        (run / "manifest.json").unlink(missing_ok=True)
    else:
        (run / "manifest.json").write_text(content)
    more = [str(write_run(tmp_path / "other"))] if words == ["compare"] else []
    done = CliRunner().invoke(app, [*words, str(run), *more])
    assert done.exit_code == 0, done.output
    (line,) = [one for one in done.stderr.splitlines() if "manifest.json" in one]
    assert line.startswith("emu: run: manifest.json ")


@pytest.mark.parametrize("fault", [None, RunError, KeyboardInterrupt])
def test_directory_for_a_block_stays_only_for_its_log(
    tmp_path: Path, fault: type[BaseException] | None
) -> None:
    with (
        contextlib.suppress(RunError, KeyboardInterrupt),
        RunDirectory.passing("x-profile", tmp_path / "runs") as directory,
    ):
        directory.write_json("manifest.json", {})
        if fault is not None:
            raise fault
    assert directory.path.exists() == (fault is RunError)
    assert (tmp_path / "runs").exists() == (fault is not None)


@pytest.mark.parametrize("value", [math.nan, MOST, -MOST, True, "1"])
def test_times_of_rows_are_numbers_within_bounds(tmp_path: Path, value: object) -> None:
    file = write_run(tmp_path / "run") / "simulated.json"
    content = json.loads(file.read_text())
    content["tasks"][1]["end"] = value
    file.write_text(json.dumps(content))
    (sentence,) = emu.load_run(tmp_path / "run").missing
    assert f"end is {value!r} in " in sentence


def test_a_run_without_frames_has_no_counts_and_says_its_length(
    tmp_path: Path,
) -> None:
    run = emu.load_run(write_run(tmp_path / "run"))
    assert run.counts is None
    assert run.makespan == run.best.makespan
    length = format_duration(run.makespan, 5)
    assert f": {length}, " in repr(run)
    assert f"<td>{format_duration(run.makespan, 6)}</td>" in run._repr_html_()


def test_a_program_runs_in_its_own_time() -> None:
    assert duration_of({"wall_seconds": 6.0, "time_scale": 2.0}) == 3.0
    assert duration_of({"wall_seconds": 6.0}) == 6.0


def test_hosts_have_one_clock_where_none_was_compared() -> None:
    """Each notes how often the clocks were read; of no host nothing is known."""
    own, far = {"clock": {"readings": 0}}, {"clock": {"readings": 9}}
    assert has_one_clock([own, own])
    others: list[list[dict[str, Any]]] = [
        [],
        [own, far],
        [own, {}],
        [{"clock": None}],
        [{"clock": {}}],
    ]
    for hosts in others:
        assert not has_one_clock(hosts)


def test_handoffs_of_which_none_is_sent_keep_their_bytes() -> None:
    """All tasks stand on one machine: no flow tells what its like would weigh."""
    problem, realization = two_machine_example(2)
    tasks = len(problem.job.tasks)
    together = replace(problem, placement=Placement((0,) * tasks))
    found = realization_of(simulate(together, realization))
    np.testing.assert_array_equal(found.volumes[:, 0], realization.volumes[:, 0])
    np.testing.assert_allclose(found.times, realization.times)
