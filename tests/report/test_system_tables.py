"""Systems side by side: tables, rankings and their JSON, by hand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from rich.table import Table

from emu.errors import PlacementError
from emu.report import system_tables as module
from emu.report.system_tables import (
    answer_json,
    answers_json,
    crossover_json,
    crossover_table,
    curves_of,
    edit_lines,
    first_of_class,
    limits_table,
    over_sockets,
    rank,
    ranking,
    runs_of_rows,
    systems_csv,
    systems_table,
)
from emu.report.work_table import work_table


def rows_of(table: Table) -> list[list[str]]:
    """Return the cells of every row."""
    columns = [[*map(str, column.cells)] for column in table.columns]
    return [[*row] for row in zip(*columns, strict=True)]


@dataclass
class Run:
    """A run over sockets of a row."""

    makespan: float = 8.0
    makespan_error: float = -0.2
    trust: str = "trusted"
    outcome: str = "agrees"
    runs: int = 1
    further: tuple[float, float] | None = None


def row_of(system: str, makespan: float, rate: float = 100.0, **more: Any) -> Any:
    """Return an answer with such a makespan and pace; more figures by name."""
    question = {"target": None, "settings": {"job.batch_size": 40}, "curve_file": None}
    question |= more.pop("question", {})
    row: dict[str, Any] = {
        "system": system,
        "refused": None,
        "question": SimpleNamespace(**question),
        "makespan": makespan,
        "makespans": {0: makespan},
        "samples_per_second": rate,
        "rate": rate,
        "iteration_seconds": 0.5,
        "seeds_per_step": 1234,
        "whole_graph": False,
        "busiest": ("m0 out", 0.75),
        "busiest_link": 1.5,
        "limit": "network",
        "limits": {"network": 0.75, "cpu": 0.25},
        "figures": {"bytes": 5e6},
        "setup": None,
        "memory": {"m0": 1e9, "m1": 3e9},
        "gpu_memory": {},
        "busy": 0.25,
        "cost": None,
        "edits": {},
        "tried": (),
        "placing": {"policy": "best", "candidates": 0, "optimal": False},
        "premises": SimpleNamespace(line=lambda: "premises"),
        "draws": {0: SimpleNamespace(ghost_error=0.0)},
        "run": None,
        "looks": {},
        "curves": {},
        "scenarios": {},
        "machines": ("m0",),
        "trend": None,
    }
    return SimpleNamespace(**row | more)


def refused(system: str) -> Any:
    """Return a row that has no figures."""
    return row_of(system, 1.0, makespans={}, refused=PlacementError("no room"))


def test_systems_are_compared_with_the_first_of_their_class() -> None:
    """The first of all is refused; whole graphs have a first of their own."""
    rows = [
        refused("a"),
        row_of("b", 10.0, 2000.0),
        row_of("c", 30.0, 50.0, whole_graph=True, seeds_per_step=None),
        row_of("d", 5.0, 300.0, iteration_seconds=2.0),
        row_of("e", 45.0, 20.0, whole_graph=True),
    ]
    assert [first_of_class(rows, row).system for row in rows[1:]] == [*"bcbc"]
    rows[2].seeds_per_step = 77
    assert rows_of(systems_table(rows)) == [
        ["a", "refused", "", "", "", "", ""],
        ["b", "10 s", "", "0 %", "500 ms", "1,234", "2,000"],
        ["c", "30 s", "", "0 %", "500 ms", "77", "50"],
        ["d", "5 s", "", "-50 %", "2 s", "1,234", "300"],
        ["e", "45 s", "", "+50 %", "500 ms", "1,234", "20"],
    ]
    assert [row.system for row in rank(rows)] == [*"dbce"]
    told = answers_json(rows)
    assert told[0] == {"system": "a", "refused": "no room"}
    assert [row["change"] for row in told[1:]] == [0.0, 0.0, -0.5, 0.5]
    # To a target all are compared, whatever a step of theirs is.
    target: dict[str, Any] = {"question": {"target": ("accuracy", 0.5)}}
    assert (
        first_of_class(rows, row_of("f", 1.0, whole_graph=True, **target)).system == "b"
    )


def test_a_row_has_its_figures_by_name() -> None:
    look = SimpleNamespace(_asdict=lambda: {"accuracy": 0.5})
    row = row_of(
        "b",
        10.0,
        run=Run(),
        looks={0: look},
        epochs=2.5,
        epoch_seconds=4.0,
        everywhere=7.0,
        curves={0: ((1.0, 0.25), (2.0, 0.5))},
        edits={"job.workers": (None, 4)},
        tried=(({"job.batch_size": 20}, 3.0), ({"job.batch_size": 40}, None)),
        gpu_memory={"m0": 5.0},
    )
    told = answer_json(row, row_of("a", 20.0))
    assert told["change"] == -0.5
    assert told["iteration_seconds"] == 0.5
    assert told["samples_per_second"] == 100.0
    assert told["seeds_per_iteration"] == 1234
    assert told["busiest"] == {"port": "m0 out", "used": 0.75}
    assert told["busiest_link"] == 1.5
    assert (told["memory"], told["gpu_memory"]) == ({"m0": 1e9, "m1": 3e9}, {"m0": 5.0})
    assert told["edits"] == {"job.workers": [None, 4]}
    assert told["tried"] == [
        {"settings": {"job.batch_size": 20}, "seconds": 3.0},
        {"settings": {"job.batch_size": 40}, "seconds": None},
    ]
    assert told["run"]["makespan_error"] == -0.2
    assert told["reached"] == {0: {"accuracy": 0.5}}
    assert (told["epochs"], told["epoch_seconds"]) == (2.5, 4.0)
    assert (told["all_machines"], told["trend"]) == (7.0, None)
    assert told["curves"] == {0: [(1.0, 0.25), (2.0, 0.5)]}
    assert told["limits"] == {"network": 0.75, "cpu": 0.25}
    assert "reached" not in answer_json(row_of("a", 20.0), row_of("a", 20.0))
    assert curves_of([row_of("a", 1.0), row]) == {"b": ((1.0, 0.25), (2.0, 0.5))}

    lines = systems_csv([row_of("a", 20.0), refused("c")]).splitlines()
    names = lines[0].split(",")
    assert "busiest.port" in names
    assert names[-1] == "refused"
    assert lines[1].split(",")[names.index("makespan")] == "20.0"
    assert lines[2].startswith("c,")
    assert lines[2].endswith(",no room")


def test_limits_are_of_the_fullest_machine_fastest_first() -> None:
    """A system that moves no bytes has no busiest link."""
    slow = row_of(
        "slow", 9.0, setup={"seconds": 2.5}, gpu_memory={"m0": 7e9, "m1": 4e9}
    )
    fast = row_of("fast", 3.0, figures={"bytes": None}, busy=None, memory={})
    table = limits_table([slow, refused("no"), fast])
    assert rows_of(table) == [
        ["fast", "0 B", "", "", "network", "", ""],
        ["slow", "5 MB", "2.5 s", "m0 out 75%", "network", "3 GB + 7 GB", "25%"],
    ]
    of_gpus = (
        "memory: of the fullest machine, and of its GPUs; busy: what trains, the mean"
    )
    assert table.caption == of_gpus
    draws = [SimpleNamespace(ghost_error=error) for error in (0.0, 0.03, 0.01)]
    fast.draws = dict(enumerate(draws))
    plain = limits_table([fast])
    assert plain.caption == (
        "memory: of the fullest machine; busy: what trains, the mean; rows that parts "
        "of the whole graph read of others: by a sample, ± 3.00% (95 %) at most"
    )


def test_rows_that_were_run_stand_beside_the_simulation_of_their_seed() -> None:
    """It is of the first seed, 10 s, where the mean over both is 15 s."""
    run = Run(runs=3, further=(-0.5, 9.5))
    row = row_of("b", 15.0, makespans={4: 10.0, 5: 20.0}, run=run)
    (table,) = runs_of_rows([row_of("a", 1.0), row])
    assert rows_of(table) == [
        ["b", "10 s", "8 s (3 runs: 0 us to 9.5 s)", "-20 %", "trusted", "agrees"]
    ]
    assert over_sockets(Run()) == "8 s"  # type: ignore[arg-type]
    assert over_sockets(Run(runs=2, further=(6.0, 9.0))) == "8 s (2 runs: 6 s to 9 s)"  # type: ignore[arg-type]
    assert runs_of_rows([row_of("a", 1.0)]) == []


def test_a_ranking_is_by_pace_and_class() -> None:
    """The fastest by its pace has the longest makespan, and more seeds per step."""
    rows = [
        row_of("a", 1.0, 100.0, seeds_per_step=10),
        refused("b"),
        row_of("c", 9.0, 250.0, seeds_per_step=2000),
        row_of("d", 2.0, 249.0, seeds_per_step=30),
    ]
    assert [*ranking(rows)] == [
        (
            "By seeds per second c is as fast as d, 2.50 x as fast as a here. All "
            "train on 10 to 2,000 seeds per iteration."
        )
    ]
    rows[0].seeds_per_step = None
    assert next(ranking(rows)).endswith("train on 0 to 2,000 seeds per iteration.")
    rows[0].samples_per_second = rows[2].samples_per_second = float("inf")
    assert "c is as fast as a" in next(ranking([rows[2], rows[0]]))

    alone = [row_of("a", 1.0), row_of("w", 1.0, whole_graph=True)]
    (apart,) = ranking(alone)
    assert apart.startswith("Steps on the whole graph and of mini-batches learn")
    both = [*alone, row_of("x", 1.0, 200.0, whole_graph=True)]
    first, second = ranking(both)
    assert first == (
        "By seeds per second x is 2.00 x as fast as w here on the whole graph. All "
        "train on as many seeds per iteration."
    )
    assert second == apart
    more = [*both, row_of("c", 1.0, 400.0)]
    more[0].makespans = {0: 1.0, 1: 2.0}
    more[3].edits = {"job.times.worker": (1, 2)}
    mini, whole, _, times, scaled = ranking(more)
    assert "c is 4.00 x as fast as a here on mini-batches" in mini
    assert whole == first
    assert times.startswith("Times: means over 2 seeds")
    assert scaled.startswith("Times are scaled by seeds")


def test_what_a_row_has_otherwise_is_told_by_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Edits follow where a row stands, and where its features lie if that is told."""
    scenario = SimpleNamespace(job=None)
    row = row_of(
        "b",
        1.0,
        setup={"seconds": 0.0, "causes": {}},
        scenarios={0: scenario},
        edits={
            "job.workers": (2, 4),
            "job.added": (None, ["x", 1]),
            "job.dropped": ([3], None),
        },
    )
    assert edit_lines(row) == [
        "b: placed by best",
        "b: setup 0 us before time 0: nothing to send",
        'b: added job.added: ["x", 1]',
        "b: dropped job.dropped (was [3])",
        "b: job.workers: 4 (was 2)",
    ]
    assert edit_lines(refused("c")) == ["c: no room"]
    monkeypatch.setattr(module, "_say_device", lambda _: "job.features: device")
    assert edit_lines(row)[1:4] == [
        "b: setup 0 us before time 0: nothing to send",
        "b: job.features: device",
        'b: added job.added: ["x", 1]',
    ]


def side_of(value: Any, best: int, *answers: Any) -> Any:
    """Return one side of a crossover."""
    return SimpleNamespace(value=value, best=answers[best], answers=answers)


def placed(system: str, rate: float, machines: list[str], **more: Any) -> Any:
    """Return a row on machines that were chosen among five."""
    placing = {"machines": machines, "machines_in_all": 5, "machines_chosen": True}
    job = SimpleNamespace(rates=None)
    scenarios = {0: SimpleNamespace(job=job)}
    row = {"placing": placing, "machines": machines, "scenarios": scenarios}
    return row_of(system, 10.0, rate, **row | more)


@pytest.mark.parametrize(
    ("found", "above", "text"),
    [
        (True, "p3", "dgtp on .* is faster up to 8, p3 on .* from 16, by seeds"),
        (False, "dgtp", "dgtp on .* is faster at 8 and at 16, by seeds"),
        (False, "other", "dgtp is faster at 8 and at 16, by seeds"),
    ],
)
def test_a_crossover_names_who_is_faster_on_which_side(
    *,
    found: bool,
    above: str,
    text: str,
) -> None:
    machines = ["m0", "m1"]
    near = [placed("dgtp", 200.0, machines), placed("p3", 100.0, machines)]
    far = [placed("dgtp", 300.0, machines), placed("p3", 400.0, ["m3"])]
    far[1].makespans = {0: 15.0}
    best = int(above == "p3")
    if above == "other":
        far[0] = placed("dgtp", 300.0, ["m4", "m3", "m2"])
    crossover: Any = SimpleNamespace(
        key="job.workers",
        found=found,
        estimate=12 if found else None,
        simulations=9,
        below=side_of(8, 0, *near),
        above=side_of(16, best, *far),
    )
    table = crossover_table(crossover)
    assert re.match(text, str(table.title))
    rows = rows_of(table)
    assert [row[:2] for row in rows] == [
        *(["8", "dgtp"], ["8", "p3"], ["16", "dgtp"], ["16", "p3"])
    ]
    assert [row[3] for row in rows] == ["200", "100", "300", "400"]
    assert [row[-1] for row in rows] == ["1.5 s"] * 4
    bold = ["bold", "", "", "bold"] if best else ["bold", "", "bold", ""]
    assert [row.style for row in table.rows] == bold
    place = "at 12" if found else "between no two values that were tried"
    assert table.caption == (
        "first principles: the busiest link has as much to carry in both "
        f"{place}; 9 simulations"
    )
    told = crossover_json(crossover)
    assert (told["key"], told["found"]) == ("job.workers", found)
    assert (told["estimate"], told["simulations"]) == (12 if found else None, 9)
    assert [side["value"] for side in told["sides"]] == [8, 16]
    assert [side["best"] for side in told["sides"]] == ["dgtp", far[best].system]
    assert told["sides"][1]["machines"] == far[best].machines
    near_changes, far_changes = (
        [row["change"] for row in side["systems"]] for side in told["sides"]
    )
    assert near_changes == [0.0, 0.0]
    assert far_changes == [0.0, 0.5]

    crossover.key = "job.model.hidden"
    assert "job.rates" in str(crossover_table(crossover).caption)
    # Rates make times follow what is computed, on either side.
    for row in near:
        row.scenarios[0].job.rates = "some"
    assert "job.rates" not in str(crossover_table(crossover).caption)
    json.dumps(told)


def test_counts_by_rates_are_per_iteration() -> None:
    """Four iterations: 8,000 operations in all are 2,000 of each."""

    def term(operation: str, count: float, rate: float, seconds: float) -> Any:
        return SimpleNamespace(
            operation=operation, count=count, rate=rate, seconds=seconds
        )

    terms = (term("multiply", 8000.0, 2e-6, 16e-3), term("gather", 40.0, 1e-3, 40e-3))
    works = [
        SimpleNamespace(
            what="worker", tasks=3, machine="m0", pool="gpu", waited=6.0, terms=terms
        ),
        SimpleNamespace(
            what="flow",
            tasks=1,
            machine="m1",
            pool="",
            waited=0.0,
            terms=(term("bytes", 4e6, 1e-9, 4e-3),),
        ),
    ]
    job = SimpleNamespace(iterations=4)
    experiment = SimpleNamespace(problem=SimpleNamespace(job=job))
    row: Any = SimpleNamespace(
        system="dgtp",
        experiment=experiment,
        work=works,
        simulated=SimpleNamespace(length=20.0),
    )
    table = work_table(row)
    first, second, third = rows_of(table)
    assert first == [
        "worker (3)",
        "m0",
        "gpu",
        "2,000",
        "multiply",
        "2 us",
        "4 ms",
        "1.5 s",
    ]
    assert second == ["", "", "", "10", "gather", "1 ms", "10 ms", ""]
    assert third[:5] == ["flow", "m1", "", "1,000,000", "bytes"]
    assert third[6:] == ["1 ms", ""]
    assert str(table.caption).startswith("waited for: 1.5 s of 5 s, the critical path")


def test_figures_of_systems_have_so_many_digits() -> None:
    row = row_of("a", 1.0, 12345.678)
    assert rows_of(systems_table([row]))[0][-1] == "12,350"
    run = Run(makespan=1.23456789, makespan_error=0.1)
    row = row_of("a", 1.0, makespans={0: 2.3456789}, run=run)
    (table,) = runs_of_rows([row])
    assert rows_of(table)[0][1:3] == ["2.3457 s", "1.2346 s"]
    row = row_of("a", 1.0, setup={"seconds": 1.23456789})
    assert rows_of(limits_table([row]))[0][2] == "1.23 s"


@pytest.mark.parametrize(
    ("places", "usual", "device", "line"),
    [
        (None, "host", 1.0, None),
        ("host", "device", 1.0, None),
        (
            None,
            "device",
            None,
            "device; a device collects in line at job.rates.collect, s",
        ),
        (
            "device",
            "host",
            2.0,
            "device; a device collects in line at job.rates.collect_d",
        ),
    ],
)
def test_where_features_lie_is_told_of_devices(
    places: Any, usual: str, device: Any, line: str | None, monkeypatch: Any
) -> None:
    """As the file states it, or as the system has them."""

    class Section(SimpleNamespace):
        pass

    monkeypatch.setattr(module, "TrainingSection", Section)
    rates = SimpleNamespace(collect_device=device)
    job: Any = Section(features=places, usual_features=usual, rates=rates)
    told = module._say_device(job)
    assert (told == "") == (line is None)
    assert f"job.features: {line or ''}" in told or line is None
    job.rates = None
    assert module._say_device(job) == (
        "" if line is None else "job.features: device; a device collects in line"
    )
    other: Any = SimpleNamespace()
    assert module._say_device(other) == ""


def test_a_refused_row_stands_beside_none() -> None:
    """Rows of JSON are beside the first of their class, of whole graphs as well."""
    rows = [row_of("a", 4.0), refused("b"), row_of("c", 1.0)]
    assert [row.get("change") for row in answers_json(rows)] == [0.0, None, -0.75]
