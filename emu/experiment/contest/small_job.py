"""Small jobs of stores, samplers, workers and parameter servers, in round numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np

from emu.experiment.contest.instance import Change, unchanged
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.scenario import Scenario
from emu.scenario.scenario_file import loads

#: Speeds of NICs, Mbit/s.
RATES = (10, 20, 50, 100)
#: Times of tasks, milliseconds; the longest is that of the largest flow at 20 Mbit/s.
TIMES = (0, 10, 20, 50, 100, 200, 400)
#: Sizes of flows, kB.
SIZES = (10, 20, 50, 100, 200, 500, 1000)
#: Cores of a machine; a task takes one.
CORES = (1, 2, 3, 4, 8)

MOST_MACHINES = 5
MOST_TASKS = 9
MOST_FLOWS = 14
MOST_ITERATIONS = 4

#: Kinds of tasks in the order in which a mini-batch passes them, with their letters.
_KINDS = {
    "g": "graph_store",
    "s": "sampler",
    "w": "worker",
    "p": "parameter_server",
}
_LETTERS = "".join(_KINDS)

Part = TypeVar("Part")


@dataclass(frozen=True)
class SmallMachine:
    """One machine; its NIC in Mbit/s by direction."""

    incoming: int
    outgoing: int
    cores: int


@dataclass(frozen=True)
class SmallTask:
    """One task of a kind, with its place in the list of machines."""

    letter: str
    machine: int
    milliseconds: int


@dataclass(frozen=True)
class SmallFlow:
    """One flow between two places in the list of tasks."""

    source: int
    destination: int
    kilobytes: int
    lag: int


@dataclass(frozen=True)
class SmallJob:
    """A job that a person reads at a glance.

    Flows go to a later kind of task at once, and to an earlier one in the next
    iteration, so that nothing waits for itself.
    """

    machines: tuple[SmallMachine, ...]
    tasks: tuple[SmallTask, ...]
    flows: tuple[SmallFlow, ...]
    iterations: int
    free: bool = False
    """True where placement decides on which machines the tasks stand."""

    @classmethod
    def draw(cls, rng: np.random.Generator, *, free: bool) -> Self:
        """Return a job of three machines, two tasks of each kind, eight flows."""
        machines = tuple(_draw_machine(rng) for _ in range(3))
        tasks = []
        for letter in _LETTERS * 2:
            task = _draw_task(rng, letter, len(machines))
            tasks.append(task)

        job = cls(
            machines=machines,
            tasks=tuple(tasks),
            flows=(),
            iterations=2,
            free=free,
        )
        while len(job.flows) < 8:
            job = job._with_flow(rng)
        return job

    def scenario(self, change: Change = unchanged) -> Scenario:
        """Return it as a scenario, with every time, size and rate changed."""
        text = json.dumps(self.to_json(change))
        return loads(text, name="contest", timed=False)

    def problem(self, change: Change = unchanged) -> tuple[Problem, Realization]:
        """Return the same as a problem with its times and volumes: 20 times faster."""
        machines = []
        for number, machine in enumerate(self.machines):
            # Inside there are bytes per second: 125,000 of them are a Mbit/s.
            incoming = change(machine.incoming) * 125_000.0
            outgoing = change(machine.outgoing) * 125_000.0
            machines.append(Machine(f"m{number}", incoming, outgoing))
        tasks = []
        times = []
        for name, task in zip(self._names(), self.tasks, strict=True):
            kind = _KINDS[task.letter]
            milliseconds = change(task.milliseconds)
            tasks.append(Task(name, kind))
            times.append(milliseconds / 1000.0)
        edges = []
        sizes = []
        for flow in self.flows:
            edge = Edge(flow.source, flow.destination, flow.lag)
            kilobytes = change(flow.kilobytes)
            edges.append(edge)
            sizes.append(kilobytes * 1000.0)

        machine_of = [task.machine for task in self.tasks]
        problem = Problem(
            Cluster(tuple(machines)),
            Job(tuple(tasks), tuple(edges), self.iterations),
            Placement(tuple(machine_of)),
        )
        # Every iteration has the same times and sizes.
        time_column = np.array(times).reshape(-1, 1)
        size_column = np.array(sizes).reshape(-1, 1)
        realization = Realization(
            times=np.repeat(time_column, self.iterations, axis=1),
            volumes=np.repeat(size_column, self.iterations, axis=1),
        )
        return problem, realization

    def _list_machines(self, change: Change) -> list[dict[str, object]]:
        """Return the machines as a scenario file has them."""
        machines = []
        for number, machine in enumerate(self.machines):
            incoming = change(machine.incoming)
            outgoing = change(machine.outgoing)
            nic = {
                "in": f"{incoming:.10g} Mbit/s",
                "out": f"{outgoing:.10g} Mbit/s",
            }
            row: dict[str, object] = {"name": f"m{number}", "nic": nic}
            if self.free:
                row["cpu"] = machine.cores
            machines.append(row)

        return machines

    def to_json(self, change: Change = unchanged) -> dict[str, object]:
        """Return the content of its scenario file."""
        names = self._names()
        machines = self._list_machines(change)
        tasks = []
        for name, task in zip(names, self.tasks, strict=True):
            milliseconds = change(task.milliseconds)
            row: dict[str, object] = {
                "name": name,
                "kind": _KINDS[task.letter],
                "time": f"{milliseconds:.10g} ms",
            }
            if self.free:
                row["demands"] = {"cpu": 1}
            else:
                row["pin"] = f"m{task.machine}"
            tasks.append(row)

        flows = []
        for flow in self.flows:
            kilobytes = change(flow.kilobytes)
            row = {
                "from": names[flow.source],
                "to": names[flow.destination],
                "volume": f"{kilobytes:.10g} kB",
            }
            if flow.lag:
                row["lag"] = flow.lag
            flows.append(row)
        job = {
            "system": "custom",
            "iterations": self.iterations,
            "tasks": tasks,
            "flows": flows,
            # A window would add credit flows of no bytes: more to read, and no load.
            "credit_window": "unlimited",
        }
        return {"cluster": {"machines": machines}, "job": job}

    def _names(self) -> list[str]:
        """Return g0, g1, s0, ...: every kind counts its own tasks."""
        counts = dict.fromkeys(_LETTERS, 0)
        names = []
        for task in self.tasks:
            letter = task.letter
            number = counts[letter]
            names.append(f"{letter}{number}")
            counts[letter] += 1
        return names

    def neighbour(self, rng: np.random.Generator) -> Self:
        """Return a job with one number, flow, task or machine drawn anew."""
        steps: Sequence[Callable[[np.random.Generator], Self]] = (
            self._with_number,
            self._with_number,
            self._with_number,
            self._with_flow,
            self._without_flow,
            self._with_task,
            self._without_task,
            self._with_machine,
            self._with_iterations,
        )
        number = int(rng.integers(len(steps)))
        step = steps[number]
        return step(rng)

    def _with_number(self, rng: np.random.Generator) -> Self:
        """Return it with one machine, time or size drawn anew."""
        part = rng.integers(3)
        if part == 0:
            machines = _replace_one(self.machines, rng, lambda _: _draw_machine(rng))
            return replace(self, machines=machines)
        if part == 1:
            tasks = _replace_one(
                self.tasks,
                rng,
                lambda task: _draw_task(rng, task.letter, len(self.machines)),
            )
            return replace(self, tasks=tasks)

        flows = _replace_one(
            self.flows,
            rng,
            lambda flow: replace(flow, kilobytes=_draw(rng, SIZES)),
        )
        return replace(self, flows=flows)

    def _with_flow(self, rng: np.random.Generator) -> Self:
        """Return it with one more flow; the same where that one is there already."""
        ends = rng.integers(len(self.tasks), size=2)
        source, destination = ends.tolist()
        known_ends = {(flow.source, flow.destination) for flow in self.flows}
        is_known = (source, destination) in known_ends
        is_full = len(self.flows) == MOST_FLOWS
        if source == destination or is_known or is_full:
            return self

        source_rank = _LETTERS.index(self.tasks[source].letter)
        destination_rank = _LETTERS.index(self.tasks[destination].letter)
        flow = SmallFlow(
            source=source,
            destination=destination,
            kilobytes=_draw(rng, SIZES),
            lag=0 if source_rank < destination_rank else 1,
        )
        return replace(self, flows=(*self.flows, flow))

    def _without_flow(self, rng: np.random.Generator) -> Self:
        if not self.flows:
            return self
        flow_count = len(self.flows)
        position = int(rng.integers(flow_count))
        return self._drop_flow(position)

    def _drop_flow(self, position: int) -> Self:
        flows = _without(self.flows, position)
        return replace(self, flows=flows)

    def _with_task(self, rng: np.random.Generator) -> Self:
        """Return it with one more task, which a flow enters or leaves."""
        if len(self.tasks) == MOST_TASKS:
            return self
        place = int(rng.integers(len(_LETTERS)))
        letter = _LETTERS[place]
        task = _draw_task(rng, letter, len(self.machines))
        job = replace(self, tasks=(*self.tasks, task))
        return job._with_flow(rng)  # noqa: SLF001 - of its own class

    def _without_task(self, rng: np.random.Generator) -> Self:
        if len(self.tasks) == 1:
            return self
        position = int(rng.integers(len(self.tasks)))
        return self._drop_task(position)

    def _drop_task(self, position: int) -> Self:
        """Return it without a task, and without its flows."""
        tasks = _without(self.tasks, position)
        flows = []
        for flow in self.flows:
            if position in (flow.source, flow.destination):
                continue
            # Whoever stood behind it moves up by one.
            source = flow.source - (flow.source > position)
            destination = flow.destination - (flow.destination > position)
            moved_flow = replace(flow, source=source, destination=destination)
            flows.append(moved_flow)
        return replace(self, tasks=tasks, flows=tuple(flows))

    def _with_machine(self, rng: np.random.Generator) -> Self:
        """Return it with one machine more, or with one less."""
        if rng.integers(2) and len(self.machines) < MOST_MACHINES:
            machine = _draw_machine(rng)
            return replace(self, machines=(*self.machines, machine))
        if len(self.machines) == 1:
            return self
        position = int(rng.integers(len(self.machines)))
        return self._drop_machine(position)

    def _drop_machine(self, position: int) -> Self:
        """Return it without a machine; the tasks move to the one before it."""
        machines = _without(self.machines, position)
        tasks = []
        for task in self.tasks:
            place = task.machine - (task.machine >= position)
            place = max(place, 0)
            tasks.append(replace(task, machine=place))
        return replace(self, machines=machines, tasks=tuple(tasks))

    def _with_iterations(self, rng: np.random.Generator) -> Self:
        iterations = int(rng.integers(1, MOST_ITERATIONS + 1))
        return replace(self, iterations=iterations)

    def simpler(self) -> Iterator[Self]:
        """Yield jobs with less in them, then jobs with fewer different numbers."""
        for job in self._smaller_or_plainer():
            # What is only other would lead back here.
            if job.weight() < self.weight():
                yield job

    def weight(self) -> tuple[int, int, int, int]:
        """Return how much there is to read: parts, times, kinds of machines, uneven."""
        parts = len(self.machines) + len(self.tasks) + len(self.flows)
        busy = [task for task in self.tasks if task.milliseconds]
        kinds = set(self.machines)
        uneven = [nic for nic in self.machines if nic.incoming != nic.outgoing]
        return (
            self.iterations + parts,
            len(busy),
            len(kinds),
            len(uneven),
        )

    def _smaller_or_plainer(self) -> Iterator[Self]:
        if self.iterations > 1:
            yield replace(self, iterations=self.iterations - 1)
        if len(self.tasks) > 1:
            for position in range(len(self.tasks)):
                yield self._drop_task(position)
        for position in range(len(self.flows)):
            yield self._drop_flow(position)
        if len(self.machines) > 1:
            for position in range(len(self.machines)):
                yield self._drop_machine(position)

        yield from self._plainer_machines()
        for position, task in enumerate(self.tasks):
            if task.milliseconds:
                plain_task = replace(task, milliseconds=0)
                tasks = _put(self.tasks, position, plain_task)
                yield replace(self, tasks=tasks)

    def _plainer_machines(self) -> Iterator[Self]:
        """Yield it with one machine as fast in as out, or as the first one."""
        for position, machine in enumerate(self.machines):
            for speed in (machine.incoming, machine.outgoing):
                even_machine = replace(machine, incoming=speed, outgoing=speed)
                if even_machine != machine:
                    machines = _put(self.machines, position, even_machine)
                    yield replace(self, machines=machines)
            first = self.machines[0]
            if machine != first:
                machines = _put(self.machines, position, first)
                yield replace(self, machines=machines)

    def level(self) -> Mapping[str, Self]:
        """Return the job without each thing that may decide, by that thing's name."""
        fastest = SmallMachine(
            incoming=max(machine.incoming for machine in self.machines),
            outgoing=max(machine.outgoing for machine in self.machines),
            cores=max(machine.cores for machine in self.machines),
        )
        even_machines = []
        for machine in self.machines:
            speed = min(machine.incoming, machine.outgoing)
            even_machine = replace(machine, incoming=speed, outgoing=speed)
            even_machines.append(even_machine)

        no_times = [replace(task, milliseconds=0) for task in self.tasks]
        sizes = [flow.kilobytes for flow in self.flows]
        largest = max(sizes, default=0)
        even_flows = [replace(flow, kilobytes=largest) for flow in self.flows]
        fastest_machines = (fastest,) * len(self.machines)
        levels = {
            "all machines as the fastest": replace(self, machines=fastest_machines),
            "NICs as slow both ways": replace(self, machines=tuple(even_machines)),
            "tasks that take no time": replace(self, tasks=tuple(no_times)),
            "flows as large as the largest": replace(self, flows=tuple(even_flows)),
            "one iteration": replace(self, iterations=1),
        }
        return {words: job for words, job in levels.items() if job != self}

    def bounds(self) -> str:
        """Return the words for all jobs that the search can reach."""
        return (
            f"up to {MOST_MACHINES} machines of {RATES[0]} to {RATES[-1]} Mbit/s, "
            f"{MOST_TASKS} tasks of {TIMES[0]} to {TIMES[-1]} ms, "
            f"{MOST_FLOWS} flows of {SIZES[0]} to {SIZES[-1]} kB, "
            f"{MOST_ITERATIONS} iterations"
        )

    def lines(self) -> list[str]:
        """Return a line for each machine, task and flow, and the iterations."""
        names = self._names()
        lines = []
        for number, machine in enumerate(self.machines):
            speeds = f"{machine.incoming} in, {machine.outgoing} Mbit/s out"
            cores = f", {machine.cores} cores" if self.free else ""
            lines.append(f"machine m{number}: {speeds}{cores}")
        for name, task in zip(names, self.tasks, strict=True):
            place = "" if self.free else f" on m{task.machine}"
            lines.append(f"task {name}{place}: {task.milliseconds} ms")

        for flow in self.flows:
            sender = names[flow.source]
            receiver = names[flow.destination]
            ends = f"{sender} to {receiver}"
            lag = " of the iteration before" if flow.lag else ""
            lines.append(f"flow {ends}{lag}: {flow.kilobytes} kB")
        lines.append(f"iterations: {self.iterations}")
        return lines


def _draw(rng: np.random.Generator, values: Sequence[int]) -> int:
    place = int(rng.integers(len(values)))
    return values[place]


def _draw_machine(rng: np.random.Generator) -> SmallMachine:
    return SmallMachine(
        incoming=_draw(rng, RATES),
        outgoing=_draw(rng, RATES),
        cores=_draw(rng, CORES),
    )


def _draw_task(rng: np.random.Generator, letter: str, machines: int) -> SmallTask:
    return SmallTask(
        letter=letter,
        machine=int(rng.integers(machines)),
        milliseconds=_draw(rng, TIMES),
    )


def _put(parts: tuple[Part, ...], position: int, part: Part) -> tuple[Part, ...]:
    """Return the parts with one of them replaced."""
    return (*parts[:position], part, *parts[position + 1 :])


def _without(parts: tuple[Part, ...], position: int) -> tuple[Part, ...]:
    """Return the parts but one."""
    return (*parts[:position], *parts[position + 1 :])


def _replace_one(
    parts: tuple[Part, ...],
    rng: np.random.Generator,
    change: Callable[[Part], Part],
) -> tuple[Part, ...]:
    """Return the parts with one of them, drawn at random, changed."""
    if not parts:
        return parts
    position = int(rng.integers(len(parts)))
    part = change(parts[position])
    return _put(parts, position, part)
