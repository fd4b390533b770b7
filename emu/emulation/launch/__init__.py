"""Starting node processes on one or many hosts: launchers, agents, fork servers.

One agent per host, nothing else is installed there. Must not know: scheduling, what a
program computes.
"""

from emu.emulation.launch.fork import describe_end
from emu.emulation.launch.launcher import ExternalLauncher, Launcher, LocalLauncher
from emu.emulation.launch.ray_cluster import RayLauncher, bundles_of
from emu.emulation.launch.ssh import SshLauncher, address_towards, read_hosts_file

__all__ = [
    "ExternalLauncher",
    "Launcher",
    "LocalLauncher",
    "RayLauncher",
    "SshLauncher",
    "address_towards",
    "bundles_of",
    "describe_end",
    "read_hosts_file",
]
