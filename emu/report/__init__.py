"""Tables of a run for a terminal, of at most 100 columns.

Must not know: how a schedule was made, files, the command line.
"""

from emu.report.comparison import (
    Candidate,
    Crossover,
    Side,
    SystemResult,
    comparison_table,
)
from emu.report.explanation_tables import audit_table, placement_table
from emu.report.facts import flow_table, port_table
from emu.report.terminal import WIDTH, terminal

__all__ = [
    "WIDTH",
    "Candidate",
    "Crossover",
    "Side",
    "SystemResult",
    "audit_table",
    "comparison_table",
    "flow_table",
    "placement_table",
    "port_table",
    "terminal",
]
