"""What a scenario expects, held against the result of a run or a simulation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from emu.units import SIZE, format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emu.scenario import Scenario
    from emu.scenario.quantities import Expected
    from emu.scenario.run_sections import ExpectSection


def missed_expectations(scenario: Scenario, result: dict[str, Any]) -> list[str]:
    """Return one sentence per line of ``expect`` that a run did not meet.

    ``expect.makespan`` is about simulations and not looked at here.
    """
    expect = scenario.expect
    missed = []
    for wanted, key, what in (
        (expect.makespan_error, "makespan_error", "makespan error"),
        (expect.replay_error, "replay_error", "replay error"),
    ):
        if wanted is not None and abs(result[key]) > wanted:
            missed.append(
                f"the {what} is {format_ratio(result[key])}, "
                f"expected at most {100 * wanted:g} % either way"
            )
    accuracy = result.get("accuracy", {}).get("test", 0.0)
    if expect.accuracy is not None and accuracy < expect.accuracy:
        missed.append(
            f"test accuracy is {accuracy:.4f}, expected at least {expect.accuracy:g}"
        )
    curve = result["training"]
    loss = curve[-1]["loss"] if curve else math.nan
    missed += _outside("training loss", loss, _at_most(expect.loss), _four_digits)
    missed += _outside("the gap", result.get("gap"), _at_most(expect.gap), _percent)
    carried = sum(row["bytes"] for row in result["edges"])
    return [*missed, *_carried(scenario, carried)]


def missed_by_simulation(
    scenario: Scenario, makespan: float, gap: float | None, carried: float
) -> list[str]:
    """Return one sentence per line of ``expect`` that a simulation did not meet.

    Parameters
    ----------
    makespan
        Seconds.
    gap
        Makespan over its lower bound, minus 1; None where there is no bound.
    carried
        Bytes between machines.
    """
    expect = scenario.expect
    return [
        *_apart("simulated makespan", makespan, expect.makespan, expect, _seconds),
        *_outside("the gap", gap, _at_most(expect.gap), _percent),
        *_carried(scenario, carried),
    ]


def _carried(scenario: Scenario, carried: float) -> Iterator[str]:
    expect = scenario.expect
    return _apart("bytes between machines", carried, expect.bytes, expect, SIZE.exact)


def _apart(
    what: str,
    found: float,
    wanted: Expected | None,
    expect: ExpectSection,
    write: Callable[[float], str],
) -> Iterator[str]:
    """Yield where ``found`` is outside of a range, or is not the value to be met."""
    if not isinstance(wanted, float):
        yield from _outside(what, found, wanted, write)
    elif not math.isclose(found, wanted, rel_tol=expect.tolerance):
        yield f"{what} is {write(found)}, expected {write(wanted)}"


def _at_most(wanted: Expected | None) -> tuple[float, float] | None:
    """Return the range of a key whose plain value is the most that may be."""
    return (-math.inf, wanted) if isinstance(wanted, float) else wanted


def _outside(
    what: str,
    found: float | None,
    wanted: tuple[float, float] | None,
    write: Callable[[float], str],
) -> Iterator[str]:
    if wanted is None:
        return
    known = found is not None and not math.isnan(found)
    if known and found is not None and wanted[0] <= found <= wanted[1]:
        return
    said = write(found) if known and found is not None else "not reported"
    words = zip(("at least", "at most"), wanted, strict=True)
    limits = [f"{word} {write(limit)}" for word, limit in words if math.isfinite(limit)]
    yield f"{what} is {said}, expected {' and '.join(limits)}"


def _seconds(value: float) -> str:
    return format_duration(value, 12)


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


def _four_digits(value: float) -> str:
    return f"{value:.4f}"
