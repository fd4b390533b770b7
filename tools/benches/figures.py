"""Measured figures beside their aims, and the clocks that fill them."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 100


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Parameters
    ----------
    what
        What was measured.
    value, unit
        How much; NaN where it was not.
    aim
        What it should be, in the same unit; None where nothing was promised.
    at_least
        Whether more is better.
    note
        What the figure means: a rate, why it was skipped.
    """

    what: str
    value: float
    unit: str = "s"
    aim: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """True where the aim is reached; None without an aim. NaN reaches none."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.at_least else self.value <= self.aim

    @property
    def amount(self) -> str:
        """The value with three digits and its unit; empty where there is none."""
        return "" if math.isnan(self.value) else self._in_units(self.value)

    @property
    def bound(self) -> str:
        """The aim with its sign and unit, as the value is printed; empty without."""
        if self.aim is None:
            return ""
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self._in_units(self.aim)}"

    def _in_units(self, value: float) -> str:
        if self.unit == "s":
            return amount(value)
        return f"{value:.3g} {self.unit}".strip()


def show(title: str, figures: Iterable[Figure]) -> list[Figure]:
    """Print figures as they come, then one table with the load of the machine."""
    found, progress = [], Console(stderr=True)
    for figure in figures:
        found.append(figure)
        progress.print(f"[dim]{title}: {figure.what} {figure.amount}", highlight=False)
    table = Table(title=f"{title} (load average {os.getloadavg()[0]:.1f})")
    table.add_column("what")
    for name in ("figure", "aim", ""):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note")
    for figure in found:
        verdict = {None: "", True: "met", False: "missed"}[figure.met]
        table.add_row(figure.what, figure.amount, figure.bound, verdict, figure.note)
    Console(width=WIDTH).print(table)
    return found


def as_json(figures: list[Figure]) -> list[dict[str, Any]]:
    """Return the figures as plain values, with whether each is met."""
    return [{**asdict(figure), "met": figure.met} for figure in figures]


def stolen_seconds() -> float:
    """Return for how long the hypervisor has kept the cores, all of them together.

    0 where no kernel counts it. A process that stood still through it was not late by
    its own doing.
    """
    try:
        line = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return 0.0
    return int(line.split()[8]) / os.sysconf("SC_CLK_TCK")


def once(call: Callable[[], object]) -> float:
    """Return the wall time of one call, seconds."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def interleaved(
    calls: Mapping[str, Callable[[], object]], *, budget: float, most: int = 200
) -> dict[str, float]:
    """Return the median wall time of every call, seconds.

    The calls take turns, so that a slow minute of the machine hits all of them alike;
    each is called once before, and then at least 3 times, until ``budget`` seconds are
    over.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    ending = time.monotonic() + budget
    for turn in range(most):
        if turn >= 3 and time.monotonic() > ending:
            break
        for name, call in calls.items():
            taken[name].append(once(call))
    return {name: statistics.median(times) for name, times in taken.items()}


def amount(seconds: float) -> str:
    """Return a duration with three digits and its unit.

    >>> amount(0.0000674)
    '67.4 us'
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
