"""Systems side by side by the time to an accuracy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.experiment.scaled_steps import Trend
from emu.report.step_sources import describe_steps
from emu.report.target_tables import target_lines, target_table
from emu.scenario.virtual_training import NotReached

TREND = Trend((0.1, 0.2), (300, 400), 1.0, estimate=500.0, low=400.0, high=750.0)


def row_of(system: str, makespan: float, **figures: Any) -> Any:
    """Return an answer with such a makespan; more figures by name."""
    question: dict[str, Any] = {"curve_file": None, "has_steps": False, "settings": {}}
    row = {
        "system": system,
        "makespan": makespan,
        "makespans": {0: makespan},
        "placing": {"machines": ["m1", "m4"], "machines_in_all": 5},
        "everywhere": None,
        "epochs": 1.5,
        "steps": 1234.0,
        "epoch_seconds": 0.25,
        "trend": None,
        "cost": None,
        "refused": None,
        "tried": (),
        "weights": system,
    }
    row["question"] = SimpleNamespace(**question | figures.pop("question", {}))
    return SimpleNamespace(**row | figures)


def cells_of(rows: list[Any]) -> dict[str, list[str]]:
    """Return the cells of every column, by its heading."""
    table = target_table(rows, "accuracy=0.5")
    return {str(column.header): [*map(str, column.cells)] for column in table.columns}


def test_rows_with_a_price_have_their_cost_beside_the_fastest_first() -> None:
    slow = row_of("p3", 9.0, cost={"servers": 2.0, "total": 7.0})
    fast = row_of("dgcl", 3.0, cost={"servers": 1.0, "total": 2.5})
    cells = cells_of([slow, fast])

    assert cells["system"] == ["dgcl", "p3"]
    assert cells["cost"] == ["2.5 $", "7 $"]
    assert "cost" not in cells_of([row_of("dgcl", 3.0)])


def test_steps_of_smaller_graphs_stand_beside_those_of_trainings() -> None:
    """Without a recorded curve in any row, and where all rows have trained."""
    trained = row_of("dgcl", 3.0)
    cells = cells_of([trained, row_of("p3", 9.0, trend=TREND)])

    assert cells["95 %"] == ["", "400 to 750"]
    assert cells["steps by"] == ["training", "2 scales"]
    assert "steps by" not in cells_of([trained, row_of("p3", 9.0)])


def test_settings_are_told_of_rows_that_had_a_choice() -> None:
    tried = [({"job.batch_size": size}, None) for size in (16, 64)]
    question = {"settings": {"job.batch_size": 64}}
    chosen = row_of("p3", 9.0, tried=tried, question=question)
    alone = row_of("dgcl", 3.0, tried=[({}, None)])
    lines = [line for line in target_lines([chosen, alone]) if "the best of" in line]

    assert lines == ["p3: the best of 2, batch_size 16 | 64: batch_size 64"]


def test_intervals_that_merely_touch_part_two_rows() -> None:
    """The first may take 3 / 2 of its makespan, which is 6 s."""
    best = row_of("dgcl", 4.0, trend=TREND)

    def are_tied(makespan: float) -> bool:
        lines = target_lines([best, row_of("p3", makespan)])
        return any("do not part dgcl from p3" in line for line in lines)

    assert are_tied(5.9)
    assert not are_tied(6.0)


def test_the_columns_of_a_row_are_its_own_figures() -> None:
    """The first has no change; one that never came near has its nearest look."""
    first = row_of("dgcl", 3.0, everywhere=2.5, epochs=1.25)
    second = row_of("p3", 6.0, steps=9876.4, epoch_seconds=0.75)
    missed: Any = NotReached("x")
    missed.seconds = 90.0
    missed.nearest = 0.4321
    cells = cells_of([second, row_of("no", 1.0, refused=missed), first])
    assert cells == {
        "system": ["dgcl", "p3", "no"],
        "on": ["2 of 5", "2 of 5", ""],
        "time": ["3 s", "6 s", "90 s"],
        "to the first": ["", "+100 %", "43.2% at best"],
        "on all": ["2.5 s", "", ""],
        "epochs": ["1.25", "1.5", ""],
        "steps": ["1,234", "9,876", ""],
        "per epoch": ["250 ms", "750 ms", ""],
    }
    assert target_table([first], "x=1").caption is None
    assert str(target_table([first], "x=1").title) == "Simulated, to x=1"


def test_ties_and_equal_weights_are_told_by_name() -> None:
    """The second differs by as much as its seeds do, the third by more."""
    question = {"has_steps": True}
    rows = [
        row_of("a", 2.0, makespans={0: 1.9, 1: 2.1}, weights="w"),
        row_of("b", 2.1, makespans={0: 1.8, 1: 2.4}, weights="w"),
        row_of("c", 4.0, makespans={0: 3.8, 1: 4.2}, weights="v"),
        row_of("d", 5.0, makespans={0: 4.9, 1: 5.1}, weights="v", question=question),
    ]
    assert [*target_lines(rows)] == [
        "a on m1, m4 is first, 1.05 x as fast as the next, b.",
        "A tie with a within 95 %: b.",
        "Equal weights, trained once: a, b.",
    ]
    assert [*target_lines(rows[2:3])] == []
    (nothing, *_) = target_lines([row_of("a", 0.0), row_of("b", 3.0)])
    assert "inf x as fast as the next, b" in nothing


@pytest.mark.parametrize(
    ("best", "other", "are_parted"),
    [
        (None, None, True),
        (TREND, TREND, True),  # the same trend moves both
        # It may take 4 / 5 of its makespan, which is less than 4 s.
        (None, TREND, False),
        (Trend((0.5,), (9,), 1.0, estimate=500.0, low=499.0, high=501.0), None, True),
    ],
)
def test_rows_are_parted_by_the_nearer_ends_of_their_intervals(
    best: Any, other: Any, *, are_parted: bool
) -> None:
    """The first takes 4 s, the other 4.9 s."""
    rows = [row_of("dgcl", 4.0, trend=best), row_of("p3", 4.9, trend=other)]
    told = any("do not part dgcl from p3" in line for line in target_lines(rows))
    assert told != are_parted


def test_steps_from_elsewhere_are_told_with_their_source() -> None:
    curve = {"curve_file": "curve.csv"}
    rows = [
        row_of("a", 1.0, question=curve),
        row_of("b", 2.0, trend=TREND),
        row_of("c", 3.0),
        row_of("d", 4.0, question=curve),
    ]
    told = str(describe_steps(rows)).split("; ")
    assert told[0] == "steps recorded, not trained: a, d by curve.csv"
    assert told[1].startswith("up to the first of 3 looks")
    assert told[2].startswith("b: 400 to 750 steps (95 %) by trainings")
    assert told[2].endswith("at 0.1, 0.2 of the graph")
    assert told[3] == "time = steps x simulated step"
    cells = cells_of(rows)
    assert cells["steps by"] == ["curve.csv", "2 scales", "training", "curve.csv"]
    assert describe_steps(rows[2:3]) is None
