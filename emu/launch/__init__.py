"""Starting node processes on one or many hosts: launchers, agents, fork servers.

One agent per host, nothing else is installed there. Must not know: scheduling, what a
program computes.
"""

from emu.launch.agent import Agent
from emu.launch.fork import describe_end
from emu.launch.launcher import LOCALHOST, ExternalLauncher, Launcher, LocalLauncher
from emu.launch.ray_cluster import RayLauncher, bundles_of
from emu.launch.signals import run_until_signalled
from emu.launch.ssh import SshLauncher, address_towards, read_hosts_file

__all__ = [
    "LOCALHOST",
    "Agent",
    "ExternalLauncher",
    "Launcher",
    "LocalLauncher",
    "RayLauncher",
    "SshLauncher",
    "address_towards",
    "bundles_of",
    "describe_end",
    "read_hosts_file",
    "run_until_signalled",
]
