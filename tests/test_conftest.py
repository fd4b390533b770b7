"""The tests that are tried, and how often their time runs out: tests/conftest.py."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from tests import draws
from tests.conftest import (
    LEFT_OUT,
    pytest_report_collectionfinish,
    pytest_timeout_set_timer,
)


def item(function: str, seed: int, *, is_rare: bool) -> Any:
    """Return a test as pytest collects it."""
    return SimpleNamespace(
        nodeid=f"{function}[{seed}]",
        callspec=SimpleNamespace(params={"seed": seed}),
        get_closest_marker={"nightly": True}.get if is_rare else {}.get,
    )


@pytest.mark.parametrize(
    ("named", "tried"),
    [
        ((), ["a[0]", "a[1]"]),
        (("a",), [f"a[{seed}]" for seed in range(6)]),
        (("a[4]",), ["a[0]", "a[1]", "a[4]"]),
        (("b",), ["a[0]", "a[1]", *(f"b[{seed}]" for seed in range(6))]),
        (("b[5]",), ["a[0]", "a[1]", "b[5]"]),
    ],
)
def test_a_function_that_is_named_is_tried_with_all_rows_and_seeds(
    named: tuple[str, ...], tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a, 2 seeds of 6 are tried daily; of b, which is rare, none."""
    items = [item(name, n, is_rare=name == "b") for name in "ab" for n in range(6)]
    monkeypatch.setattr(draws, "SHARE", 3)

    assert [test.nodeid for test in draws.select(items, named)] == tried


@pytest.mark.parametrize(("count", "said"), [(0, []), (7, ["7 left to make nightly"])])
def test_what_is_left_out_is_said_where_there_is_some(
    count: int, said: list[str]
) -> None:
    stash = pytest.Stash()
    stash[LEFT_OUT] = count
    config: Any = SimpleNamespace(stash=stash)

    lines = pytest_report_collectionfinish(config)

    assert [line.partition(":")[0] for line in lines] == said


def test_the_time_of_a_test_runs_out_every_20_seconds() -> None:
    """A property that hangs at every example has to be ended at each."""
    before = signal.getitimer(signal.ITIMER_REAL)
    settings = SimpleNamespace(method="signal", timeout=50.0)
    timer = pytest_timeout_set_timer(settings)
    next(timer)

    try:
        with pytest.raises(StopIteration) as ended:
            timer.send(True)
        left, again = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)

    assert ended.value.value is True
    assert 0.0 < left <= 50.0
    assert again == 20.0
