"""Starting node processes on one or many hosts: launchers, agents, fork servers.

One agent per host, nothing else is installed there. Must not know: scheduling, what a
program computes.
"""

from emu.emulation.launch.fork import describe_end
from emu.emulation.launch.launcher import ExternalLauncher

__all__ = [
    "ExternalLauncher",
    "describe_end",
]
