"""Starting node processes on one or many hosts: the agent and its fork server.

One agent per host, nothing else is installed there. Must not know: scheduling, what a
program computes, who started the agent (``emu run``, ssh, srun, a pod).
"""

from emu.launch.agent import Agent
from emu.launch.fork import describe_end
from emu.launch.local import LocalAgent
from emu.launch.signals import run_until_signalled

__all__ = ["Agent", "LocalAgent", "describe_end", "run_until_signalled"]
