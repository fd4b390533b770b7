"""Write the findings of a fit as a scenario with a custom job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NotRequired, TypeAlias, TypedDict

import numpy as np

from emu.array_types import Ints
from emu.lab.fitting.causes import BEGUN, DRAINED, GOT, Cause, FittedSteps, Own
from emu.lab.fitting.conversations import Process
from emu.lab.fitting.iterations import FittedIterations
from emu.lab.fitting.steps import NOTE, Row, Step
from emu.prediction.analysis.traffic import Traffic

#: Every machine has one, and what ran on one machine needs one: so that placement may
#: exchange machines, and not put two into one.
SEAT: Final = "seat"
#: Share of the iterations in which a server must be asked for it to wait its turn: an
#: answer that is not there would wait like the others.
OFTEN = 0.5
#: Tasks that stand for moments of a step, by their names behind its own: flows of a
#: channel that are ready together go by name, so what goes first is ``.drained``.
_MOMENTS = {
    BEGUN: "",
    DRAINED: ".drained",
    GOT: ".got",
}


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
    job: _Job
    if isinstance(found, FittedSteps):
        job = _StepsJob(found, traffic, cores or {})
    else:
        job = _RingJob(found, traffic, cores or {})

    machines = job.machines()
    return {
        "name": name,
        "cluster": {"machines": machines},
        "job": {
            "system": "custom",
            "iterations": found.count,
            # All that programs waited for are flows of the fit: a window would add.
            "credit_window": "unlimited",
            "times": "measured",
            "tasks": job.tasks,
            "flows": job.flows,
            "collectives": job.collectives,
        },
        "placement": {"policy": "explicit", "tasks": job.where},
        "schedule": {"policy": "maxmin"},
    }


_Keys: TypeAlias = dict[str, object]


class _TaskKeys(TypedDict):
    """Keys of a task, as scenarios have them."""

    name: str
    kind: str
    process: str
    time: list[str] | str
    demands: NotRequired[dict[str, int]]
    slot: NotRequired[str]


class _Job:
    """Tasks and flows, as they are found."""

    def __init__(
        self,
        traffic: Traffic,
        cores: Mapping[str, float],
    ) -> None:
        self._traffic = traffic
        self._speeds = [cores.get(name, 1.0) for name in traffic.machines]
        self._seated: set[int] = set()
        self._servers: set[str] = set()
        self.tasks: list[_TaskKeys] = []
        self.flows: list[_Keys] = []
        self.where: dict[str, str] = {}
        self.collectives: list[_Keys] = []

    def machines(self) -> list[_Keys]:
        """Return the machines, with the NICs of the lab.

        A server has its one slot on all of them, so that it keeps it when it is moved.
        """
        slots = dict.fromkeys(sorted(self._servers), 1)
        machines: list[_Keys] = []
        for number, name in enumerate(self._traffic.machines):
            rate_out, rate_in = self._traffic.nics[:, number]
            nic = {
                "out": f"{rate_out:.10g} B/s",
                "in": f"{rate_in:.10g} B/s",
            }

            machine = {
                "name": name,
                "nic": nic,
                "speed": self._speeds[number],
                SEAT: 1,
                # Of its own: YAML writes what several share as an alias.
                "slots": dict(slots),
            }
            machines.append(machine)
        return machines

    def _name(self, process: Process) -> str:
        machine, program = process
        machine_name = self._traffic.machines[machine]
        program_name = self._traffic.programs[program]
        return f"{program_name}-{machine_name}"

    def _task(
        self,
        name: str,
        process: Process,
        times: Iterable[float],
    ) -> _TaskKeys:
        machine, program = process
        machine_name = self._traffic.machines[machine]
        speed = self._speeds[machine]
        # As of a whole core: a slower machine took as much longer.
        durations = [f"{seconds * speed:.6f} s" for seconds in times]
        task: _TaskKeys = {
            "name": name,
            "kind": self._traffic.programs[program],
            "process": machine_name,
            "time": _once(durations),
        }
        if machine not in self._seated:
            self._seated.add(machine)
            task["demands"] = {SEAT: 1}

        self.tasks.append(task)
        self.where[name] = machine_name
        return task

    def _flow(
        self,
        source: str,
        destination: str,
        volume: Iterable[int] = (),
        **keys: object,
    ) -> None:
        sizes = [f"{size} B" for size in volume]
        flow = {
            "from": source,
            "to": destination,
            "volume": _once(sizes or ["0 B"]),
            **keys,
        }
        self.flows.append(flow)


class _RingJob(_Job):
    """Clients that ask servers, then sum round a ring."""

    def __init__(
        self,
        found: FittedIterations,
        traffic: Traffic,
        cores: Mapping[str, float],
    ) -> None:
        super().__init__(traffic, cores)
        self._found = found
        ring = found.ring
        followers = [*ring[1:], ring[0]]
        for client, following in zip(ring, followers, strict=True):
            self._client(client, following)
        for key, rows in found.asked.items():
            client, turn, server = key
            self._request(client, turn, server, rows)

        names = [self._name(process) for process in ring]
        allreduce = {
            "among": [f"{name}.send" for name in names],
            "volume": f"{found.volume:.0f} B",
            "then": [f"{name}.0" for name in names],
            # The sum that ends one iteration begins the next.
            "lag": 1,
        }
        self.collectives.append({"allreduce": allreduce})

    def _client(self, process: Process, following: Process) -> None:
        found = self._found
        stages = found.stages[process].copy()
        # An all-reduce is simulated by its NICs alone: what it took beyond follows it.
        stages[0] += found.overhead
        name = self._name(process)
        rounds = len(stages) - 1
        if not rounds:
            # Nothing was asked: all of its time is before the all-reduce.
            rounds = 1
            (computing,) = stages
            nothing = np.zeros_like(computing)
            stages = np.stack([computing, nothing])
        names = [f"{name}.{turn}" for turn in range(rounds)]
        names.append(f"{name}.sum")

        for stage, times in zip(names, stages, strict=True):
            self._task(stage, process, times)

        send = f"{name}.send"
        no_times = np.zeros(found.count)
        self._task(send, process, no_times)
        names.append(send)
        for earlier, later in pairwise(names):
            self._flow(earlier, later)
        # gloo sends when the next of the ring has said that it is ready.
        note = [NOTE] * found.count
        next_name = self._name(following)
        self._flow(f"{next_name}.sum", send, note)

    def _request(
        self,
        client: Process,
        turn: int,
        server: Process,
        rows: Row,
    ) -> None:
        """Add what a client asks a server in a round: rows as `FittedIterations`."""
        requests, answers = rows[:2].astype(int)
        times = rows[2]
        asking = self._name(client)
        answering = self._name(server)
        name = f"{answering}.{turn}.{asking}"
        task = self._task(name, server, times)
        is_answered = answers > 0
        if np.mean(is_answered) >= OFTEN:
            task["slot"] = answering
            self._servers.add(answering)

        stages = self._found.stages[client]
        last_turn = len(stages) - 2
        stage = f"{turn + 1}" if turn < last_turn else "sum"
        self._flow(f"{asking}.{turn}", name, requests)
        self._flow(name, f"{asking}.{stage}", answers)


class _StepsJob(_Job):
    """Steps that wait for their causes, and a task without time that has received."""

    def __init__(
        self,
        found: FittedSteps,
        traffic: Traffic,
        cores: Mapping[str, float],
    ) -> None:
        super().__init__(traffic, cores)
        for number, step in enumerate(found.steps):
            name = self._step(step)
            gaps = found.gaps[number]
            self._task(name, step.source, gaps)
            sizes = np.rint(step.sizes).astype(int)
            hold = round(found.held[number])

            if hold > 0:
                held_sizes = np.minimum(sizes, hold)
                crossed_sizes = sizes - held_sizes
                self._arrival(step, DRAINED, crossed_sizes)
                sizes = held_sizes
            self._arrival(step, GOT, sizes)
        for number, part in found.computing.items():
            self._compute(found, number, part)

        for step, causes in zip(found.steps, found.causes, strict=True):
            name = self._step(step)
            for cause in causes:
                moment = self._moment(found, cause)
                self._flow(moment, name, lag=cause.lag)

    def _compute(
        self,
        found: FittedSteps,
        number: int,
        part: Own,
    ) -> None:
        """Let a step wait for what its thread computes before it is ready."""
        step = found.steps[number]
        name = self._step(step)
        task = f"{name}.own"
        self._task(task, step.source, part.seconds)

        cause = part.cause
        moment = self._moment(found, cause)
        self._flow(moment, task, lag=cause.lag)
        self._flow(task, name)

    def _moment(self, found: FittedSteps, cause: Cause) -> str:
        """Return the name of the task that stands for a cause."""
        step = found.steps[cause.step]
        name = self._step(step)
        return name + _MOMENTS[cause.moment]

    def _arrival(
        self,
        step: Step,
        moment: int,
        sizes: Ints,
    ) -> None:
        """Send some bytes of a step to a task without time, which then has them."""
        name = self._step(step)
        task = name + _MOMENTS[moment]
        no_times = np.zeros(len(sizes))
        self._task(task, step.destination, no_times)
        source = self._name(step.source)
        destination = self._name(step.destination)
        channel = f"{source}.{destination}"
        volume = sizes.tolist()
        self._flow(name, task, volume, channel=channel)

    def _step(self, step: Step) -> str:
        source = self._name(step.source)
        destination = self._name(step.destination)
        return f"{source}.{step.number}.{destination}"


def _once(values: list[str]) -> list[str] | str:
    """Return the value of all iterations if it is the same: they may be more then."""
    if len(set(values)) > 1:
        return values
    return values[0]
