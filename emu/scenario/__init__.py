"""Scenario files: what a user writes becomes a problem, or a clear error.

Decides what keys mean and which line an error names. It must not know sockets, node
processes, or how a schedule is made.
Start at ``scenario_file.py``, then ``experiment.py``.
"""

from emu.scenario.experiment import Experiment, prepare
from emu.scenario.realize import build_job, open_data, realize
from emu.scenario.scenario import Scenario
from emu.scenario.scenario_file import (
    find_errors,
    load,
    load_unbuilt,
    write_scenario,
)
from emu.scenario.workload_file import ProfileFile, read_profile, write_profile

__all__ = [
    "Experiment",
    "ProfileFile",
    "Scenario",
    "build_job",
    "find_errors",
    "load",
    "load_unbuilt",
    "open_data",
    "prepare",
    "read_profile",
    "realize",
    "write_profile",
    "write_scenario",
]
