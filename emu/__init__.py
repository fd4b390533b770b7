"""Run distributed GNN training on an emulated cluster, beside its simulation.

A script needs this module only::

    import emu

    scenario = emu.load("golden", {"cluster.machines[0].nic": "20 B/s"})
    placed = emu.place(scenario, policy="best")
    predicted = emu.simulate(placed)
    run = emu.run(placed)
    print(placed.tasks, predicted.makespan, run.makespan)

``load`` and ``loads`` read scenarios; ``place``, ``simulate``, ``setup``, ``compare``
and ``explain`` answer in virtual time; ``run`` carries a scenario out over sockets and
``load_run`` reads what it left; ``audit`` checks either one's schedule. Times are in
emulated seconds, sizes in bytes.
"""

from __future__ import annotations

import importlib
from typing import Any

TYPE_CHECKING = False  # a command answers signals 10 ms sooner without `typing`
if TYPE_CHECKING:
    from emu.api import audit, compare, explain, place, run, setup, simulate
    from emu.problem.schedule import Schedule
    from emu.runs.recorded_run import load_run
    from emu.scenario.scenario import Scenario
    from emu.scenario.scenario_file import load, loads

__version__ = "0.1.0"

__all__ = [
    "Scenario",
    "Schedule",
    "__version__",
    "audit",
    "compare",
    "explain",
    "load",
    "load_run",
    "loads",
    "place",
    "run",
    "setup",
    "simulate",
]

_ELSEWHERE = {
    "Scenario": "emu.scenario.scenario",
    "Schedule": "emu.problem.schedule",
    "load": "emu.scenario.scenario_file",
    "load_run": "emu.runs.recorded_run",
    "loads": "emu.scenario.scenario_file",
}


def __getattr__(name: str) -> Any:
    # Lazily: ``import emu`` comes first in every node process and takes no time.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "emu.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
