"""The pure part of `tools/study kernel`: what runs and their repeats come to."""

from __future__ import annotations

from tools.studies.kernel import judged
from tools.trials.trial import Trial


def _row(scenario: str, repeat: int, error: float, trust: str = "trusted") -> Trial:
    return Trial(
        f"{scenario}@tcp/{repeat}",
        policy="maxmin",
        processes=4,
        machines=2,
        time_scale=1.0,
        byte_scale=1.0,
        makespan_error=error,
        trust=trust,
    )


def test_runs_are_counted_by_how_far_they_are_off() -> None:
    rows = [
        _row("near", 0, 0.009),
        _row("nearer", 0, -0.002, "degraded"),
        _row("between", 0, 0.02, "untrusted"),
        _row("far", 0, -0.05),
    ]

    assert [*judged(rows)] == [
        "  within 1 %: 1 of 2 trusted",
        "  over 3 %: 1 of 1 trusted",
    ]


def test_the_last_repeat_is_held_against_the_interval_of_the_others() -> None:
    # The interval of 1, 2 and 3 per mille for a further run is -2.97 to 6.97 per mille.
    inside = [_row("inside", n, e) for n, e in enumerate((0.001, 0.002, 0.003, 0.0069))]
    outside = [
        _row("outside", n, e) for n, e in enumerate((0.001, 0.002, 0.003, 0.0071))
    ]

    lines = [*judged(inside + outside)]

    assert lines[-1] == "  the last run is in the interval of the others: 1 of 2"
