"""Times of tasks from a profiler's trace, with what is printed of them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from emu.experiment.trace_profile import (
    Occurrences,
    Ranges,
    list_stated,
    profile_from_trace,
)
from emu.report.measured_tables import ranges_table
from emu.scenario import ProfileFile, Scenario


def check_trace(trace: Path) -> None:
    """Raise DataError where a file is no trace that times can be taken from."""
    from emu.interchange.known_formats import check_command  # noqa: PLC0415 - seldom
    from emu.interchange.recognise import PROFILE  # noqa: PLC0415 - seldom used

    check_command(trace, PROFILE)


def profile_of_trace(
    console: Console, scenario: Scenario, trace: Path, kinds: Ranges
) -> ProfileFile:
    """Return `profile_from_trace`, and print its ranges and which times are stated.

    Raises ScenarioError, DataError as that does.
    """
    tables: list[Occurrences] = []

    def show(occurrences: Occurrences) -> None:
        tables.append(occurrences)
        console.print(ranges_table(occurrences))

    with console.status("counting what is sampled"):
        content = profile_from_trace(scenario, trace, kinds, show)
    # Not before: a kind without range and time is refused.
    (occurrences,) = tables
    if stated := list_stated(scenario, occurrences, kinds):
        console.print(f"as the scenario states, no range: {', '.join(stated)}")
    return content
