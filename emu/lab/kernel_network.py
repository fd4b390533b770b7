"""A run on kernel NICs: senders know no rate, and TCP shares what the kernel limits.

Every machine is a set of namespaces with an agent in it. The scheduler still decides
what may start; a flow that may go is sent as fast as the kernel takes it, and ends when
the receiver's kernel has its last byte. Under ``assigned`` the kernel holds every
connection to the rate of the schedule, else no rate is decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import heapq
import itertools
import math
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from typing_extensions import override

from emu.emulation.coordinator import Observer
from emu.emulation.coordinator.outcome import EmulatedRun
from emu.emulation.coordinator.run import emulate
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.launch import Launcher, describe_end
from emu.emulation.network import Alarm, RunClock
from emu.errors import RunError, ScenarioError
from emu.host.this_host import module_command
from emu.lab.machines.lab import Lab, LabMachine, Paces
from emu.lab.machines.nic import BURST, SMALLEST_SEGMENT, Sharing
from emu.lab.machines.nic_check import MOST_OFF, NicCheck
from emu.prediction.scheduling import RateSegments
from emu.problem import Cluster, Problem, Realization
from emu.scenario import Scenario


def list_nic_changes(
    problem: Problem,
    per_second: float,
) -> list[tuple[float, LabMachine]]:
    """Return when a machine's NIC changes, and the machine from then on, in order.

    ``per_second`` is real bytes per wall second, of an emulated one per emulated
    second.
    """
    cluster = problem.cluster
    links = cluster.links
    # A NIC that changes both ways at one time changes once.
    pairs = set()
    for instant, link, *_ in links.steps.rows:
        number = links[int(link)].machine
        pairs.add((instant, number))

    changes = []
    for instant, number in sorted(pairs):
        instants = np.array([instant])
        rates = []
        for port in links.of_machine(number):
            (capacity,) = links.steps.at(port, instants)
            rates.append(float(capacity) * per_second)
        nic_out, nic_in = rates
        name = cluster.machines[number].name
        machine = LabMachine(name, nic_out, nic_in)
        change = (float(instant), machine)
        changes.append(change)
    return changes


#: Rates that senders get are so many times what they are: they never wait.
UNSHAPED = 1e6
#: Counts of a machine by what they are of: its TCP, its NIC, all traffic there.
_Counts: TypeAlias = dict[str, Mapping[str, float]]
#: Machine with another NIC, or an edge and its rate.
_Change: TypeAlias = LabMachine | tuple[int, float]
#: Bytes that a line has served below which no bucket lets a byte go. With buckets of 16
#: KB, ten flows that waited at a NIC of 10 Mbit/s made the one before them 0.17 s late.
_NOTHING = -1e15


class LabNics:
    """NICs of a lab (`emu.emulation.coordinator.settings.KernelNics`).

    They change as in `list_nic_changes`, at times of the run's clock. TCP shares them
    by itself, unless rates of a problem are ``assigned``: then every edge's leaf, out
    of the machine that sends, is set when its line begins. Lines are decided up to 50
    ms ahead, and a leaf has no time of its own: they wait here. A NIC that has changed
    takes its rates again: its leaves had none then. ``per_second`` is real bytes per
    wall second, of one emulated byte per emulated second.
    """

    def __init__(
        self,
        lab: Lab,
        changes: Iterable[tuple[float, LabMachine]],
        assigned: Problem | None,
        per_second: float,
    ) -> None:
        self._lab = lab
        self._changes = changes
        self._per_second = per_second
        self._paces: dict[str, Paces] = {}
        if assigned is not None:
            names = assigned.cluster.names
            self._paces = {name: lab.paces(name) for name in names}
            positions = assigned.placement.machine_of
            edges = assigned.job.edges
            self._source = [names[positions[edge.source]] for edge in edges]

        #: Rates that leaves have been given, by machine and edge.
        self._set = {name: dict[int, float]() for name in self._paces}
        self._waiting: list[tuple[float, int, _Change]] = []
        self._count = itertools.count()
        self._failure: RunError | None = None
        #: Wall time from which the lab's counters count.
        self.began = math.nan
        self._clock: RunClock
        self._alarm: Alarm

    def begin(self, clock: RunClock) -> None:
        """Take the clock of the run, in its loop."""
        self._clock = clock
        # What processes said to each other before is not of the run.
        self._lab.counters.restart()
        self.began = time.monotonic()
        self._alarm = Alarm(asyncio.get_running_loop(), self._carry_out_due)
        for instant, machine in self._changes:
            self._wait_for(instant, machine)
        self._carry_out_due()

    def on_decisions(self, lines: RateSegments) -> None:
        """Set rates at the times of their lines, where they are assigned.

        A connection without a rate keeps the one that it had, for what is still on its
        way: its sender knows, and the NIC limits the sum. Raises RunError when the
        kernel refuses.
        """
        if not self._paces:
            return
        instants = lines.since.tolist()
        rates = zip(lines.edge.tolist(), lines.rate.tolist(), strict=True)
        for instant, (edge, rate) in zip(instants, rates, strict=True):
            if rate > 0:
                self._wait_for(instant, (edge, rate))
        self._carry_out_due()

    def for_senders(self, lines: RateSegments) -> RateSegments:
        """Return them as they are; with assigned rates without limits to speak of.

        Senders with a rate send at once then, and the others nothing, no bucket.
        """
        if not self._paces:
            return lines
        progress = np.where(lines.rate > 0, lines.served, _NOTHING)
        rates = lines.rate * UNSHAPED
        return dataclasses.replace(lines, served=progress, rate=rates)

    def path_in(self, machine: str, path: str) -> str:
        """Return a path of a machine as the other namespaces have it."""
        return self._lab.path_in(machine, path)

    def _wait_for(self, instant: float, change: _Change) -> None:
        wall = self._clock.to_wall(instant)
        # Changes of one instant keep their order, and are never compared themselves.
        number = next(self._count)
        heapq.heappush(self._waiting, (wall, number, change))

    def _carry_out_due(self) -> None:
        now = time.monotonic()
        due = defaultdict[str, dict[int, float]](dict)
        while self._waiting and self._waiting[0][0] <= now:
            _, _, change = heapq.heappop(self._waiting)
            if isinstance(change, LabMachine):
                self._change(change)
            else:
                edge, rate = change
                source = self._source[edge]
                due[source][edge] = rate * self._per_second

        for machine, rates in due.items():
            self._set[machine] |= rates
            self._pace(machine, rates)
        if self._waiting:
            self._alarm.set(self._waiting[0][0])

    def _pace(self, machine: str, rates: Mapping[int, float]) -> None:
        try:
            self._paces[machine].set(rates)
        except OSError as error:
            raise RunError(f"machine {machine} takes no rates: {error}") from error

    def _change(self, machine: LabMachine) -> None:
        name = machine.name
        try:
            self._lab.change_nic(machine)
            if self._paces:
                self._paces[name].close()
                # It knows the new NIC.
                self._paces[name] = self._lab.paces(name)
                self._pace(name, self._set[name])
        except RunError as error:  # a callback of the loop loses it
            self._failure = self._failure or error

    def check(self) -> None:
        """Raise RunError if a NIC could not be changed, or its machine has gone."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Let go of the timer and the sockets."""
        with contextlib.suppress(AttributeError):  # the run had not begun
            self._alarm.close()
        for paces in self._paces.values():
            paces.close()


#: Rate policies that kernel NICs carry out by themselves.
SHARED_BY_KERNEL = ("maxmin", "none")
_MOST_EDGES = 4096
#: Wall seconds between two looks for agents that have ended.
_LOOK = 0.25


def check_network(scenario: Scenario) -> None:
    """Refuse links that are no NICs, and rates that are not assigned there.

    Raises ScenarioError, which names the key.
    """
    if scenario.emulation.network == "kernel":
        for key, problem in _network_problems(scenario).items():
            raise ScenarioError(problem, key=key)


def _network_problems(scenario: Scenario) -> dict[str, str]:
    """Return by key what kernel NICs cannot be asked for, and what can."""
    emulation = scenario.emulation
    policy = scenario.schedule.rule
    problems: dict[str, str] = {}
    for key in ("links", "routes", "racks"):
        if getattr(scenario.cluster, key):
            problems[f"cluster.{key}"] = (
                "is for simulations and runs with network: userspace; the "
                "kernel joins machines by their NICs alone, remove it"
            )
    possible = {}
    for number, event in enumerate(scenario.events):
        if event.cut is not None:
            key = f"events[{number}].cut"
            possible[key] = f"slow: {event.cut}, direction: both, by: 100"
    if scenario.failures is not None and scenario.failures.cuts:
        possible["failures.machine.what"] = "what: pause"
    for key, example in possible.items():
        problems[key] = (
            "no limit of the kernel lets nothing through: write for example "
            f"{example}, or network: userspace"
        )
    if emulation.flow_ends == "fluid":
        problems["emulation.flow_ends"] = (
            "is fluid, but on kernel NICs no rate says when a flow would end: "
            "state arrival, or network: userspace"
        )
    if emulation.catch_up != "unlimited":
        problems["emulation.catch_up"] = (
            "is the depth of the buckets of senders, but on kernel NICs these "
            "are not paced: remove it, or state network: userspace"
        )
    if emulation.sharing != "assigned" and policy not in SHARED_BY_KERNEL:
        problems["schedule.policy"] = (
            f"is {policy}, but kernel NICs share by themselves, max-min: state "
            "maxmin, or emulation.sharing: assigned, or network: userspace"
        )
    return problems


def burst_of(scenario: Scenario) -> tuple[float, float]:
    """Return the burst let go by two NICs on the way: wall seconds, or real bytes.

    Each lets its burst go and, as its bucket is not empty by then, one more segment,
    which is as large or a packet; with assigned rates both are two packets at least.
    At 625 kB/s a flow of 38 kB came 10.3 kB ahead of the rate then.
    """
    if scenario.emulation.network != "kernel":
        return 0.0, 0.0
    packets = 2 if scenario.emulation.sharing == "assigned" else 1
    return 4 * BURST, 4 * packets * SMALLEST_SEGMENT


class LabLauncher(Launcher):
    """Starts an agent in every machine of a lab: its hosts are the machines."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.hosts = [machine.name for machine in lab.machines]

    @override
    async def start(
        self,
        address: tuple[str, int],
        token: str,
        log: Path,
        allow: Collection[str],
    ) -> None:
        """Start the agents; their processes take data at the limited NICs.

        Raises RunError when one cannot be started.
        """
        host, port = address
        # Process ids repeat among machines, so scratch is of the machine, too.
        private = {"EMU_TOKEN": token, "TMPDIR": "/dev/shm"}  # noqa: S108
        environment = {**os.environ, **private}

        with log.open("ab") as output:
            for name in self.hosts:
                own_address = self._lab.address(name)
                command = module_command("emu.emulation.launch", f"{host}:{port}")
                command += ["--name", name, "--bind", own_address]
                self._lab.start(
                    name,
                    command,
                    environment=environment,
                    output=output.fileno(),
                )

    @override
    async def wait_for_end(self) -> str:
        """Wait until an agent has ended, or its machine, and return how, in words."""
        while True:
            try:
                end = self._lab.wait(0.0)
            except RunError as error:
                return str(error)
            if end:
                first = end[0]
                words = describe_end(first.code or 0)
                return f"the agent of {first.machine} {words}"
            await asyncio.sleep(_LOOK)


def emulate_on_kernel(
    problem: Problem,
    policy: str,
    settings: RunSettings,
    expected: Realization,
    *,
    sharing: Sharing,
    max_nic_error: float = MOST_OFF,
    log: Path,
    observer: Observer | None = None,
) -> EmulatedRun:
    """Run a problem on kernel NICs; the other parameters are those of `emulate`.

    NICs are measured before anything starts, and may be off by ``max_nic_error``. The
    schedule holds rates only where some were assigned; hosts hold what their NICs
    carried beforehand, and what their TCP counted. Raises RunError when the run could
    not be finished, or this computer cannot hold machines. Raises ScenarioError when a
    NIC at these scales is one that no kernel, or not this host, carries.
    """
    per_second = settings.byte_scale / settings.time_scale
    changes = list_nic_changes(problem, per_second)
    lab = _lab(problem, per_second, sharing, changes)
    by_rates = sharing is Sharing.ASSIGNED
    assigned = problem if by_rates else None
    with (
        lab,
        contextlib.closing(lab.listen()[1]) as listening,
        contextlib.closing(LabNics(lab, changes, assigned, per_second)) as nics,
    ):
        check = _checked_nics(lab, max_nic_error)
        lab_settings = dataclasses.replace(
            settings,
            launcher=LabLauncher(lab),
            host_of={machine.name: machine.name for machine in lab.machines},
            listening=listening,
            kernel_nics=nics,
        )
        run = emulate(
            # Where TCP shares no rate of ours may stand in its way.
            problem if by_rates else _without_shaping(problem),
            policy if by_rates else "none",
            lab_settings,
            expected,
            log=log,
            observer=observer,
        )
        # A callback of the loop could not raise what it met.
        nics.check()
        counts = _read_counts(lab, check, time.monotonic() - nics.began)

    rates = run.schedule.rates if by_rates else None
    return dataclasses.replace(
        run,
        schedule=dataclasses.replace(run.schedule, problem=problem, rates=rates),
        perturbed=run.realization,
        hosts=[{**host, **counts[host["name"]]} for host in run.hosts],
        startup={**run.startup, "nics": check.seconds},
    )


def _read_counts(lab: Lab, check: NicCheck, seconds: float) -> dict[str, _Counts]:
    """Return what every machine's kernel has counted in so many wall seconds."""
    tcp = lab.counters.tcp()
    traffic = lab.counters.traffic()
    counts: dict[str, _Counts] = {}
    for name in tcp:
        counts[name] = {
            "tcp": tcp[name],
            "nic": check.shares[name],
            "traffic": {**traffic[name], "seconds": seconds},
        }
    return counts


def _checked_nics(lab: Lab, max_error: float) -> NicCheck:
    """Measure the NICs of a lab; ScenarioError where one is off by more."""
    check = lab.check_nics(max_error)
    if refusal := check.refusal("emulation.max_nic_error"):
        slower = "a larger time_scale makes NICs slower"
        raise ScenarioError(f"{refusal}; {slower}", key="emulation.time_scale")
    return check


def _lab(
    problem: Problem,
    per_second: float,
    sharing: Sharing,
    changes: Iterable[tuple[float, LabMachine]],
) -> Lab:
    edges = problem.job.edges
    if len(edges) > _MOST_EDGES:
        raise RunError(f"more than {_MOST_EDGES} edges have no leaf of their own")
    machines = []
    for machine in problem.cluster.machines:
        nic_out = machine.bandwidth_out * per_second
        nic_in = machine.bandwidth_in * per_second
        lab_machine = LabMachine(machine.name, nic_out, nic_in)
        machines.append(lab_machine)

    names = [machines[number].name for number in problem.placement.machine_of]
    ends = [(names[edge.source], names[edge.destination]) for edge in edges]
    try:
        lab = Lab(machines, sharing=sharing, connections=ends)
        for _, changed in changes:
            # A rate that no kernel carries is refused now, not in the middle of a run.
            lab.plans(changed)
    except ValueError as error:
        raise ScenarioError(
            f"{error}, wall and real: choose time_scale and byte_scale so that NICs "
            "times byte_scale / time_scale are in it",
            key="emulation.time_scale",
        ) from error
    return lab


def _without_shaping(problem: Problem) -> Problem:
    """Return the problem with NICs at which the scheduler makes no flow wait."""
    cluster = problem.cluster
    machines = []
    for machine in cluster.machines:
        fast = dataclasses.replace(
            machine,
            bandwidth_in=machine.bandwidth_in * UNSHAPED,
            bandwidth_out=machine.bandwidth_out * UNSHAPED,
        )
        machines.append(fast)

    fast_cluster = Cluster(
        tuple(machines),
        tuners=cluster.tuners,
        speed_changes=cluster.speed_changes,
    )
    return Problem(fast_cluster, problem.job, problem.placement)
