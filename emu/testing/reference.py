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

from emu.problem import Edge, Problem, Realization
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

#: Share of a time within which events are of one instant.
INSTANT = 1e-12
#: Share of its volume below which what is left of a flow is rounding.
NOTHING = 1e-11
#: Queues over which the slope of a tuned quota is taken (Dorylus, section 6).
LOOKS = 5


@dataclass
class Outcome:
    """Times of everything that happened, seconds, and the rates from each time on."""

    task_start: dict[Event, float] = field(default_factory=dict)
    task_end: dict[Event, float] = field(default_factory=dict)
    """By (task, iteration)."""
    flow_ready: dict[Event, float] = field(default_factory=dict)
    flow_start: dict[Event, float] = field(default_factory=dict)
    flow_end: dict[Event, float] = field(default_factory=dict)
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


class _Simulation:
    """A run, at one instant."""

    def __init__(self, problem: Problem, realization: Realization, policy: str) -> None:
        job = problem.job

        self._problem = problem
        self._job = job
        self._realization = realization
        self._policy = policy
        self._machine_of = problem.placement.machine_of
        self._hops = list_hops(problem)
        self._latency = list_latencies(problem)
        self._inputs: defaultdict[int, list[tuple[int, Edge]]] = defaultdict(list)
        for position, edge in enumerate(job.edges):
            self._inputs[edge.destination].append((position, edge))

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
        self._demotion = inf
        """When the first coflow of ``aalo`` changes its queue."""

    def run(self) -> None:
        """Go from instant to instant until every task has ended."""
        tasks = range(len(self._job.tasks))
        all_iterations = sum(rounds_of(self._problem, task) for task in tasks)
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
            if end <= self._now * (1 + INSTANT):
                self.outcome.task_end[event] = self._now
                return True
        return False

    def _a_flow_is_sent(self) -> bool:
        outcome = self.outcome
        for (position, iteration), flow in self._idle.items():
            event = position, iteration
            source = self._job.edges[position].source
            if (source, iteration) not in outcome.task_end:
                continue
            if event not in outcome.flow_ready:
                outcome.flow_ready[event] = self._now
                # Times that are equal on paper may part by rounding.
                flow.ready = round(self._now, 10)
                return True

            if iteration > 0 and (position, iteration - 1) not in outcome.flow_end:
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
        for task, iteration in self._iterations():
            event = task, iteration
            if event in outcome.task_start or event in self._came:
                continue
            if iteration > 0 and (task, iteration - 1) not in outcome.task_end:
                continue
            inputs = {
                (position, iteration - edge.lag)
                for position, edge in self._inputs[task]
                if is_needed(self._problem, position, iteration - edge.lag)
            }
            if not inputs <= landed_flows:
                continue

            reads_newest = any(edge.latest for _, edge in self._inputs[task])
            pool = self._job.tasks[task].takes
            if self._slots_of(task, pool) is None and not reads_newest:
                outcome.task_start[event] = self._now
            else:
                self._came[event] = self._now
            return True
        return False

    def _channels_give_turns(self) -> bool:
        """Call the first flow of every channel that is free."""
        outcome = self.outcome

        def place(flow: Event) -> tuple[float, int, Rank]:
            position, iteration = flow
            turn = iteration + self._job.edges[position].lag
            ready = round(outcome.flow_ready[flow], 10)
            return ready, turn, rank_of(self._job, position)

        has_changed = False
        for channel in {edge.channel for edge in self._job.edges} - {""}:
            flows = [
                flow
                for flow in outcome.flow_ready
                if self._channel_of(flow[0]) == channel
            ]
            waiting = [flow for flow in flows if flow not in self._called]
            called_flows = [flow for flow in flows if flow in self._called]

            if waiting and all(flow in outcome.flow_end for flow in called_flows):
                self._called.append(min(waiting, key=place))
                has_changed = True
        return has_changed

    def _slots_are_granted(self) -> bool:
        """Start all whose turn it is: first come, then by iteration and number."""
        outcome = self.outcome
        waiting = [event for event in self._came if event not in outcome.task_start]
        waiting.sort(key=lambda event: (self._came[event], event[1], event[0]))
        landed_flows = self._list_landed()

        has_changed = False
        for task, iteration in waiting:
            if not self._has_free_slot(task):
                continue
            outcome.task_start[task, iteration] = self._now
            has_changed = True
            for position, edge in self._inputs[task]:
                if edge.latest:
                    arrivals = [n for flow, n in landed_flows if flow == position]
                    outcome.reads[position, iteration] = max(arrivals, default=-1)
        return has_changed

    def _quotas_are_looked_at(self) -> bool:
        """Change the quotas that are due by the slopes of their last queues."""
        looks = list(enumerate(self._next_looks()))
        due = [tuner for tuner, time in looks if time <= self._now * (1 + INSTANT)]
        for number in due:
            tuner = self._problem.cluster.tuners[number]
            queue = sum(
                self._job.tasks[task].takes == tuner.watched
                and self._machine_of[task] == tuner.machine
                for task, iteration in self._came
                if (task, iteration) not in self.outcome.task_start
            )
            self._queues[number].append(queue)

            quotas = self.outcome.quotas.setdefault(number, [])
            machine = self._problem.cluster.machines[tuner.machine]
            quota = quotas[-1] if quotas else machine.slots[tuner.pool]
            quotas.append(_tune(quota, self._queues[number][-LOOKS:], tuner.most))
        return bool(due)

    # Between instants: rates, and when the next thing happens.

    def _rates_may_change(self) -> bool:
        """Return True where a flow began or ended, or a link of one has changed."""
        rates = self.outcome.rates
        if not rates or set(self._active) != set(rates[-1][1]):
            return True
        crossed_links = {link for flow in self._active.values() for link in flow.hops}
        changes = self._problem.cluster.changes
        changed_links = {change.link for change in changes if change.time == self._now}
        return bool(changed_links & crossed_links) or self._now >= self._demotion

    def _set_rates(self) -> None:
        flows = list(self._active.values())
        capacity = list_capacities(self._problem, self._now)
        note_coflows(self._rated, flows, self._now)
        self._rated = flows
        for flow in flows:
            flow.rate = 0.0
            flow.alone = min(capacity[port] for port in flow.hops)

        POLICIES[self._policy](flows, capacity)
        rates = {event: flow.rate for event, flow in self._active.items()}
        self.outcome.rates.append((self._now, rates))
        is_aalo = self._policy == "aalo"
        self._demotion = self._now + time_in_queue(flows) if is_aalo else inf

    def _go_on(self) -> None:
        """Go to the next instant, and take off what flows carry until then."""
        flows = self._active.values()
        ends = [end for _, end in self._ends_of_running_tasks()]
        ends += [self._now + flow.left / flow.rate for flow in flows if flow.rate > 0]
        ends += [time for time in self._landings().values() if time > self._now]
        ends += [self._demotion] if self._demotion < inf else []
        changes = [
            change.time
            for change in self._problem.cluster.changes
            if change.time > self._now
        ]
        if not ends and not changes:
            raise ValueError(f"after {self._now} s nothing would ever happen")

        later = min([*ends, *changes, *self._next_looks()])
        for flow in flows:
            flow.left -= flow.rate * (later - self._now)
        self._now = later

    # What has been, and what is to come.

    def _list_flows(self) -> dict[Event, Flow]:
        """Return every flow as it is before it starts, by edge and iteration."""
        job = self._job
        flows = {}
        paths = remaining_paths(self._problem, self._realization)

        for (position, iteration), path_after in sorted(paths.items()):
            edge = job.edges[position]
            volume = float(self._realization.volumes[position, iteration])

            flows[position, iteration] = Flow(
                edge=position,
                turn=iteration + edge.lag,
                rank=rank_of(job, position),
                hops=self._hops[position],
                volume=volume,
                left=volume,
                path_after=path_after,
                job=job.tasks[edge.source].job_name,
                coflow=edge.coflow,
            )
        return flows

    def _iterations(self) -> Iterator[Event]:
        for task in range(len(self._job.tasks)):
            for iteration in range(rounds_of(self._problem, task)):
                yield task, iteration

    def _landings(self) -> dict[Event, float]:
        """Return when each flow that has ended is at its destination."""
        return {
            (position, iteration): end + self._latency[position]
            for (position, iteration), end in self.outcome.flow_end.items()
        }

    def _list_landed(self) -> set[Event]:
        now = self._now * (1 + INSTANT)
        return {flow for flow, time in self._landings().items() if time <= now}

    def _ends_of_running_tasks(self) -> Iterator[tuple[Event, float]]:
        for event, start in self.outcome.task_start.items():
            if event not in self.outcome.task_end:
                work = float(self._realization.times[event])
                yield event, end_of_work(self._problem, event[0], start, work)

    def _channel_of(self, position: int) -> str:
        """Return the channel of an edge between two machines, empty for none."""
        return self._job.edges[position].channel if self._hops[position] else ""

    def _slots_of(self, task: int, pool: str) -> int | None:
        """Return how many slots a pool of a task's machine has, None for no limit."""
        machine = self._machine_of[task]
        for number, tuner in enumerate(self._problem.cluster.tuners):
            quotas = self.outcome.quotas.get(number)
            if (tuner.machine, tuner.pool) == (machine, pool) and quotas:
                return quotas[-1]
        return self._problem.cluster.machines[machine].slots.get(pool)

    def _has_free_slot(self, task: int) -> bool:
        pool = self._job.tasks[task].takes
        slots = self._slots_of(task, pool)
        if slots is None:
            return True
        machine = self._machine_of[task]
        tasks = self._job.tasks
        takes = sum(
            (tasks[holder].takes, self._machine_of[holder]) == (pool, machine)
            for holder, _ in self.outcome.task_start
        )
        returns = sum(
            (tasks[giver].gives_back, self._machine_of[giver]) == (pool, machine)
            for giver, _ in self.outcome.task_end
        )
        return takes - returns < slots

    def _next_looks(self) -> list[float]:
        """Return when each quota is looked at next."""
        return [
            tuner.period * (len(self.outcome.quotas.get(number, ())) + 1)
            for number, tuner in enumerate(self._problem.cluster.tuners)
        ]


def _tune(quota: int, queues: list[int], most: int) -> int:
    """Return a quota after a look: a tenth less where queues rise, more where not."""
    if len(queues) < LOOKS:
        return quota
    mean = Fraction(sum(queues), LOOKS)
    middle = LOOKS // 2
    rise = sum((place - middle) * (queue - mean) for place, queue in enumerate(queues))
    if rise > 0:
        return max(1, floor(Fraction(9, 10) * quota))
    if rise < 0:
        return min(most, ceil(Fraction(11, 10) * quota))
    return quota


def speed_at(problem: Problem, task: int, time: float) -> float:
    """Return the share of its speed that the machine of a task has from a time on."""
    if problem.job.tasks[task].gate:
        return 1.0
    name = problem.cluster.machines[problem.placement.machine_of[task]].name
    share = 1.0
    for change in sorted(problem.cluster.speed_changes, key=lambda change: change.time):
        if change.machine == name and change.time <= time:
            share = change.share
    return share


def end_of_work(problem: Problem, task: int, start: float, work: float) -> float:
    """Return when a task has worked so many seconds at full speed.

    Never where its machine stands still for good.
    """
    now = start
    rest = work
    changes = {change.time for change in problem.cluster.speed_changes}

    for later in sorted(time for time in changes if time > start):
        possible = speed_at(problem, task, now) * (later - now)
        if rest <= possible * (1 + INSTANT):
            break
        now = later
        rest -= possible
    if rest <= INSTANT:
        return now
    share = speed_at(problem, task, now)
    return now + rest / share if share else inf
