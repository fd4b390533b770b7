"""Tables, pictures and pages of a run, and the live page while it goes.

Decides what a person sees, in at most 100 columns. It must not know how a schedule was
made, nor the command line.
Start at ``facts.py``; ``html/page.py`` makes pages, ``dashboard/`` shows a run as it
goes.
"""

from emu.report.comparison import Candidate, comparison_table
from emu.report.explanation_tables import audit_table, placement_table
from emu.report.facts import flow_table, port_table
from emu.report.system_tables import Crossover, Side, SystemResult
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
