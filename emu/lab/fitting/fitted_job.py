"""Write the findings of a fit as a scenario with a custom job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.lab.fitting.causes import BEGUN, DRAINED, GOT, FittedSteps
from emu.lab.fitting.conversations import Process
from emu.lab.fitting.iterations import FittedIterations
from emu.lab.fitting.steps import NOTE, Step
from emu.prediction.analysis.traffic import Traffic

#: Every machine has one, and what ran on one machine needs one: so that placement may
#: exchange machines, and not put two into one.
SEAT = "seat"
#: Share of the iterations in which a server must be asked for it to wait its turn: an
#: answer that is not there would wait like the others.
OFTEN = 0.5
#: Tasks that stand for moments of a step, by their names behind its own: flows of a
#: channel that are ready together go by name, so what goes first is ``.drained``.
_MOMENTS = {BEGUN: "", DRAINED: ".drained", GOT: ".got"}


def write_fit(
    name: str,
    found: FittedIterations | FittedSteps,
    traffic: Traffic,
    cores: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the scenario: the lab's machines, and tasks that stand where they ran.

    Trainers are tasks ``trainer-m0.0``, ``.1``, ...: one before the requests of every
    round, ``.sum`` before the all-reduce, and ``.send``, which waits until the next of
    the ring is there as well. Answers are tasks of the servers,
    ``server-m1.0.trainer-m0``; a server gives one at a time. What one machine ran is
    one process of the job, since what its programs exchanged there was not seen.

    Without a ring a task ``worker-m1.0.server-m0`` sends the first step of an iteration
    from one to the other, and its ``.got`` has received it. ``cores`` of a machine are
    its speed, over which times of other speeds are predicted; by default all are 1.
    """
    if isinstance(found, FittedSteps):
        job: _Job = _StepsJob(found, traffic, cores or {})
    else:
        job = _RingJob(found, traffic, cores or {})
    return {
        "name": name,
        "cluster": {"machines": job.machines()},
        "job": {
            "system": "custom",
            "iterations": found.count,
            "credit_window": "unlimited",
            "times": "measured",
            "tasks": job.tasks,
            "flows": job.flows,
            "collectives": job.collectives,
        },
        "placement": {"policy": "explicit", "tasks": job.where},
        "schedule": {"policy": "maxmin"},
    }


class _Job:
    """Tasks and flows, as they are found."""

    def __init__(self, traffic: Traffic, cores: Mapping[str, float]) -> None:
        self._traffic = traffic
        self._speeds = [cores.get(name, 1.0) for name in traffic.machines]
        self._seated: set[int] = set()
        self._servers: set[str] = set()
        self.tasks: list[dict[str, Any]] = []
        self.flows: list[dict[str, Any]] = []
        self.where: dict[str, str] = {}
        self.collectives: list[dict[str, Any]] = []

    def machines(self) -> list[dict[str, Any]]:
        """Return the machines, with the NICs of the lab.

        A server has its one slot on all of them, so that it keeps it when it is moved.
        """
        nics = self._traffic.nics
        return [
            {
                "name": name,
                "nic": {
                    "out": f"{nics[0, number]:.10g} B/s",
                    "in": f"{nics[1, number]:.10g} B/s",
                },
                "speed": self._speeds[number],
                SEAT: 1,
                "slots": dict.fromkeys(sorted(self._servers), 1),
            }
            for number, name in enumerate(self._traffic.machines)
        ]

    def _name(self, process: Process) -> str:
        machine, program = process
        return f"{self._traffic.programs[program]}-{self._traffic.machines[machine]}"

    def _task(self, name: str, process: Process, times: Iterable[float]) -> None:
        machine, program = process
        speed = self._speeds[machine]
        task: dict[str, Any] = {
            "name": name,
            "kind": self._traffic.programs[program],
            "process": self._traffic.machines[machine],
            "time": _once([f"{seconds * speed:.6f} s" for seconds in times]),
        }
        if machine not in self._seated:
            self._seated.add(machine)
            task["demands"] = {SEAT: 1}
        self.tasks.append(task)
        self.where[name] = self._traffic.machines[machine]

    def _flow(self, source: str, destination: str, volume: Iterable[int] = ()) -> None:
        sizes = _once([f"{size} B" for size in volume] or ["0 B"])
        self.flows.append({"from": source, "to": destination, "volume": sizes})


class _RingJob(_Job):
    """Clients that ask servers, then sum round a ring."""

    def __init__(
        self, found: FittedIterations, traffic: Traffic, cores: Mapping[str, float]
    ) -> None:
        super().__init__(traffic, cores)
        self._found = found
        for place, one in enumerate(found.ring):
            self._client(one, found.ring[(place + 1) % len(found.ring)])
        last = {one: len(times) - 2 for one, times in self._found.stages.items()}
        for (client, turn, server), rows in self._found.asked.items():
            requests, answers = rows[:2].astype(int)
            asking = self._name(client)
            answering = self._name(server)
            name = f"{answering}.{turn}.{asking}"
            self._task(name, server, rows[2])
            if np.mean(answers > 0) >= OFTEN:
                self.tasks[-1]["slot"] = answering
                self._servers.add(answering)
            after = f"{turn + 1}" if turn < last[client] else "sum"
            self._flow(f"{asking}.{turn}", name, requests)
            self._flow(name, f"{asking}.{after}", answers)
        names = [self._name(one) for one in self._found.ring]
        self.collectives.append(
            {
                "allreduce": {
                    "among": [f"{name}.send" for name in names],
                    "volume": f"{self._found.volume:.0f} B",
                    "then": [f"{name}.0" for name in names],
                    "lag": 1,
                }
            }
        )

    def _client(self, process: Process, following: Process) -> None:
        stages = self._found.stages[process].copy()
        stages[0] += self._found.overhead
        name = self._name(process)
        turns = [f"{name}.{turn}" for turn in range(len(stages) - 1)]
        names = [*(turns or [f"{name}.0"]), f"{name}.sum"]
        if not turns:
            stages = np.stack([stages[0], np.zeros_like(stages[0])])
        for stage, times in zip(names, stages, strict=True):
            self._task(stage, process, times)
        self._task(f"{name}.send", process, np.zeros(self._found.count))
        for before, after in pairwise([*names, f"{name}.send"]):
            self._flow(before, after)
        note = [NOTE] * self._found.count
        self._flow(f"{self._name(following)}.sum", f"{name}.send", note)


class _StepsJob(_Job):
    """Steps that wait for their causes, and a task without time that has received."""

    def __init__(
        self, found: FittedSteps, traffic: Traffic, cores: Mapping[str, float]
    ) -> None:
        super().__init__(traffic, cores)
        for step, gaps, hold in zip(found.steps, found.gaps, found.held, strict=True):
            name = self._step(step)
            sizes = np.rint(step.sizes).astype(int)
            self._task(name, step.source, gaps)
            last = np.minimum(sizes, round(hold)) if hold else sizes
            if hold:
                self._arrival(step, _MOMENTS[DRAINED], sizes - last)
            self._arrival(step, _MOMENTS[GOT], last)
        for step, causes in zip(found.steps, found.causes, strict=True):
            for number, moment, lag in causes:
                cause = self._step(found.steps[number]) + _MOMENTS[moment]
                self._flow(cause, self._step(step))
                self.flows[-1]["lag"] = lag

    def _arrival(self, step: Step, moment: str, sizes: NDArray[np.int64]) -> None:
        """Send some bytes of a step to a task without time, which then has them."""
        name = self._step(step)
        self._task(f"{name}{moment}", step.destination, np.zeros(len(sizes)))
        self._flow(name, f"{name}{moment}", sizes.tolist())
        source, destination = map(self._name, (step.source, step.destination))
        self.flows[-1]["channel"] = f"{source}.{destination}"

    def _step(self, step: Step) -> str:
        source, destination = map(self._name, (step.source, step.destination))
        return f"{source}.{step.number}.{destination}"


def _once(values: list[str]) -> list[str] | str:
    """Return the value of all iterations if it is the same: they may be more then."""
    return values if len(set(values)) > 1 else values[0]
