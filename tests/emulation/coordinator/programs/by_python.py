"""A timed task that the core does not know, and so leaves to Python."""

from __future__ import annotations

from emu_nodes.timed import Timed


class ByPython(Timed):
    """Does what `Timed` does."""
