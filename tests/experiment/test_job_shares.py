"""Machines of several jobs by hand: their kinds, their times, and who comes first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.experiment import job_shares
from emu.experiment.job_shares import (
    Division,
    JobAdvice,
    _Divider,
    combine_counts,
    count_epochs,
    list_counts,
    list_kinds,
    share_machines,
)
from emu.experiment.systems import Target
from emu.scenario.scenario_file import loads

MACHINES = [
    {"name": "a", "count": 2, "nic": "1 Gbit/s"},
    {"name": "b", "count": 2, "nic": "5 Gbit/s"},
    {"name": "c", "nic": "1 Gbit/s", "cpu": 9},
    {"name": "d", "nic": {"in": "9 Gbit/s", "out": "3 Gbit/s"}},
    {"name": "e", "nic": "5 Gbit/s"},
]
JOB = {"system": "custom", "tasks": [{"name": "t", "time": "1 s"}], "iterations": 1}


def test_kinds_are_equal_machines_the_fastest_first() -> None:
    """Kinds are ranked by bytes sent per second; b1 of another rack is its own kind."""
    scenario = loads(json.dumps({"cluster": {"machines": MACHINES}, "job": JOB}))
    cluster = scenario.stated_cluster
    plain = [["b0", "b1", "e"], ["d"], ["a0", "a1"], ["c"]]
    found = list_kinds(cluster)
    assert found[:2] == plain[:2]
    assert sorted(found[2:]) == plain[2:]

    rack: Any = SimpleNamespace(name="r", machines=["b1", "a0"])
    racked: Any = SimpleNamespace(
        racks=[rack],
        machines=cluster.machines,
        names_and_positions=cluster.names_and_positions,
    )
    assert list_kinds(racked)[:3] == [["b0", "e"], ["b1"], ["d"]]


def test_of_many_machines_runs_overlap_by_half() -> None:
    """Runs of 64 machines, 32, 16, ... begin at multiples of half their length."""
    kinds = [[f"a{n}" for n in range(24)], [f"b{n}" for n in range(40)]]
    found = list_counts(kinds)

    assert found[:4] == [(24, 40), (24, 8), (8, 24), (0, 32)]
    assert found[4:8] == [(16, 0), (8, 8), (0, 16), (8, 0)]
    assert len(found) == len({*found})
    assert found[-2:] == [(1, 0), (0, 1)]


def test_of_equal_combinations_the_first_found_are_kept() -> None:
    """Jobs take 4 s on either kind of machine, and 6 s on both."""
    times: dict[tuple[int, ...], float] = {(1, 0): 4.0, (0, 1): 4.0, (1, 1): 6.0}
    seconds = [times, times]

    assert combine_counts(seconds, (1, 1), max, 1) == [((1, 0), (0, 1))]
    assert combine_counts(seconds, (2, 2), max, 2) == [
        ((1, 0), (0, 1)),
        ((1, 0), (1, 0)),
    ]
    # No more than one of a kind is free.
    assert combine_counts(seconds, (1, 1), max, 9) == [
        ((0, 1), (1, 0)),
        ((1, 0), (0, 1)),
    ]
    assert combine_counts(seconds, (1, 0), max, 9) == []


def test_up_to_32_counts_all_are_tried_and_each_machine_alone_whatever_there_is() -> (
    None
):
    """Five kinds of a machine have 32 combinations, of which one is of none."""
    assert len(list_counts([["m"]] * 5)) == 31
    found = list_counts([["m"]] * 6)
    assert len(found) < 63
    alone = {tuple(int(place == kind) for place in range(6)) for kind in range(6)}
    assert alone <= {*found}


def test_bounds_of_a_combination_are_of_as_many_jobs() -> None:
    """Three jobs on one kind of machine: 2 + 1 + 3 s is least, then 4 + 1 + 2."""
    seconds: list[dict[tuple[int, ...], float]] = [
        {(1,): 9.0, (2,): 2.0},
        {(1,): 5.0, (3,): 1.0},
        {(1,): 3.0, (2,): 2.5},
    ]
    lengths = set()

    def total(times: Sequence[float]) -> float:
        lengths.add(len(times))
        return sum(times)

    assert combine_counts(seconds, (6,), total, 2) == [
        ((2,), (3,), (1,)),
        ((2,), (1,), (2,)),
    ]
    assert lengths == {3}


def answer_of(iterations: int, train: int, *, target: object = None) -> Any:
    job = SimpleNamespace(iterations=iterations, settings={})
    return SimpleNamespace(
        question=SimpleNamespace(target=target),
        simulated=SimpleNamespace(problem=SimpleNamespace(job=job)),
        train=train,
    )


def test_epochs_are_counted_by_seeds_without_the_cycles_that_fill_a_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten of 13 iterations train: 5 walks of 90 of the 100 vertices each are 4.5."""
    depth = "emu.experiment.job_shares.throughput.pipeline_depth"
    monkeypatch.setattr(depth, lambda _: 3)
    walk = SimpleNamespace(steps=2, seeds=90)
    monkeypatch.setattr(job_shares, "epoch_of", lambda _: walk)

    assert count_epochs(answer_of(13, 100)) == pytest.approx(4.5)
    assert count_epochs(answer_of(13, 100, target=object())) == 1.0
    monkeypatch.setattr(job_shares, "epoch_of", lambda _: None)
    assert count_epochs(answer_of(13, 100)) == 10.0


def test_a_job_alone_is_timed_by_its_epochs_where_it_keeps_to_its_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of each kind is refused; on both b it stands elsewhere as well."""
    refusal = ScenarioError("too small", key="job")
    of_most = ScenarioError("too small in all", key="job")

    def place_alone(_: int, names: list[str]) -> Any:
        makespan = 12.0 * len(names)
        return SimpleNamespace(
            refused=refusal if names == ["a0", "b0"] else None,
            machines=["a0", *names] if names == ["b0", "b1"] else names,
            simulated=SimpleNamespace(makespan=makespan),
        )

    epochs = {12.0: 4.0, 36.0: 8.0}
    monkeypatch.setattr(
        job_shares, "count_epochs", lambda alone: epochs[alone.simulated.makespan]
    )
    scenario: Any = None
    divider = _Divider(scenario, None, sums=False)
    monkeypatch.setattr(divider, "place_alone", place_alone)
    times = divider.time_alone(0, [["a0"], ["b0", "b1"]])

    assert times == {(1, 0): 3.0, (0, 1): 3.0, (1, 2): 4.5}

    def refuse(_: int, names: list[str]) -> Any:
        return SimpleNamespace(refused=of_most if len(names) == 2 else refusal)

    monkeypatch.setattr(divider, "place_alone", refuse)
    with pytest.raises(ScenarioError, match="too small in all"):
        divider.time_alone(0, [["a0", "a1"]])


def test_a_job_of_no_system_that_can_be_moved_is_named() -> None:
    job = {"name": "replay", "job": JOB}
    content = {"cluster": {"machines": MACHINES}, "jobs": [job]}
    with pytest.raises(ScenarioError, match="job 'replay' is custom, and") as error:
        share_machines(loads(json.dumps(content)))
    assert error.value.key == "jobs[0].job.system"


def test_times_of_jobs_are_added_up_by_their_weights_or_the_longest_counts() -> None:
    jobs = [SimpleNamespace(weight=weight) for weight in (None, 0.0, 5.0)]
    scenario: Any = SimpleNamespace(jobs=jobs)

    assert _Divider(scenario, None, sums=True).aim([2.0, 7.0, 3.0]) == 17.0
    assert _Divider(scenario, None, sums=False).aim([2.0, 7.0, 3.0]) == 7.0


def division(aim: float, **seconds: float) -> Division:
    machines = {job: [f"m{number}"] for number, job in enumerate(seconds)}
    return Division(machines, seconds, aim, scenario=None)  # type: ignore[arg-type]


def test_advice_says_how_much_faster_the_best_is_than_the_file_and_the_next() -> None:
    best = division(2.0, x=2.0, y=1.0)
    stated, rival, last = division(5.0, x=5.0), division(3.0, x=3.0), division(9.0)
    lines = [*JobAdvice(best, [rival, stated, last], stated, "of the longest").lines()]

    assert lines[0].startswith("use x on m0 2 s; y on m1 1 s; 2 s of the longest")
    assert lines[1].startswith("2.50 x as fast as the file as it stands, x on m0 5 s")
    assert lines[2].startswith("1.50 x as fast as the next, x on m0 3 s")
    assert len(lines) == 3
    same = [*JobAdvice(best, [stated], best, "of the longest").lines()]
    assert same[1] == "the file as it stands is the best that was tried"
    # The file is named once, though it comes next.
    second = [*JobAdvice(best, [stated, rival], stated, "").lines()]
    assert "the next, x on m0 3 s" in second[2]


def test_jobs_take_the_next_machines_of_each_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first job has one of three, and the second the next two and one of b."""
    kinds = [["a0", "a1", "a2"], ["b0"]]
    times = [{(1, 0): 4.0, (0, 1): 9.0}, {(2, 1): 5.0, (1, 0): 8.0}]
    jobs = [SimpleNamespace(name=name, weight=None) for name in "xy"]
    scenario: Any = SimpleNamespace(jobs=jobs, stated_cluster=None)
    divider = _Divider(scenario, None, sums=False)
    monkeypatch.setattr(job_shares, "list_kinds", lambda _: kinds)
    monkeypatch.setattr(divider, "time_alone", lambda position, _: times[position])
    monkeypatch.setattr(divider, "place_alone", lambda job, names: (job, names))
    together = []

    def run_together(answers: Any, *, apart: bool) -> Any:
        assert apart
        together.append(answers)

    monkeypatch.setattr(divider, "run_together", run_together)
    told: list[str] = []
    assert len([*divider.divide(told.append)]) == 3
    assert told == ["x alone, 1 of 2", "y alone, 2 of 2"]
    assert together == [
        [(0, ["a0"]), (1, ["a1", "a2", "b0"])],
        [(0, ["a0"]), (1, ["a1"])],
        [(0, ["b0"]), (1, ["a0"])],
    ]


def test_the_best_division_is_that_of_the_least_aim_the_file_included(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [{"name": "x", "job": JOB}]
    scenario = loads(json.dumps({"cluster": {"machines": MACHINES}, "jobs": jobs}))
    divided = [division(5.0, x=5.0), division(4.0, x=4.0)]
    stated = division(4.5, x=4.5)
    found: dict[str, Any] = {"divided": divided, "stated": stated}

    def run_together(_self: Any, answers: Any, *, apart: bool) -> Any:
        assert (answers, apart) == (["alone"], False)
        if isinstance(found["stated"], ScenarioError):
            raise found["stated"]
        return found["stated"]

    monkeypatch.setattr(job_shares, "check_systems", lambda _: None)
    monkeypatch.setattr(_Divider, "divide", lambda *_: iter(found["divided"]))
    monkeypatch.setattr(_Divider, "place_alone", lambda *_: "alone")
    monkeypatch.setattr(_Divider, "run_together", run_together)
    advice = share_machines(scenario)
    assert advice.best is divided[1]
    assert advice.others == [stated, divided[0]]
    assert advice.stated is stated
    assert advice.unit == "of the longest, per epoch"
    assert advice.to_json()["stated"]["aim"] == 4.5
    summed = share_machines(scenario, Target(0.75), sums=True)
    assert summed.unit == "in the weighted sum, to 0.75"

    found["stated"] = ScenarioError("no room")
    alone = share_machines(scenario)
    assert (alone.best, alone.others) == (divided[1], [divided[0]])
    assert [*alone.remarks()] == ["not the file as it stands: no room"]
    assert alone.to_json()["stated"] is None
    found["divided"] = []
    with pytest.raises(ScenarioError, match="too few machines for all jobs") as error:
        share_machines(scenario)
    assert error.value.key == "cluster.machines"


def test_a_job_alone_stands_on_its_machines_or_as_the_file_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = [("x", "part x"), ("y", SimpleNamespace(job=SimpleNamespace(system="p3")))]
    scenario: Any = SimpleNamespace(parts=lambda: parts)
    monkeypatch.setattr(job_shares, "answer", lambda question: question)
    divider = _Divider(scenario, Target(0.5), sums=False)
    stated: Any = divider.place_alone(0)
    assert (stated.scenario, stated.row, stated.machines) == ("part x", "", None)
    chosen: Any = divider.place_alone(1, ["m1", "m0"])
    assert (chosen.row, chosen.machines) == ("p3", ("m1", "m0"))
    assert stated.target is chosen.target is divider.target


def test_an_aim_of_nothing_is_as_fast_as_any() -> None:
    nothing = division(0.0, x=0.0)
    lines = [*JobAdvice(nothing, [], division(3.0, x=3.0), "of the longest").lines()]
    assert lines[1].startswith("1.00 x as fast as the file as it stands, ")
