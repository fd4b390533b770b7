"""Section ``job`` of ``system: custom``: any graph of timed tasks and flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field
from typing_extensions import override

from emu.host.limits import limit
from emu.problem import Cluster, Job, Realization, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import (
    DEFAULT_WINDOW,
    Count,
    DurationPerIteration,
    Index,
    Name,
    SizePerIteration,
    TaskName,
    Window,
    default_time,
)
from emu.problem.fields.section import Resources, Section, Trail
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads.all_reduce import NamedEdge
from emu.problem.workloads.coflows import Coflow
from emu.systems import Edit, Problems, Scale, Scaling, Times
from emu.systems.custom.idle_keys import idle_flows, idle_values, odd_kinds
from emu.systems.custom.job import (
    CollectiveSection,
    CustomFlow,
    CustomTask,
    ExchangeSection,
    ShuffleSection,
    custom_job,
    custom_realization,
    with_collectives,
)
from emu.systems.job_section import MOST_EDGES, BuildContext, JobSection

#: A key of a collective, and what is wrong with it.
KeyProblems: TypeAlias = Iterator[tuple[str, str]]


class CustomTaskSection(Section):
    """One task; it runs once per iteration."""

    name: TaskName = Field(examples=["w0"])
    """Unique in the job."""
    kind: Name = "task"
    """``graph_store``, ``sampler``, ``worker``, ``parameter_server`` or any word."""
    time: DurationPerIteration
    """Execution time, one or one per iteration, or ``{default: ..., DEVICE: ...}``."""
    demands: Resources = Resources()
    """Resources that the task needs."""
    pin: Name | None = None
    """The machine that the task must stand on; without it placement decides."""
    process: TaskName | None = None
    """Tasks of one process stand on one machine and hand over in its memory; default is
    a process of its own."""
    iterations: Count | None = None
    """Times that the task runs; default is ``job.iterations``."""
    slot: Name | None = None
    """Pool of its machine that it holds a slot of while it runs."""
    takes: Name | None = None
    """Pool that it needs a slot of to start; at its end it ``frees`` one."""
    frees: Name | None = None
    """Pool that gets a slot back at its end, or ``none``; default: what it takes."""
    server: TaskName | None = None
    """Process in which the tasks of this server run one at a time, first come first
    served."""
    gate: bool = False
    """No process runs it: a barrier, a release; flows to and from it have 0 bytes."""

    @property
    def home(self) -> str:
        """Name of its process."""
        return self.process or self.server or self.name

    def slot_to_free(self) -> str | None:
        """Return the pool that it frees, empty for none, None for what it takes."""
        if self.frees == "none":
            return ""
        return self.frees


class FlowSection(Section):
    """One edge: ``to`` in iteration n needs what ``from`` produced in n - lag."""

    source: Name = Field(alias="from", examples=["s0"])
    """Task that sends."""
    destination: Name = Field(alias="to", examples=["w0"])
    """Task that waits."""
    lag: Index = 0
    """Iterations between sending and needing."""
    volume: SizePerIteration
    """Bytes, one or one per iteration of the source."""
    channel: TaskName | None = None
    """Flows of one channel go one after the other in the order in which they got ready,
    as on one TCP connection."""
    reads: Literal["each", "latest"] = "each"
    """``each``: ``to`` reads n - lag. ``latest``: the newest that has arrived when it
    starts, n - lag at the least."""
    coflow: TaskName | None = None
    """Flows of one name that serve one iteration go together under rules for coflows,
    whatever ``job.coflow`` says of the others."""


#: Share by which a fit may be off at other NICs.
_MOST_OFF = 0.05


class CustomJobSection(JobSection):
    """A job of the user's own."""

    unmeasured: ClassVar[str] = (
        "custom tasks state their times, there is nothing to measure"
    )

    system: Literal["custom"]
    """Kind of job."""
    iterations: Count = Field(examples=[20])
    """Times that every task runs that does not say otherwise."""
    tasks: tuple[CustomTaskSection, ...] = Field(min_length=1)
    """The tasks."""
    flows: tuple[FlowSection, ...] = ()
    """The flows between them."""
    collectives: tuple[CollectiveSection, ...] = ()
    """Collectives of some tasks, after each of them ended."""
    credit_window: Window = DEFAULT_WINDOW
    """Stores wait for the end of their workers' iteration n - K; ``unlimited`` for no
    limit."""
    machines: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """Machines that take part; default is all of them."""
    times: Literal["stated", "measured"] = "stated"
    """``measured``: machines take them over their ``speed``, as ``emu fit`` has it."""
    fit_error: float | None = None
    """Share by which ``emu fit --against`` found it off at other NICs; default is that
    nobody has measured it."""
    coflow: Coflow = "task"
    """Flows of an iteration that are a coflow: those to one ``task``, between two kinds
    of task for one layer (``stage``), or all of the ``job``."""

    @property
    @override
    def goes_by_speed(self) -> bool:
        return self.times == "measured"

    @override
    def idle_keys(self) -> Iterator[str]:
        edges = [
            NamedEdge(flow.source, flow.destination, flow.lag) for flow in self.flows
        ]
        yield from idle_flows(edges, self.rounds)
        yield from idle_values(self._list_values())
        yield from odd_kinds(task.kind for task in self.tasks)

    def _list_values(self) -> Iterator[tuple[str, object, int]]:
        """Yield key and name, values, and iterations of times and volumes."""
        rounds = self.rounds
        for task in self.tasks:
            yield f"time of task {task.name}", task.time, rounds[task.name]
        for flow in self.flows:
            name = f"{flow.source}->{flow.destination}"
            yield f"volume of flow {name}", flow.volume, rounds[flow.source]
        for collective in self.collectives:
            if collective.shuffle is None:
                exchange = collective.exchange
                first, *_ = exchange.among
                key = f"volume of {collective.kind} of {first}"
                yield key, exchange.volume, rounds[first]

    @property
    @override
    def fit_note(self) -> str:
        if not self.goes_by_speed:
            return ""
        if self.fit_error is None:
            return "not measured at other NICs: emu fit --against RUN does"
        note = f"at other NICs, measured for it, this fit was {self.fit_error:+.1%} off"
        if abs(self.fit_error) > _MOST_OFF:
            note += ": it is no good for NICs other than those that it was fitted at"
        return note

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        edges = sum(collective.edges for collective in self.collectives)
        # At least one: how many iterations fit is found by dividing by it.
        flows = max(1, len(self.flows))
        return flows + edges

    @override
    def size_problems(self, machines: Sequence[str]) -> Problems:
        """Yield what makes too many edges or flows: mostly a collective."""
        # The base names too many iterations, but knows nothing of collectives.
        edges = self.least_edges(machines)
        if edges <= limit(MOST_EDGES):
            yield from super().size_problems(machines)
            return

        trail: Trail = ("job", "flows")
        cause = f"{len(self.flows):,}"
        sizes = [collective.edges for collective in self.collectives]
        largest = max(sizes, default=0)
        # One key is named: the one that makes most of the edges.
        if largest > len(self.flows):
            position = sizes.index(largest)
            collective = self.collectives[position]
            trail = ("job", "collectives", position, collective.kind)
            cause = collective.kind
            if collective.shuffle is None:
                exchange = collective.exchange
                tasks = len(exchange.among)
                # The larger of the two factors is the likelier slip.
                has_many_tasks = largest > MOST_EDGES * exchange.segments
                trail = (*trail, "among" if has_many_tasks else "segments")
                cause = f"{tasks:,} tasks in {exchange.segments:,} segments"
        problem = (
            f"found {cause}, which make {edges:,} edges or more, at most "
            f"{MOST_EDGES:,} are built: write fewer"
        )
        yield trail, problem

    def _parts(self) -> tuple[list[CustomTask], list[CustomFlow]]:
        tasks = []
        for row in self.tasks:
            task = Task(
                name=row.name,
                kind=row.kind,
                demands=row.demands.amounts(),
                pinned=row.pin,
                # A server is a process with a pool of one slot, both of its name.
                process=row.process or row.server or "",
                iterations=row.iterations,
                takes=row.slot or row.takes or row.server or "",
                frees=row.slot_to_free(),
                gate=row.gate,
            )
            tasks.append(CustomTask(task, time=default_time(row.time)))

        flows = []
        for flow in self.flows:
            edge = NamedEdge(
                source=flow.source,
                destination=flow.destination,
                lag=flow.lag,
                channel=flow.channel or "",
                latest=flow.reads == "latest",
                coflow=flow.coflow or "",
            )
            flows.append(CustomFlow(edge, flow.volume))
        return with_collectives(tasks, flows, self.collectives)

    @property
    @override
    def movable_on(self) -> tuple[str, ...] | None:
        return self.machines

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from self.rank_problems(cluster)
        counts = Counter(task.name for task in self.tasks)
        rounds = self.rounds
        for position, task in enumerate(self.tasks):
            trail: Trail = ("job", "tasks", position)
            if counts[task.name] > 1:
                problem = f"{task.name!r} occurs {counts[task.name]} times"
                yield (*trail, "name"), problem
            count = rounds[task.name]
            yield from _count_problems(task.time, count, (*trail, "time"))
            # A measured time is divided by speed, one of a device is that device's.
            if self.goes_by_speed and isinstance(task.time, dict):
                problem = "states times by device, but job.times is measured: state one"
                yield (*trail, "time"), problem
        yield from _process_problems(self)
        yield from _flow_problems(self)

        gates = {task.name: task.gate for task in self.tasks}
        for position, collective in enumerate(self.collectives):
            kind = collective.kind
            if collective.shuffle is not None:
                problems = _shuffle_problems(collective.shuffle, gates)
            else:
                exchange = collective.exchange
                problems = _exchange_problems(exchange, kind, gates, rounds)
            for key, problem in problems:
                yield ("job", "collectives", position, kind, key), problem

    @property
    def rounds(self) -> dict[str, int]:
        """Iterations of every task, by its name."""
        default = self.iterations
        return {task.name: task.iterations or default for task in self.tasks}

    @override
    def slot_problems(self, cluster: ClusterSection) -> Problems:
        named_pools: set[str] = set()
        for machine in cluster.machines:
            named_pools.update(machine.slots)
        pools = sorted(named_pools)
        takes = {task.slot for task in self.tasks if task.slot}
        takes |= {task.takes for task in self.tasks if task.takes}
        for position, task in enumerate(self.tasks):
            trail: Trail = ("job", "tasks", position)
            # `slot` stands for both: beside them it would contradict one.
            if task.slot and (task.takes or task.frees):
                problem = "slot says both what is taken and freed"
                yield (*trail, "slot"), f"{problem}, write it or takes, frees"

            for key in ("slot", "takes"):
                name = getattr(task, key)
                if name and name not in pools:
                    problem = f"no machine has slots of {name!r}"
                    yield (*trail, key), f"{problem}, {_unknown(name, pools)}"
                # A process has a pool of its own name, in which its tasks take turns.
                elif name and name == task.home:
                    problem = f"the process is called {name!r} too, call one otherwise"
                    yield (*trail, key), problem

            frees = task.slot_to_free()
            # A pool that nobody takes from would only ever grow.
            if frees and frees not in takes:
                problem = f"no task takes a slot of {frees!r}, {_unknown(frees, takes)}"
                yield (*trail, "frees"), problem
            # A server's pool has its name: the machine's slots would be taken instead.
            if task.server in pools:
                problem = f"machines have slots called {task.server!r}"
                yield (*trail, "server"), f"{problem}, call it otherwise"

    @override
    def list_demands(self) -> Iterator[tuple[Trail, Resources]]:
        for position, task in enumerate(self.tasks):
            yield ("job", "tasks", position, "demands"), task.demands

    @override
    def demands_at(self, task: Task) -> Trail:
        # Tasks of collectives are in no row of the file.
        names = [task_section.name for task_section in self.tasks]
        if task.name in names:
            position = names.index(task.name)
            return ("job", "tasks", position, "demands")
        return ("job", "demands")

    @override
    def list_pins(self) -> Iterator[tuple[Trail, str, str]]:
        for position, task in enumerate(self.tasks):
            if task.pin is not None:
                yield ("job", "tasks", position, "pin"), task.name, task.pin

    @override
    def device_times(self) -> Iterator[tuple[Trail, str, Times]]:
        for position, task in enumerate(self.tasks):
            if isinstance(task.time, dict):
                yield ("job", "tasks", position, "time"), task.name, task.time

    @override
    def scale_times(
        self,
        tasks: Mapping[str, str],
        wanted: set[str],
        scale: Scale,
    ) -> Scaling:
        edit: Edit = {}
        names = set()
        for position, task in enumerate(self.tasks):
            # Each task has a time of its own: others of its kind stay as they are.
            if task.name in wanted:
                edit[f"job.tasks[{position}].time"] = scale(task.time)
                names.add(task.name)
        return edit, names

    @override
    def scale_volumes(self, rows: list[int], scale: Scale) -> Edit:
        """Return the volumes of stated flows, scaled; empty beyond: of a collective."""
        # Edges behind the stated flows are of collectives, which share one volume.
        if max(rows) >= len(self.flows):
            return {}
        edit: Edit = {}
        for row in rows:
            volume = self.flows[row].volume
            edit[f"job.flows[{row}].volume"] = scale(volume)
        return edit

    @override
    def build(self, context: BuildContext) -> Job:
        tasks, flows = self._parts()
        settings = {
            "system": self.system,
            "compute": "timed",
            "seed": context.seed,
        }
        return custom_job(
            tasks,
            flows,
            self.iterations,
            window=context.window,
            byte_scale=context.byte_scale,
            settings=settings,
        )

    @override
    def realize(
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
        measured: Times,
    ) -> Realization:
        tasks, flows = self._parts()
        return custom_realization(job, tasks, flows)


def _flow_problems(job: CustomJobSection) -> Problems:
    rounds = job.rounds
    gates = {task.name for task in job.tasks if task.gate}
    for position, flow in enumerate(job.flows):
        trail: Trail = ("job", "flows", position)
        ends = {"from": flow.source, "to": flow.destination}
        for key, name in ends.items():
            if name not in rounds:
                yield (*trail, key), f"no task {name!r}, {nearest(name, rounds)}"
            if name not in gates:
                continue

            # A gate is no process: it has no memory to read, and no connection.
            if np.any(flow.volume):
                problem = f"no bytes come to or leave the gate {name!r}, write 0 B"
                yield (*trail, "volume"), problem
            if flow.reads == "latest":
                problem = f"no process runs the gate {name!r}: nothing is read, remove"
                yield (*trail, "reads"), problem
            for option in ("channel", "coflow"):
                if getattr(flow, option):
                    problem = f"nothing is sent to or from the gate {name!r}, remove"
                    yield (*trail, option), f"{problem} this"
        iterations = rounds.get(flow.source, job.iterations)
        yield from _count_problems(flow.volume, iterations, (*trail, "volume"))


def _exchange_problems(
    exchange: ExchangeSection,
    kind: str,
    gates: Mapping[str, bool],
    rounds: Mapping[str, int],
) -> KeyProblems:
    """Yield key and problem of a collective."""
    yield from _rank_problems(gates, exchange)
    counts = {name: rounds[name] for name in exchange.among if name in rounds}
    # Ranks meet in every iteration: one that has fewer would leave the others waiting.
    if len(set(counts.values())) > 1:
        numbers = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield "among", f"found different numbers of iterations: {numbers}"
    if not exchange.then and exchange.lag == 0:
        problem = "found 0: who brings can wait for the outcome later only, write 1"
        yield "lag", problem
    if not np.any(exchange.volume):
        yield "volume", "found 0 bytes, there is nothing to exchange"
    iterations = max(counts.values(), default=1)
    for _, problem in _count_problems(exchange.volume, iterations, ()):
        yield "volume", problem

    # Of a single rank something else is wrong, which has been said.
    if len(exchange.among) > 1:
        try:
            exchange.steps(kind)
        except ValueError as error:
            yield "algorithm", str(error)


def _shuffle_problems(
    shuffle: ShuffleSection,
    gates: Mapping[str, bool],
) -> KeyProblems:
    ends = {"from": shuffle.sources, "to": shuffle.destinations}
    for key, names in ends.items():
        yield from _name_problems(gates, key, names)
        for name in names:
            if gates.get(name):
                yield key, f"{name!r} is a gate"
    stated = len(shuffle.volume)
    count = len(shuffle.destinations)
    if stated != count:
        problem = f"found {stated} for {count} tasks of to, write one for each"
        yield "volume", problem


def _name_problems(
    tasks: Collection[str],
    key: str,
    names: Sequence[str],
) -> KeyProblems:
    for name, count in Counter(names).items():
        if name not in tasks:
            yield key, f"no task {name!r}, {nearest(name, tasks)}"
        elif count > 1:
            yield key, f"{name!r} occurs {count} times"


def _rank_problems(
    gates: Mapping[str, bool],
    exchange: ExchangeSection,
) -> KeyProblems:
    ranks = len(exchange.among)
    if ranks < 2:
        yield "among", "one task alone has nothing to exchange, name two or more"
    if exchange.then and len(exchange.then) != ranks:
        problem = f"found {len(exchange.then)} for {ranks} tasks, name one for each"
        yield "then", problem
    yield from _name_problems(gates, "among", exchange.among)
    yield from _name_problems(gates, "then", exchange.then)
    for name in exchange.among:
        if gates.get(name):
            yield "among", f"{name!r} is a gate, it brings nothing"


def _process_problems(job: CustomJobSection) -> Problems:
    """Yield tasks of one process with two pins, and names that mean two processes."""
    process_of = {task.name: task.home for task in job.tasks}
    pins: dict[str, CustomTaskSection] = {}
    for position, task in enumerate(job.tasks):
        trail: Trail = ("job", "tasks", position)
        process = process_of[task.name]
        word = "server" if task.server else "process"
        # A task without a process is one of its own name: two must not be meant.
        elsewhere = process_of.get(process, process)
        if elsewhere != process:
            problem = f"task {process!r} runs in process {elsewhere!r}, write that one"
            yield (*trail, word), problem
        for key in ("process", "slot", "takes", "frees"):
            stated = getattr(task, key)
            if task.server and stated:
                problem = f"a server is a process with one slot, write it or {key}"
                yield (*trail, "server"), problem

        if task.pin is None:
            continue
        # All tasks of a process stand with the first of them that is pinned.
        first = pins.setdefault(process, task)
        if first.pin != task.pin:
            problem = (
                f"found {task.pin!r}, but {first.name} of the same {word} "
                f"{process!r} must stand on {first.pin}"
            )
            yield (*trail, "pin"), problem


def _unknown(name: str, pools: Collection[str]) -> str:
    if not pools:
        return "there are no pools"
    return nearest(name, sorted(pools))


def _count_problems(values: object, iterations: int, trail: Trail) -> Problems:
    if isinstance(values, tuple) and len(values) < iterations:
        problem = (
            f"found {len(values)} values for {iterations} iterations, "
            f"write {iterations} or a single one"
        )
        yield trail, problem
