"""A job of the user's own: any graph of timed tasks and flows."""

from __future__ import annotations

from emu.systems.system import System, on_demand

#: Program of the steps of a collective.
EXCHANGE = "emu_nodes.exchange:Step"

CUSTOM = System(
    "custom",
    on_demand("emu.systems.custom.section:CustomJobSection"),
    programs={"task": "emu_nodes.timed:Timed", "collective": EXCHANGE},
)
