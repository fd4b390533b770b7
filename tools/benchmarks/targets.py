"""Figures beside their aims."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
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
        How much.
    aim
        What it should be, in the same unit; None where nothing was promised.
    at_least
        Whether more is better.
    """

    what: str
    value: float
    unit: str
    aim: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the aim is reached; None without an aim. NaN reaches none."""
        if self.aim is None:
            return None
        if self.at_least:
            return self.value >= self.aim
        return self.value <= self.aim


def show_figures(title: str, figures: list[Figure]) -> None:
    """Print one table of figures and aims, with the load of the machine."""
    table = Table(title=f"{title} (load average {os.getloadavg()[0]:.1f})")
    table.add_column("what")
    for name in ("figure", "aim", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        aim = "" if figure.aim is None else f"{sign} {figure.aim:g}"
        verdict = {None: "", True: "met", False: "missed"}[figure.met]
        value = f"{figure.value:.3g} {figure.unit}".strip()
        table.add_row(figure.what, value, aim, verdict)
    Console(width=WIDTH).print(table)


def as_json(figures: list[Figure]) -> list[dict[str, Any]]:
    """Return the figures as plain values, with whether each is met."""
    return [{**asdict(figure), "met": figure.met} for figure in figures]


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows of equal keys as one table."""
    print(f"\n{title} (load average {os.getloadavg()[0]:.1f})")
    print("".join(f"{key:>{max(8, len(key) + 1)}}" for key in rows[0]))
    for row in rows:
        cells = [
            f"{value:>{max(8, len(key) + 1)}.3f}"
            if isinstance(value, float)
            else f"{value:>{max(8, len(key) + 1)}}"
            for key, value in row.items()
        ]
        print("".join(cells))
