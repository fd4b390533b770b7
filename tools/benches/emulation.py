"""A job of many small tasks over sockets: each a process, or those of a machine one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from emu.scenario.scenario_file import loads
from tools.benches.figures import Figure

_MACHINES, _EACH, _ROUNDS = 20, 10, 10
#: What is measured of a run, with its unit and what it should be at most.
_AIMS = {"CPU per GB": ("s", None), "memory": ("MB", 800.0), "start": ("s", 5.0)}


def many_tasks(machines: int, each: int, rounds: int) -> str:
    """Return a scenario of tasks that send 1 MB to two others in every iteration."""
    count = machines * each
    flows = "".join(
        f"  - {{from: t{n}, to: t{(n + far) % count}, lag: 1, volume: 1 MB}}\n"
        for n in range(count)
        for far in (7, 31)
    )
    tasks = "".join(f"  - {{name: t{n}, time: 5 ms}}\n" for n in range(count))
    places = "".join(f"    t{n}: m{n % machines}\n" for n in range(count))
    return (
        f"name: many\ncluster:\n  machines:\n"
        f"  - {{name: m, count: {machines}, nic: 10 Gbit/s}}\n"
        f"job:\n  system: custom\n  iterations: {rounds}\n"
        f"  flows:\n{flows}  tasks:\n{tasks}"
        f"placement:\n  policy: explicit\n  tasks:\n{places}"
        "emulation: {time_scale: 10, deadline: 120 s}\n"
    )


def emulation(_seconds: float) -> Iterator[Figure]:
    """Yield what a run costs this computer, with processes apart and shared in turn."""
    scenario = loads(many_tasks(_MACHINES, _EACH, _ROUNDS))
    for how in ("task", "machine"):
        with tempfile.TemporaryDirectory() as folder:
            one = load(scenario, {"emulation.processes": how})
            directory = RunDirectory.create("many", Path(folder))
            run = carry_out(prepare(one), emulation_settings(one), directory).content
        sent, startup = run["transport"], run["startup"]
        values = {
            "CPU per GB": sent["cpu_seconds"] / (sent["payload_bytes"] / 1e9),
            "memory": startup["memory"] / 1e6,
            "start": startup["seconds"],
        }
        error = f"makespan error {run['makespan_error']:+.2%}"
        note = f"{error}, {run['verdict']['trust']}"
        for what, value in values.items():
            unit, aim = _AIMS[what]
            name = f"{_MACHINES * _EACH} tasks, a process per {how}: {what}"
            yield Figure(
                name, value, unit, aim if how == "machine" else None, note=note
            )
