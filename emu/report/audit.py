"""What an audit found, constraint by constraint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.report.terminal import plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from emu.analysis.violation import AuditReport


def audit_table(report: AuditReport) -> Table:
    """Return one row per constraint: comparisons, violations, the first of them."""
    table = plain_table("Audit", "constraint", ">checked", ">broken", "first")
    for name, checked in report.checked.items():
        parts = name.split(",")
        broken = [v for v in report.violations if v.constraint in parts]
        first = str(broken[0]) if broken else ""
        table.add_row(name, f"{checked:,}", f"{len(broken):,}", first)
    return table
