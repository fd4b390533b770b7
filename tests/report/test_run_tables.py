"""Tables of a run, and of what was measured, trained and checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rich.table import Table

from emu.report.measured_tables import (
    accuracy_table,
    audit_table,
    ranges_table,
    rates_lines,
    times_lines,
    training_table,
)
from emu.report.run_tables import (
    budget_table,
    flow_table,
    kinds_table,
    payload_line,
    port_table,
    run_tables,
)
from emu.trust.violation import AuditReport, Violation


def rows_of(table: Table) -> list[list[str]]:
    """Return the cells of every row."""
    columns = [[*map(str, column.cells)] for column in table.columns]
    return [[*row] for row in zip(*columns, strict=True)]


FLOWS: dict[str, Any] = {"from": "store", "to": "sampler", "flows": 1234, "bytes": 2e6}


def test_flows_stand_beside_those_of_the_simulation() -> None:
    """Flows that take no time there have no share to be off by."""
    rows = [
        FLOWS
        | {
            "mean_seconds": 3.0,
            "mean_waiting_seconds": 0.5,
            "simulated_mean_seconds": 2.0,
        },
        FLOWS | {"mean_seconds": 1.0, "simulated_mean_seconds": 0.0},
    ]
    table = flow_table(rows, "features 2 MB")
    names = ["store", "sampler", "1,234", "2 MB"]
    assert rows_of(table) == [
        [*names, "500 ms", "3 s", "2 s", "+50 %"],
        [*names, "", "1 s", "0 us", "0 %"],
    ]
    assert table.caption == "features 2 MB"
    (row,) = rows_of(flow_table([FLOWS | {"mean_seconds": 1.0}]))
    assert row == [*names, "", "1 s"]
    assert flow_table([]).caption is None
    assert payload_line({"features": 2e6, "ids": 1e3}) == "features 2 MB, ids 1 kB"
    assert payload_line({}) == ""


def test_a_link_that_is_overused_is_told_so_and_drawn_as_full() -> None:
    row = {"port": "m0 out", "bytes_per_second": 1e6, "bytes": 5e6, "used": 1.25}
    full, half = rows_of(port_table([row, row | {"port": "m1 in", "used": 0.5}]))
    assert full == ["m0 out", "8 Mbit/s", "5 MB", "125%", "█" * 30]
    assert half == ["m1 in", "8 Mbit/s", "5 MB", "50%", "█" * 15]


def test_parts_of_an_error_are_shares_of_the_replayed_makespan() -> None:
    """Those of hosts stand below, and clocks are at most so far apart."""
    result: dict[str, Any] = {
        "replayed_makespan": 8.0,
        "error_budget": {"shaping": 2.0, "clock": -0.5, "loop lag": 4e-13},
        "hosts": [{"host": "a", "seconds": 0.25}, {"host": "b", "seconds": -1.0}],
        "verdict": {"clock_uncertainty": 0.0125},
    }
    assert rows_of(budget_table(result)) == [
        ["shaping", "+2 s", "+25 %"],
        ["clock", "-500 ms", "-6.25 %"],
        ["of it on a", "+250 ms", "+3.12 %"],
        ["of it on b", "-1 s", "-12.5 %"],
        ["clocks of hosts, at most", "± 100 ms", "± 1.25 %"],
    ]
    bare = {"replayed_makespan": 0.0, "error_budget": {"shaping": 2.0}}
    assert rows_of(budget_table(bare)) == [["shaping", "+2 s", "+200 %"]]
    without = bare | {"verdict": {"clock_uncertainty": 0.0}}
    assert len(budget_table(without).rows) == 1


KIND = {
    "tasks": 4,
    "mean_seconds": 1.5,
    "max_seconds": 2.5,
    "late_iterations": 0,
    "max_late_seconds": 9.0,
}


def test_kinds_of_tasks_tell_lateness_where_some_were_late() -> None:
    late = KIND | {"late_iterations": 3, "max_late_seconds": 0.25}
    assert rows_of(kinds_table({"kinds": {"store": KIND, "worker": late}})) == [
        ["store", "4", "1.5 s", "2.5 s", "", ""],
        ["worker", "4", "1.5 s", "2.5 s", "3", "250 ms"],
    ]


def test_a_budget_of_nothing_is_no_table_of_a_run() -> None:
    result: dict[str, Any] = {
        "replayed_makespan": 8.0,
        "kinds": {},
        "edges": [],
        "ports": [],
        "payloads": {"ids": 5e3},
    }
    shown: Any = run_tables(result)
    titles = [table.title for table in shown.renderables if isinstance(table, Table)]
    assert titles[1:] == ["Tasks", "Flows between machines", "NICs and links"]
    assert [part.caption for part in shown.renderables[::2]][2] == "ids 5 kB"
    shown = run_tables(result | {"error_budget": {"a": 0.0, "b": 0.0}})
    assert len(shown.renderables) == 8
    shown = run_tables(result | {"error_budget": {"a": 0.0, "b": -1.0}})
    assert shown.renderables[2].title == "Error budget, on the critical path"


def test_ranges_of_a_trace_are_drawn_beside_the_longest_of_them() -> None:
    """It is neither the first nor the last, and has the most time in all."""
    ranges = {
        "a": np.array([1.0, 2.0]),
        "b": np.array([0.5] * 1200),
        "c": np.array([300.0]),
    }
    table = ranges_table(ranges)
    assert rows_of(table) == [
        ["a", "2", "1.5 s", ""],
        ["b", "1,200", "500 ms", "█" * 30],
        ["c", "1", "300 s", "█" * 15],
    ]
    assert table.caption is None
    many = {f"r{number}": np.array([1.0]) for number in range(14)}
    assert len(ranges_table(many).rows) == 12
    assert ranges_table(many).caption == "and 2 shorter ones"
    many.popitem()
    assert ranges_table(many).caption == "and 1 shorter ones"
    many.popitem()
    assert ranges_table(many).caption is None
    (idle,) = rows_of(ranges_table({"idle": np.array([0.0])}))
    assert idle == ["idle", "1", "0 us", ""]
    assert rows_of(ranges_table({})) == []


def test_times_and_rates_are_lines_of_what_is_known() -> None:
    times = [("store", 2.0), ("worker", (0.0, 3.0)), ("none", None), ("no", (0.0,))]
    assert times_lines(times, {"sampler": 0.5, "ps": 0.0}) == [
        "  store: 2 s",
        "  worker: 0 us, 3 s",
        "  (sampler: 500 ms, no key takes it)",
    ]
    assert [*rates_lines({"gather": "2 ns"}, {"worker": -0.25})] == [
        "  gather: 2 ns",
        "  (worker: -25 % at the furthest)",
    ]


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_a_training_is_told_by_its_looks_or_its_last_step(
    *,
    is_looked_at: bool,
) -> None:
    rows = [
        {"iteration": 1.0, "time": 2.0, "loss": 0.75},
        {"iteration": 2.0, "time": 3.0, "loss": 0.5},
        {"iteration": 3.0, "time": 5.0, "loss": 0.25},
    ]
    last = ["3", "5 s", "0.25", "no such vertices"]
    if is_looked_at:
        rows[1]["accuracy"] = 0.625
        last = ["2", "3 s", "0.5", "62.50%"]
    assert rows_of(training_table(rows)) == [last]


def test_an_audit_counts_what_broke_by_constraint() -> None:
    """One row may be of two constraints; the first that broke either is told."""

    def broken(constraint: str, subject: str) -> Violation:
        return Violation(constraint, subject, 2.0, "s", f"{subject} is late")

    report = AuditReport(
        checked={"(8)": 5000, "(9),(10)": 7, "(11)": 9},
        violations=[broken("(10)", "a"), broken("(9)", "b"), broken("(11)", "c")],
    )
    assert rows_of(audit_table(report)) == [
        ["(8)", "5,000", "0", ""],
        ["(9),(10)", "7", "2", "(10) a is late: 2 s"],
        ["(11)", "9", "1", "(11) c is late: 2 s"],
    ]


def test_accuracies_name_their_jobs_where_there_are_several() -> None:
    splits = {"validation": 0.5, "test": 0.125}
    assert rows_of(accuracy_table({"": splits})) == [
        ["validation", "50.00%"],
        ["test", "12.50%"],
    ]
    assert rows_of(accuracy_table({"a": splits, "b": {"test": 0.25}})) == [
        ["a", "validation", "50.00%"],
        ["a", "test", "12.50%"],
        ["b", "test", "25.00%"],
    ]


def test_figures_of_trainings_have_so_many_digits() -> None:
    row = {"iteration": 1.0, "time": 1.23456789, "loss": 1.23456789}
    assert rows_of(training_table([row]))[0][1:3] == ["1.2346 s", "1.235"]
    many = [
        {"port": f"m{number}", "bytes_per_second": 1.0, "bytes": 1.0, "used": 0.5}
        for number in range(65)
    ]
    assert len(port_table(many).rows) == 20
    assert len(port_table(many[:64]).rows) == 64


def test_accuracies_of_a_job_of_a_name_have_it_in_front() -> None:
    table = accuracy_table({"a": {"test": 0.25}})
    assert [str(column.header) for column in table.columns] == [
        *("job", "split", "accuracy")
    ]
