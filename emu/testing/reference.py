"""The slow reference: docs/semantics.md as a program that is plain to read.

Nothing here is fast or shared with what it is compared with. The whole history is kept
as times of (task, iteration) and (edge, iteration); every question is answered by
looking at it, and every active flow carries the bytes that it has left. Rates are
computed anew for all flows whenever the set of active flows has changed, or a link that
one of them crosses::

    from emu.testing import reference, two_machine_example

    outcome = reference.run(*two_machine_example(3), "oes")
    print(max(outcome.task_end.values()))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, inf
from operator import attrgetter
from typing import TypeAlias

from emu.problem import Edge, Problem, Realization, Tuner
from emu.trust.coflow_rules import note_coflows, time_in_queue
from emu.trust.guards.evidence import list_capacities, list_hops, list_latencies
from emu.trust.rate_rules import (
    POLICIES,
    Event,
    is_needed,
    rank_of,
    remaining_paths,
    rounds_of,
)
from emu.trust.rated_flows import Flow, Rank

Times: TypeAlias = dict[Event, float]

#: Share of a time within which events are of one instant.
INSTANT = 1e-12
#: Share of its volume below which what is left of a flow is rounding.
NOTHING = 1e-11
#: Queues over which the slope of a tuned quota is taken (Dorylus, section 6).
LOOKS = 5


@dataclass
class Outcome:
    """Times of everything that happened, seconds, and the rates from each time on."""

    task_start: Times = field(default_factory=dict)
    task_end: Times = field(default_factory=dict)
    """By (task, iteration)."""
    flow_ready: Times = field(default_factory=dict)
    flow_start: Times = field(default_factory=dict)
    flow_end: Times = field(default_factory=dict)
    """By (edge, iteration of its source). A flow is there a latency after its end."""
    rates: list[tuple[float, dict[Event, float]]] = field(default_factory=list)
    """Bytes per second of every active flow, each time that they were computed."""
    reads: dict[Event, int] = field(default_factory=dict)
    """Iteration that was read, by (edge with ``latest``, iteration of its reader); -1
    where none was there."""
    quotas: dict[int, list[int]] = field(default_factory=dict)
    """Slots after each look, by tuner."""


def run(problem: Problem, realization: Realization, policy: str) -> Outcome:
    """Simulate a job to its end.

    Parameters
    ----------
    problem, realization
        As of `emu.prediction.simulation.simulate`.
    policy
        Name of a rule in `emu.trust.rate_rules.POLICIES`.

    Raises
    ------
    ValueError
        When something waits for what never comes.
    """
    simulation = _Simulation(problem, realization, policy)
    simulation.run()
    return simulation.outcome


#: Position of an edge, and the edge.
_Input: TypeAlias = tuple[int, Edge]


class _Simulation:
    """A run, at one instant."""

    def __init__(
        self,
        problem: Problem,
        realization: Realization,
        policy: str,
    ) -> None:
        job = problem.job

        self._problem = problem
        self._cluster = problem.cluster
        self._job = job
        self._realization = realization
        self._policy = policy
        self._machine_of = problem.placement.machine_of
        self._hops = list_hops(problem)
        self._latency = list_latencies(problem)
        self._inputs: defaultdict[int, list[_Input]] = defaultdict(list)
        for position, edge in enumerate(job.edges):
            inputs = self._inputs[edge.destination]
            inputs.append((position, edge))

        self.outcome = Outcome()
        self._now = 0.0
        self._active: dict[Event, Flow] = {}
        self._idle = self._list_flows()
        self._came: dict[Event, float] = {}
        """Tasks that wait for a slot, or read the newest, since when."""
        self._called: list[Event] = []
        """Flows whose turn it was on their channel."""
        self._queues: defaultdict[int, list[int]] = defaultdict(list)
        """Tasks that waited at each look of a tuner."""
        self._rated: list[Flow] = []
        self._capacity: dict[str, float] = {}
        """Capacity of every link when rates were computed last."""
        self._demotion = inf
        """When the first coflow of ``aalo`` changes its queue."""

    def run(self) -> None:
        """Go from instant to instant until every task has ended."""
        tasks = range(len(self._job.tasks))
        rounds = [rounds_of(self._problem, task) for task in tasks]
        all_iterations = sum(rounds)
        while True:
            while self._one_thing_happens():
                pass
            if len(self.outcome.task_end) == all_iterations:
                if self._active:
                    raise ValueError("flows are under way that no task waits for")
                return
            if self._rates_may_change():
                self._set_rates()
            self._go_on()

    # One instant: the order of what happens at it.

    @property
    def _end_of_instant(self) -> float:
        return self._now * (1 + INSTANT)

    def _one_thing_happens(self) -> bool:
        """Let the first thing happen that is due; return False where nothing is."""
        return (
            self._a_flow_ends()
            or self._a_task_ends()
            or self._a_flow_is_sent()
            or self._a_task_may_start()
            or self._channels_give_turns()
            or self._slots_are_granted()
            or self._quotas_are_looked_at()
        )

    def _a_flow_ends(self) -> bool:
        for event, flow in self._active.items():
            if flow.left <= NOTHING * flow.volume:
                del self._active[event]
                self.outcome.flow_end[event] = self._now
                return True
        return False

    def _a_task_ends(self) -> bool:
        for event, end in self._ends_of_running_tasks():
            if end <= self._end_of_instant:
                self.outcome.task_end[event] = self._now
                return True
        return False

    def _a_flow_is_sent(self) -> bool:
        outcome = self.outcome
        for event, flow in self._idle.items():
            position, iteration = event
            edge = self._job.edges[position]
            sending_task = (edge.source, iteration)
            if sending_task not in outcome.task_end:
                continue
            if event not in outcome.flow_ready:
                outcome.flow_ready[event] = self._now
                # Times that are equal on paper may part by rounding.
                flow.ready = round(self._now, 10)
                return True

            flow_before = (position, iteration - 1)
            if iteration > 0 and flow_before not in outcome.flow_end:
                continue
            if self._channel_of(position) and event not in self._called:
                continue

            del self._idle[event]
            outcome.flow_start[event] = self._now
            if flow.hops and flow.volume > 0:
                self._active[event] = flow
            else:
                outcome.flow_end[event] = self._now
            return True
        return False

    def _a_task_may_start(self) -> bool:
        """Start a task that needs no slot; let one that does stand in line."""
        outcome = self.outcome
        landed_flows = self._list_landed()
        for event in self._iterations():
            if event in outcome.task_start or event in self._came:
                continue
            task, iteration = event
            event_before = (task, iteration - 1)
            if iteration > 0 and event_before not in outcome.task_end:
                continue
            inputs = set(self._needed_flows(task, iteration))
            if not inputs <= landed_flows:
                continue

            edges = [edge for _, edge in self._inputs[task]]
            reads_newest = any(edge.latest for edge in edges)
            pool = self._job.tasks[task].takes
            slots = self._slots_of(task, pool)
            if slots is None and not reads_newest:
                outcome.task_start[event] = self._now
            else:
                self._came[event] = self._now
            return True
        return False

    def _needed_flows(self, task: int, iteration: int) -> Iterator[Event]:
        """Yield the flows that a task waits for before an iteration."""
        for position, edge in self._inputs[task]:
            sent_iteration = iteration - edge.lag
            if is_needed(self._problem, position, sent_iteration):
                yield position, sent_iteration

    def _channels_give_turns(self) -> bool:
        """Call the first flow of every channel that is free."""
        outcome = self.outcome

        def place(flow: Event) -> tuple[float, int, Rank]:
            position, iteration = flow
            edge = self._job.edges[position]
            turn = iteration + edge.lag
            ready = round(outcome.flow_ready[flow], 10)
            rank = rank_of(self._job, position)
            return ready, turn, rank

        has_changed = False
        channels = {edge.channel for edge in self._job.edges}
        for channel in channels - {""}:
            waiting = []
            has_gone = True  # until a flow that was called is found under way
            for flow in outcome.flow_ready:
                position, _ = flow
                if self._channel_of(position) != channel:
                    continue
                if flow not in self._called:
                    waiting.append(flow)
                elif flow not in outcome.flow_end:
                    has_gone = False

            if waiting and has_gone:
                first = min(waiting, key=place)
                self._called.append(first)
                has_changed = True
        return has_changed

    def _slots_are_granted(self) -> bool:
        """Start all whose turn it is: first come, then by iteration and number."""
        outcome = self.outcome

        def place(event: Event) -> tuple[float, int, int]:
            task, iteration = event
            return self._came[event], iteration, task

        waiting = [event for event in self._came if event not in outcome.task_start]
        waiting.sort(key=place)
        landed_flows = self._list_landed()

        has_changed = False
        for event in waiting:
            task, iteration = event
            if not self._has_free_slot(task):
                continue
            outcome.task_start[event] = self._now
            has_changed = True
            for position, edge in self._inputs[task]:
                if edge.latest:
                    arrivals = [n for flow, n in landed_flows if flow == position]
                    newest = max(arrivals, default=-1)
                    outcome.reads[position, iteration] = newest
        return has_changed

    def _quotas_are_looked_at(self) -> bool:
        """Change the quotas that are due by the slopes of their last queues."""
        due = []
        for number, time in enumerate(self._next_looks()):
            if time <= self._end_of_instant:
                due.append(number)

        for number in due:
            tuner = self._cluster.tuners[number]
            waiting = self._count_waiting(tuner)
            queues = self._queues[number]
            queues.append(waiting)

            quotas = self.outcome.quotas.setdefault(number, [])
            machine = self._cluster.machines[tuner.machine]
            quota = machine.slots[tuner.pool]
            if quotas:
                quota = quotas[-1]
            last_queues = queues[-LOOKS:]
            next_quota = _tune(quota, last_queues, tuner.most)
            quotas.append(next_quota)
        return bool(due)

    def _count_waiting(self, tuner: Tuner) -> int:
        """Return how many tasks wait for a slot of the pool that a tuner watches."""
        tasks = self._job.tasks
        count = 0
        for event in self._came:
            task, _ = event
            is_of_pool = tasks[task].takes == tuner.watched
            is_of_machine = self._machine_of[task] == tuner.machine
            has_started = event in self.outcome.task_start
            if is_of_pool and is_of_machine and not has_started:
                count += 1
        return count

    # Between instants: rates, and when the next thing happens.

    def _rates_may_change(self) -> bool:
        """Return True where a flow began or ended, or a link of one has changed."""
        rates = self.outcome.rates
        if not rates:
            return True
        _, last_rates = rates[-1]
        if self._active.keys() != last_rates.keys():
            return True

        capacity = list_capacities(self._problem, self._now)
        for flow in self._active.values():
            if any(capacity[port] != self._capacity[port] for port in flow.hops):
                return True
        return self._now >= self._demotion

    def _set_rates(self) -> None:
        flows = list(self._active.values())
        capacity = list_capacities(self._problem, self._now)
        note_coflows(self._rated, flows, self._now)
        self._rated = flows
        self._capacity = capacity
        for flow in flows:
            flow.rate = 0.0
            flow.alone = min(capacity[port] for port in flow.hops)

        POLICIES[self._policy](flows, capacity)
        rates = {event: flow.rate for event, flow in self._active.items()}
        computed = (self._now, rates)
        self.outcome.rates.append(computed)
        self._demotion = inf
        if self._policy == "aalo":
            self._demotion = self._now + time_in_queue(flows)

    def _go_on(self) -> None:
        """Go to the next instant, and take off what flows carry until then."""
        flows = self._active.values()
        instants = [end for _, end in self._ends_of_running_tasks()]
        for flow in flows:
            if flow.rate > 0:
                seconds_left = flow.left / flow.rate
                instants.append(self._now + seconds_left)
        if self._demotion < inf:
            instants.append(self._demotion)
        landings = self._landings().values()
        changes = [change.time for change in self._cluster.changes]
        times = [*landings, *changes]
        instants += [time for time in times if time > self._now]
        if not instants:
            raise ValueError(f"after {self._now} s nothing would ever happen")

        instants += self._next_looks()
        later = min(instants)
        seconds = later - self._now
        for flow in flows:
            flow.left -= flow.rate * seconds
        self._now = later

    # What has been, and what is to come.

    def _list_flows(self) -> dict[Event, Flow]:
        """Return every flow as it is before it starts, by edge and iteration."""
        job = self._job
        flows = {}
        paths = remaining_paths(self._problem, self._realization)

        for event, path_after in sorted(paths.items()):
            position, iteration = event
            edge = job.edges[position]
            sender = job.tasks[edge.source]
            volume = float(self._realization.volumes[event])

            flows[event] = Flow(
                edge=position,
                turn=iteration + edge.lag,
                rank=rank_of(job, position),
                hops=self._hops[position],
                volume=volume,
                left=volume,
                path_after=path_after,
                job=sender.job_name,
                coflow=edge.coflow,
            )
        return flows

    def _iterations(self) -> Iterator[Event]:
        for task in range(len(self._job.tasks)):
            rounds = rounds_of(self._problem, task)
            for iteration in range(rounds):
                yield task, iteration

    def _landings(self) -> dict[Event, float]:
        """Return when each flow that has ended is at its destination."""
        landings = {}
        for event, end in self.outcome.flow_end.items():
            position, _ = event
            landings[event] = end + self._latency[position]
        return landings

    def _list_landed(self) -> set[Event]:
        now = self._end_of_instant
        landings = self._landings()
        return {flow for flow, time in landings.items() if time <= now}

    def _ends_of_running_tasks(self) -> Iterator[tuple[Event, float]]:
        outcome = self.outcome
        for event, start in outcome.task_start.items():
            if event not in outcome.task_end:
                task, _ = event
                work = float(self._realization.times[event])
                end = end_of_work(
                    self._problem,
                    task,
                    start=start,
                    work=work,
                )
                yield event, end

    def _channel_of(self, position: int) -> str:
        """Return the channel of an edge between two machines, empty for none."""
        if not self._hops[position]:
            return ""
        return self._job.edges[position].channel

    def _slots_of(self, task: int, pool: str) -> int | None:
        """Return how many slots a pool of a task's machine has, None for no limit."""
        machine = self._machine_of[task]
        for number, tuner in enumerate(self._cluster.tuners):
            quotas = self.outcome.quotas.get(number)
            is_tuned = tuner.machine == machine and tuner.pool == pool
            if is_tuned and quotas:
                return quotas[-1]
        slots = self._cluster.machines[machine].slots
        return slots.get(pool)

    def _has_free_slot(self, task: int) -> bool:
        pool = self._job.tasks[task].takes
        slots = self._slots_of(task, pool)
        if slots is None:
            return True
        machine = self._machine_of[task]
        tasks = self._job.tasks

        taken = 0
        for holder, _ in self.outcome.task_start:
            is_of_machine = self._machine_of[holder] == machine
            if is_of_machine and tasks[holder].takes == pool:
                taken += 1
        for giver, _ in self.outcome.task_end:
            is_of_machine = self._machine_of[giver] == machine
            if is_of_machine and tasks[giver].gives_back == pool:
                taken -= 1
        return taken < slots

    def _next_looks(self) -> list[float]:
        """Return when each quota is looked at next."""
        looks = []
        for number, tuner in enumerate(self._cluster.tuners):
            quotas = self.outcome.quotas.get(number, [])
            next_look = len(quotas) + 1
            time = tuner.period * next_look
            looks.append(time)
        return looks


def _tune(quota: int, queues: list[int], most: int) -> int:
    """Return a quota after a look: a tenth less where queues rise, more where not."""
    if len(queues) < LOOKS:
        return quota
    mean = Fraction(sum(queues), LOOKS)
    middle = LOOKS // 2
    rise = Fraction(0)
    for place, queue in enumerate(queues):
        looks_later = place - middle
        rise += looks_later * (queue - mean)

    if rise > 0:
        lower = floor(Fraction(9, 10) * quota)
        return max(1, lower)
    if rise < 0:
        higher = ceil(Fraction(11, 10) * quota)
        return min(most, higher)
    return quota


def speed_at(problem: Problem, task: int, time: float) -> float:
    """Return the share of its speed that the machine of a task has from a time on."""
    if problem.job.tasks[task].gate:
        return 1.0
    cluster = problem.cluster
    number = problem.placement.machine_of[task]
    machine = cluster.machines[number]
    by_time = attrgetter("time")
    share = 1.0
    for change in sorted(cluster.speed_changes, key=by_time):
        if change.machine == machine.name and change.time <= time:
            share = change.share
    return share


def end_of_work(
    problem: Problem,
    task: int,
    start: float,
    work: float,
) -> float:
    """Return when a task has worked so many seconds at full speed.

    Never where its machine stands still for good.
    """
    now = start
    rest = work
    changes = {change.time for change in problem.cluster.speed_changes}
    later_changes = [time for time in changes if time > start]

    for later in sorted(later_changes):
        speed = speed_at(problem, task, now)
        possible = speed * (later - now)
        if rest <= possible * (1 + INSTANT):
            break
        now = later
        rest -= possible
    if rest <= INSTANT:
        return now
    speed = speed_at(problem, task, now)
    if not speed:
        return inf
    return now + rest / speed
