"""Systems side by side by the time to an accuracy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from emu.experiment.scaled_steps import Trend
from emu.report.target_tables import target_lines, target_table

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
