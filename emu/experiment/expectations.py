"""What a scenario expects of a run, held against its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.units import format_ratio

if TYPE_CHECKING:
    from emu.scenario import Scenario


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
    if expect.loss is not None and not (curve and curve[-1]["loss"] <= expect.loss):
        found = f"{curve[-1]['loss']:.4f}" if curve else "not reported"
        missed.append(f"training loss is {found}, expected at most {expect.loss:g}")
    return missed
