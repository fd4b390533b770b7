"""Tables of several runs of one scenario."""

from __future__ import annotations

from rich.table import Table

from emu.report.terminal import Fact, facts_table
from emu.runs.repeats import Agreement, Repeats, modes
from emu.units import format_duration, format_ratio

_COLOURS = {Agreement.AGREES: "green", Agreement.DIFFERS: "red"}
#: Of a makespan: runs of one scenario are near each other.
_DIGITS = 4


def repeats_table(repeats: Repeats) -> Table:
    """Return the median of several runs, the end of a further one, and the outcome."""
    count = len(repeats.runs)
    trusted = [run for run in repeats.runs if run.trust == "trusted"]
    note = f"median of {count} runs, {len(trusted)} of them trusted"
    makespan = format_duration(repeats.makespan, _DIGITS)
    facts = [Fact("makespan", makespan, note)]
    if count > 1:
        facts.append(_further(repeats))
    makespans = [run.makespan for run in repeats.runs]
    groups = modes(makespans)
    if len(groups) > 1:
        parts = []
        for group in groups:
            shortest = format_duration(group[0], _DIGITS)
            longest = format_duration(group[-1], _DIGITS)
            parts.append(f"{len(group)} from {shortest} to {longest}")
        states = ", ".join(parts)
        facts.append(Fact("states", "2", f"runs end in two groups: {states}"))

    if repeats.error is not None:
        facts += _prediction(repeats, repeats.error)
    return facts_table(facts)


def _further(repeats: Repeats) -> Fact:
    span = repeats.further_makespan
    least = max(span.low, 0.0)
    low = format_duration(least, _DIGITS)
    high = format_duration(span.high, _DIGITS)
    half = format_duration(span.half, 3)
    return Fact("a further run", f"±{half}", f"takes {low} to {high}, with 95 %")


def _prediction(repeats: Repeats, error: float) -> list[Fact]:
    """Return the error and what it says of a further run."""
    outcome = repeats.outcome
    span = repeats.further_error
    most = f"{100 * repeats.threshold:g} % may be"
    errors = f"{format_ratio(span.low)} to {format_ratio(span.high)}"
    line = f"a further run is off by {errors} with 95 %, {most}"
    if outcome is Agreement.UNDECIDED:
        line += ": more runs may narrow it"
    if outcome is Agreement.ONE_DRAW:
        line = "one run says nothing of a further one"
    colour = _COLOURS.get(outcome, "yellow")

    return [
        Fact("makespan error", format_ratio(error), "median, against the prediction"),
        Fact(
            label="prediction",
            value=str(outcome),
            note=line,
            style=colour,
        ),
    ]
