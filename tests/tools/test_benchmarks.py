"""The pure parts of the benchmark."""

from __future__ import annotations

import pytest

from tools.benches.figures import amount, interleaved


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000674, "67.4 us"), (0.0111, "11.1 ms"), (3.5, "3.5 s"), (5e-9, "5 ns")],
)
def test_amounts_have_three_digits(seconds: float, text: str) -> None:
    assert amount(seconds) == text


def test_calls_take_turns_after_one_warm_up_each() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}

    medians = interleaved(calls, budget=0.0, most=50)

    assert order == ["a", "b"] * 4
    assert all(seconds >= 0 for seconds in medians.values())
