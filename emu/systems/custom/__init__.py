"""A job of the user's own: any graph of timed tasks and flows."""

from __future__ import annotations

from emu.systems.system import System, on_demand

CUSTOM = System(
    "custom",
    on_demand("emu.systems.custom.section:CustomJobSection"),
    programs={"task": "emu_nodes.timed:Timed"},
)
