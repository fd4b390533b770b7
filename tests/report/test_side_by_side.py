"""Candidates, points of a sweep and runs beside each other, by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.table import Table

from emu.errors import DataError, PlacementError
from emu.prediction.analysis.throughput import JobSpan
from emu.prediction.placement.moves import Move
from emu.report.comparison import (
    Comparison,
    _notes_on,
    candidate_json,
    coflow_line,
    comparison_table,
    comparison_tables,
    sweep_figure_tables,
    sweep_table,
    write_makespans,
)
from emu.report.many_runs import (
    compare,
    flat,
    label,
    labels,
    makespans,
    repetitions,
    runs_json,
    runs_table,
    schedules_of,
    write_pair,
)
from emu.runs.intervals import Interval
from tests.report.answers import candidate_of


def rows_of(table: Table) -> list[list[str]]:
    """Return the cells of every row."""
    columns = [[*map(str, column.cells)] for column in table.columns]
    return [[*row] for row in zip(*columns, strict=True)]


def heads_of(table: Table) -> list[str]:
    """Return the headings."""
    return [str(column.header) for column in table.columns]


def test_two_means_stand_beside_each_other_seed_by_seed() -> None:
    """The second loses 10 and 5 %; t of two values is 12.706."""
    found = compare({0: 9.0, 1: 19.0}, {0: 10.0, 1: 20.0, 2: 70.0})

    assert found["makespan"] == 14.0
    assert found["half"] == pytest.approx(12.706 * 5.0)
    assert found["seeds"] == 2
    assert found["change"] == pytest.approx(-0.075)
    assert found["change_half"] == pytest.approx(12.706 * 0.025)
    assert found["tie"] is True

    sure = compare({0: 5.0, 1: 10.02}, {0: 10.0, 1: 20.0})
    assert sure["change"] == pytest.approx(-0.4995)
    assert sure["change_half"] == pytest.approx(12.706 * 0.0005)
    assert sure["tie"] is False

    alone = compare({0: 9.0}, {1: 10.0})
    assert (alone["change"], alone["change_half"], alone["tie"]) == (None, None, False)


@pytest.mark.parametrize(
    ("apart", "words"),
    [
        (None, ""),
        (Interval(0.021, 0.0, 3), "+2.1 %"),
        (Interval(-0.021, 0.004, 3), "-2.1 ± 0.4 %"),
        (Interval(0.004, 0.021, 3), "tie (+0.4 ± 2.1 %)"),
    ],
)
def test_a_difference_is_told_with_its_interval(
    apart: Interval | None, words: str
) -> None:
    """One of a single value has none, and one within it is a tie."""
    assert write_pair(apart) == words


def test_a_mean_is_told_with_half_of_its_interval() -> None:
    """None where there is one value, and a word where there is none."""
    assert write_makespans({}) == ("refused", "")
    assert write_makespans({4: 1.23456789}) == ("1.23457 s", "")
    assert write_makespans({0: 1.0, 1: 2.0}) == ("1.5 s", "6.353 s")


def test_a_candidate_has_its_figures_by_name() -> None:
    """The second of two candidates has figures of its own, which all differ."""
    first = candidate_of("ifs", "oes", {0: 10.0}, share_between=0.5, rounding=0.5)
    cost = {"total": 3.0, "value": 0.25}
    row = candidate_of(
        "etp", "fifo", {0: 8.0}, share_between=0.25, rounding=0.125, cost=cost
    )
    content = candidate_json(row, first)

    assert (content["placement"], content["policy"]) == ("etp", "fifo")
    assert (content["makespan"], content["change"]) == (8.0, pytest.approx(-0.2))
    assert (content["moved"], content["rounding"]) == (0.25, 0.125)
    assert (content["cost"], content["moves"]) == (cost, [])
    assert "cost" not in candidate_json(first, first)
    assert "coflows" not in content
    refused = candidate_of("rr", "oes", {}, refused=PlacementError("no room"))
    assert candidate_json(refused, first) == {
        "placement": "rr",
        "policy": "oes",
        "refused": "no room",
    }


def test_the_shortest_of_a_comparison_is_bold_and_what_was_refused_says_why() -> None:
    """Refusals have neither a change nor moves, and stand in the note below."""
    move = Move("w0", "slow", "fast")
    rows = [
        candidate_of("ifs", "oes", {0: 10.0}, share_between=0.5),
        candidate_of("rr", "oes", {}, refused=PlacementError("no room")),
        candidate_of("etp", "fifo", {0: 5.0}, share_between=0.25),
        candidate_of("best", "mrtf", {0: 20.0}, share_between=1.0),
    ]
    vars(rows[2])["moves"] = (move,) * 7
    table = comparison_table(rows, "a job")

    assert str(table.title) == "Simulated, a job"
    assert [row.style for row in table.rows] == ["", "", "bold", ""]
    assert rows_of(table) == [
        ["ifs", "oes", "10 s", "", "0 %", "50%", "0"],
        ["rr", "oes", "refused", "", "", "", ""],
        ["etp", "fifo", "5 s", "", "-50 %", "25%", "7"],
        ["best", "mrtf", "20 s", "", "+100 %", "100%", "0"],
    ]
    assert table.caption == "rr, oes: no room"
    assert comparison_table(rows[:1]).title == "Simulated"


@pytest.mark.parametrize(("count", "is_told"), [(0, False), (6, True), (7, False)])
def test_six_moves_are_told_and_more_are_counted(
    count: int,
    *,
    is_told: bool,
) -> None:
    row = candidate_of("etp", "fifo", {0: 5.0})
    vars(row)["moves"] = (Move("w0", "slow", "fast"),) * count
    told = [note for note in _notes_on([row]) if "etp under fifo" in note]
    assert len(told) == is_told


@pytest.mark.parametrize(
    ("makespan", "is_told"), [(9.75, False), (9.8, True), (10.2, True), (10.0, False)]
)
def test_rows_within_the_rounding_are_as_good_as_the_first(
    makespan: float,
    *,
    is_told: bool,
) -> None:
    """A quarter of a second is rounding; equal rows and those beside it are none."""
    rows = [
        candidate_of("ifs", "oes", {0: 10.0}, rounding=0.25),
        candidate_of("etp", "oes", {0: makespan}, rounding=0.125),
    ]
    notes = [note for note in _notes_on(rows) if "as good as" in note]
    told = "etp, oes: as good as the first row, rounding alone moves it by 250 ms"
    assert notes == [told] * is_told


def test_several_jobs_have_a_table_of_their_own_seconds() -> None:
    """The makespan is that of the last job under either rule."""

    def jobs(*seconds: float, name: str = "j") -> list[JobSpan]:
        return [
            JobSpan(f"{name}{row}", release=1.0, end=1.0 + length, seconds=length)
            for row, length in enumerate(seconds)
        ]

    rows = [
        candidate_of("best", "oes", {0: 10.0}, jobs=jobs(9.0, 3.0)),
        candidate_of("best", "mrtf", {0: 10.0}, jobs=jobs(9.0, 1.0)),
    ]
    _, table = comparison_tables(rows)
    assert heads_of(table) == ["placement", "policy", "j0", "j1", "mean"]
    assert rows_of(table) == [
        ["best", "oes", "9 s", "3 s", "6 s"],
        ["best", "mrtf", "9 s", "1 s", "5 s"],
    ]
    assert [row.style for row in table.rows] == ["", "bold"]
    assert str(table.title) == "Jobs, each from its release to its end"

    # Names that would not fit beside each other, and too many of them.
    for spans in (jobs(1.0, 3.0, name="n" * 40), jobs(*[2.0] * 6)):
        long = candidate_of("best", "oes", {0: 3.0, 1: 4.0}, jobs=spans)
        _, summary = comparison_tables([long])
        assert heads_of(summary) == ["placement", "policy", "95 % within", "mean"]
        assert rows_of(summary)[0][3] == "2 s"
        assert str(summary.title).endswith("its end, first seed")
    _, five = comparison_tables(
        [candidate_of("b", "o", {0: 2.0}, jobs=jobs(*[2.0] * 5))]
    )
    assert len(heads_of(five)) == 8


def test_costs_and_coflows_have_tables_of_the_rows_that_know_them() -> None:
    """Rows that were refused or cost nothing are in neither."""
    coflows = {"count": 1234, "mean": 2.0, "p95": 7.0, "slowdown": 1.5}
    rows = [
        candidate_of("ifs", "oes", {0: 10.0}),
        candidate_of("rr", "oes", {}, refused=PlacementError("no room")),
        candidate_of("etp", "oes", {0: 9.0}, cost={"total": 2.5, "value": 0.5}),
        candidate_of("a", "b", {0: 9.0}, cost={"total": 3.0, "value": None}),
        candidate_of("c", "d", {0: 9.0}, coflows=coflows),
    ]
    _, costs, times = comparison_tables(rows)
    assert rows_of(costs) == [["etp", "oes", "2.5 $", "0.5"], ["a", "b", "3 $", ""]]
    assert rows_of(times) == [["c", "d", "1,234", "2 s", "7 s", "1.500"]]
    assert [str(table.title) for table in comparison_tables(rows[:2])] == ["Simulated"]
    assert coflow_line(coflows) == (
        "1,234 coflows: 2 s on average, 95 % within 7 s, 1.5 times as long as alone"
    )
    shown = Comparison(rows[:1])._repr_html_()
    assert shown.count("<table") == 1
    assert Comparison()._repr_html_() == "[]"


def point(rule: str, seed: int, makespan: float, **figures: float) -> dict[str, Any]:
    """Return a point of a sweep over rules."""
    values = {"rule": rule, "seed": seed}
    return {"values": values, "figures": {"makespan": makespan, **figures}}


def test_figures_of_a_sweep_are_means_over_the_seeds_that_have_them() -> None:
    """Errors are shown where all points were emulated, costs where one is priced."""
    rows = [
        point("oes", 0, 1.0, cost=0.5, value=3.0),
        point("oes", 1, 2.0, cost=1.5, value=6.0),
        point("fifo", 0, 4.0),
    ]
    (costs,) = sweep_figure_tables(rows, ["rule"])
    assert str(costs.title) == "Cost"
    assert heads_of(costs) == ["rule", "cost", "value / (s $)"]
    assert rows_of(costs) == [["oes", "1 $", "4.5"], ["fifo", "", ""]]

    errors = [(0.01, 0.05), (0.03, 0.06), (-0.5, 0.25)]
    for row, (prediction, replay) in zip(rows, errors, strict=True):
        row["figures"] |= {"makespan_error": prediction, "replay_error": replay}
    emulated, _ = sweep_figure_tables(rows, ["rule"])
    assert rows_of(emulated) == [["oes", "+2 %", "+5.5 %"], ["fifo", "-50 %", "+25 %"]]
    del rows[1]["figures"]["replay_error"]
    assert [str(table.title) for table in sweep_figure_tables(rows, ["rule"])] == [
        "Cost"
    ]


def test_a_sweep_counts_the_seeds_of_every_point() -> None:
    """The best has two, another one: it is compared by the seed that both have."""
    rows = [
        point("fifo", 1, 6.0),
        point("oes", 0, 1.0),
        point("oes", 1, 4.0),
        point("none", 7, 9.0),
    ]
    table = sweep_table(rows, ["rule"])
    assert rows_of(table) == [
        ["fifo", "6 s", "", "1", "+50 %"],
        ["oes", "2.5 s", "19.06 s", "2", ""],
        ["none", "9 s", "", "1", ""],
    ]
    assert [row.style for row in table.rows] == ["", "bold", ""]
    assert table.caption is None


def test_points_on_unequal_samples_are_ranked_by_their_pace() -> None:
    """The slower of two has more samples per second, as a mean over its seeds."""
    rows = [
        point("few", 0, 1.0, samples=100, samples_per_second=100.0),
        point("many", 0, 2.0, samples=400, samples_per_second=200.0),
        point("many", 1, 4.0, samples=1600, samples_per_second=400.0),
    ]
    table = sweep_table(rows, ["rule"])
    assert heads_of(table)[-1] == "samples per s"
    few, many = rows_of(table)
    assert few[-2:] == ["+100 %", "100"]
    assert many == ["many", "3 s", "12.71 s", "2", "", "300"]
    assert table.caption == "by seeds per second: not all train on as many seeds"
    assert list(sweep_figure_tables(rows, ["rule"])) == []

    # Beside two keys there is no room for it.
    for row in rows:
        row["values"]["size"] = 1
    assert heads_of(sweep_table(rows, ["rule", "size"]))[-1] == "against the best"
    (paces,) = sweep_figure_tables(rows, ["rule", "size"])
    assert rows_of(paces) == [["few", "1", "100"], ["many", "1", "300"]]

    # Equal numbers of samples are ranked by their makespans.
    for row in rows:
        row["figures"]["samples"] = 100
    assert sweep_table(rows, ["rule"]).caption is None
    assert list(sweep_figure_tables(rows, ["rule", "size"])) == []


def schedule_of(makespan: float, recovery: float = 0.0) -> Any:
    """Return a schedule of such a length."""
    outages = SimpleNamespace(recovery=recovery)
    return SimpleNamespace(makespan=makespan, outages=outages)


def run_of(
    name: str,
    emulated: float | None = None,
    simulated: float | None = None,
    recovery: float = 0.0,
    **more: Any,
) -> Any:
    """Return a recorded run with such makespans."""
    first = None if emulated is None else schedule_of(emulated, recovery)
    second = None if simulated is None else schedule_of(simulated, recovery)
    run: dict[str, Any] = {
        "name": name,
        "emulated": first,
        "simulated": second,
        "best": first or second,
        "manifest": {},
        "result": {},
        "policy": "oes",
        "missing": (),
    }
    return SimpleNamespace(**run | more)


def stated(**keys: Any) -> dict[str, Any]:
    """Return the manifest of a scenario."""
    return {"scenario": {"name": "s", **keys}}


def test_a_run_has_the_schedules_that_were_read() -> None:
    both = run_of("a", 2.0, 3.0)
    assert schedules_of(both) == {
        "emulated": both.emulated,
        "simulated": both.simulated,
    }
    (name,) = schedules_of(run_of("a", simulated=3.0))
    assert name == "simulated"


def test_a_run_is_named_by_its_result_before_its_manifest_and_directory() -> None:
    manifest = {"scenario": {"name": "m", "placement": {"policy": "ifs"}}}
    result = {"scenario": "r", "placement": "etp"}
    assert label(run_of("d", manifest=manifest, result=result)) == "r, etp, oes"
    assert label(run_of("d", manifest=manifest)) == "m, ifs, oes"
    assert label(run_of("d", policy="fifo")) == "d, ?, fifo"


def test_what_is_nested_is_listed_by_its_keys() -> None:
    content = {"a": {"b": [1, {"c": 2}]}, "d": []}
    assert [*flat(content)] == [("a.b[0]", 1), ("a.b[1].c", 2)]


def test_runs_that_repeat_each_other_share_a_name() -> None:
    """Seeds and expectations part none; the keys that part two groups name them."""
    placed = {"policy": "ifs"}
    runs = [
        run_of("a", manifest=stated(seed=1, size=3, placement=placed)),
        run_of("b", manifest=stated(seed=1, size=4, placement=placed)),
        run_of("c", manifest=stated(seed=2, size=3, placement=placed, expect=["x"])),
        run_of("d", manifest=stated(size=4, placement=placed), policy="fifo"),
    ]
    groups = repetitions(runs)
    assert {name: [run.name for run in group] for name, group in groups.items()} == {
        "s, ifs, oes, size=3": ["a", "c"],
        "s, ifs, oes, size=4": ["b"],
        "s, ifs, fifo": ["d"],
    }
    assert labels(runs) == ["a", "s, ifs, oes, size=4", "c", "s, ifs, fifo"]
    assert "seed" in runs[0].manifest["scenario"]


def several_runs() -> list[Any]:
    """Return two groups: three runs of two seeds, and one that was not emulated.

    Two seconds of the first group are recovery, the mean of 1, 2 and 3.
    """
    first = stated(size=3)
    return [
        run_of(
            "a",
            12.0,
            11.0,
            recovery=1.0,
            manifest=stated(size=3, seed=0),
            result={"predicted_makespan": 10.0},
        ),
        run_of("b", 14.0, 12.0, recovery=2.0, manifest=stated(size=3, seed=0)),
        run_of(
            "c",
            22.0,
            recovery=3.0,
            manifest=stated(size=3, seed=1),
            missing=("simulated.json is missing",),
            result={"predicted_makespan": 6.0},
        ),
        run_of("d", simulated=6.5, manifest=first | stated(size=4, seed=0)),
    ]


def test_makespans_of_runs_are_listed_by_what_found_them() -> None:
    runs = [*several_runs(), run_of("e", 5.0, result={"virtual": {"makespan": 4.5}})]
    first, second, third = makespans(runs).values()
    assert first == {
        "emulated": [12.0, 14.0, 22.0],
        "simulated": [11.0, 12.0],
        "predicted": [10.0, 6.0],
    }
    assert second == {"simulated": [6.5]}
    assert third == {"emulated": [5.0], "virtual": [4.5]}


def test_groups_of_runs_have_errors_of_their_means_without_recovery() -> None:
    """Emulated 16 s and predicted 8 s hold 2 s of recovery: 14 over 6 s.

    By seeds the first group takes 13 and 22 s, so that the second has half of the 13 s.
    """
    first, second = runs_json(several_runs())

    assert (first["name"], first["runs"]) == ("s, ?, oes, size=3", 3)
    assert first["makespan_error"] == pytest.approx(14.0 / 6.0 - 1.0)
    assert first["replay_error"] == pytest.approx(14.0 / 9.5 - 1.0)
    assert first["change"] == {"mean": 0.0, "half": 0.0, "count": 2, "tie": True}
    assert first["missing"] == ["c: simulated.json is missing"]
    assert first["emulated"]["mean"] == 16.0
    assert first["predicted"] == {"mean": 8.0, "half": pytest.approx(12.706 * 2.0)}

    assert (second["runs"], second["makespan_error"]) == (1, None)
    assert second["change"]["mean"] == pytest.approx(-0.5)
    assert second["simulated"] == {"mean": 6.5, "half": 0.0}
    assert runs_json([]) == []


def test_the_table_of_runs_shows_each_figure_in_its_column() -> None:
    table = runs_table(several_runs())
    assert heads_of(table)[2] == "emulated"
    first, second = rows_of(table)
    assert first == [
        "s, ?, oes, size=3",
        *("3", "16 s", "13.15 s", "0 %", "8 s", "+133 %", "+47.4 %"),
    ]
    assert second == ["s, ?, oes, size=4", *("1", "missing", "", "-50 %", "", "", "")]

    virtual = run_of("e", simulated=5.0, result={"virtual": {"makespan": 4.5}})
    both = runs_table([virtual, run_of("f", 3.0, policy="fifo")])
    assert heads_of(both)[2] == "virtual or emulated"
    assert [row[2:5] for row in rows_of(both)] == [
        ["4.5 s", "", "0 %"],
        ["3 s", "", "-40 %"],
    ]


def test_a_run_without_schedules_says_what_it_lacks() -> None:
    class Empty(SimpleNamespace):
        @property
        def best(self) -> Any:
            raise DataError("result.json is missing", path="a")

    run: Any = Empty(emulated=None, simulated=None)
    with pytest.raises(DataError, match=r"result\.json is missing"):
        schedules_of(run)


def test_a_placement_that_is_kept_is_told_of_the_first_row_s_rule() -> None:
    rows = [
        replace(candidate_of("ifs", rule, {0: 1.0}), kept=number > 0)
        for number, rule in enumerate(("oes", "fifo"))
    ]
    assert [*_notes_on(rows)] == ["each placement is that of oes, for all policies"]


def test_figures_of_comparisons_have_so_many_digits() -> None:
    """Makespans have six, paces and costs four, coflows three behind the point."""
    seconds = 1.23456789
    coflows = {"count": 3, "mean": seconds, "p95": seconds, "slowdown": seconds}
    cost = {"total": 1.0, "value": seconds}
    row = candidate_of("ifs", "oes", {0: seconds}, coflows=coflows, cost=cost)
    makespans_of_rows, costs, times = comparison_tables([row])
    assert rows_of(makespans_of_rows)[0][2] == "1.23457 s"
    assert rows_of(costs)[0][3] == "1.235"
    assert rows_of(times)[0][3:] == ["1.235 s", "1.235 s", "1.235"]
    assert "1.235 s on average, 95 % within 1.235 s, 1.235 times" in coflow_line(
        coflows
    )
    rows = [
        point("a", 0, seconds, samples=1, samples_per_second=12345.678),
        point("b", 0, 1.0, samples=2, samples_per_second=1.0),
    ]
    assert rows_of(sweep_table(rows, ["rule"]))[0][-1] == "12,350"
    run = run_of("a", 1.23456789, result={"predicted_makespan": 2.3456789})
    first, *_ = rows_of(runs_table([run]))
    assert (first[2], first[5]) == ("1.2346 s", "2.3457 s")
