"""Drawn jobs as ns-3 carries them, against max-min rates and the forecast of queues.

    tools/study packets OUT [--scenarios N] [--incasts N] [--first SEED] [--wall S]

N drawn scenarios, those of `tools/study kernel`, and N drawn incasts go over packets at
the scale at which kernel NICs would carry them, ``fair`` and ``tcp``, by cubic and
reno. Each makespan is held against that of max-min rates. Under ``tcp`` those of which
`emu.prediction.analysis.link_load` says beforehand that rates hold stand apart: the
exit status is 1 where one of these is more than 5 % off.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emu.errors import EmulatorError
from emu.prediction.analysis.full_queues import full_queues
from emu.prediction.packets import Control, Shares, missing_ns3, simulate_packets
from emu.prediction.simulation import makespan, simulate
from emu.problem import Cluster, Edge, Job, Machine, Placement, Problem, Realization
from emu.problem import Task as Node
from emu.scenario import prepare
from tools.runner import Study, Work, distribution, heading
from tools.studies.kernel import FASTEST, changed, drawn, first_seed

#: Share by which a forecast that rates hold must not be off.
_WRONG = 0.05


@dataclass(frozen=True)
class Carried:
    """One job over packets.

    Parameters
    ----------
    fluid, error
        Makespan under max-min rates, seconds, and that of packets over it, minus 1.
    dropped
        Packets that queues dropped.
    waits, holds
        Forecast of `full_queues`, made of the rates alone.
    """

    case: str
    sharing: str
    control: str
    fluid: float
    error: float
    dropped: int
    waits: float
    holds: bool

    @property
    def wrong(self) -> bool:
        """True where rates were forecast to hold and did not."""
        return self.sharing == "tcp" and self.holds and abs(self.error) > _WRONG


def options(parser: ArgumentParser) -> None:
    """Add what is drawn."""
    add = parser.add_argument
    add("--scenarios", type=int, default=100)
    add("--incasts", type=int, default=50)
    add("--first", type=int, help="first seed; default is of the commit's date")
    add("--wall", type=float, default=3.0, help="seconds per run")


def work(options: Namespace) -> Iterator[Work[Carried]]:
    """Yield every job.

    Raises EmulatorError when ns-3 is missing.
    """
    if needs := missing_ns3():
        raise EmulatorError(needs)
    first = first_seed() if options.first is None else options.first
    for seed in range(first, first + options.scenarios):
        yield f"drawn-{seed}", partial(one, f"drawn-{seed}", seed, options.wall)
    for seed in range(first, first + options.incasts):
        yield f"incast-{seed}", partial(one, f"incast-{seed}", seed, options.wall)


def one(case: str, seed: int, wall: float) -> list[Carried]:
    """Return the rows of a job, under every kind of queue and TCP."""
    draw = incast if case.startswith("incast") else as_on_nics
    problem, run = draw(seed, wall)
    rates = simulate(problem, run, "maxmin")
    known = full_queues(rates, time_scale=1.0, byte_scale=1.0)
    rows = []
    for sharing in Shares:
        for control in Control:
            packets = simulate_packets(problem, run, sharing=sharing, control=control)
            rows.append(
                Carried(
                    case,
                    sharing.value,
                    control.value,
                    rates.makespan,
                    packets.schedule.makespan / rates.makespan - 1,
                    packets.dropped,
                    known.waits,
                    known.holds,
                )
            )
    return rows


def as_on_nics(seed: int, wall: float) -> tuple[Problem, Realization]:
    """Return a drawn scenario in wall seconds and bytes that kernel NICs would carry.

    Raises EmulatorError when preparing it fails.
    """
    experiment = prepare(changed(drawn(seed), "maxmin"))
    problem, run = experiment.problem, experiment.realization
    time_scale = wall / experiment.simulate().makespan
    fastest = max(
        max(m.bandwidth_in, m.bandwidth_out) for m in problem.cluster.machines
    )
    byte_scale = FASTEST * time_scale / fastest
    machines = tuple(
        replace(
            machine,
            bandwidth_in=machine.bandwidth_in * byte_scale / time_scale,
            bandwidth_out=machine.bandwidth_out * byte_scale / time_scale,
        )
        for machine in problem.cluster.machines
    )
    cluster = replace(problem.cluster, machines=machines)
    return (
        Problem(cluster, problem.job, problem.placement),
        Realization(run.times * time_scale, run.volumes * byte_scale),
    )


def incast(seed: int, wall: float) -> tuple[Problem, Realization]:
    """Return machines that send to one at once, again and again, and get an answer."""
    rng = np.random.default_rng([seed, 1])
    count, iterations = int(rng.integers(2, 17)), int(rng.integers(3, 20))
    sink = FASTEST * 10 ** rng.uniform(-1.5, 0.0)
    fast = sink * 10 ** rng.uniform(-1.2, 1.0)
    out = np.minimum(fast * rng.choice([1, 1, 0.5, 0.2], count), FASTEST)
    machines = [Machine(f"m{m}", FASTEST, float(rate)) for m, rate in enumerate(out)]
    machines.append(Machine("sink", sink, FASTEST))
    edges = [Edge(m, count) for m in range(count)]
    if rng.random() < 0.7:
        edges += [Edge(count, m, 1) for m in range(count)]
    problem = Problem(
        Cluster(tuple(machines)),
        Job(
            tuple(Node(f"t{t}", "task") for t in range(count + 1)),
            tuple(edges),
            iterations,
        ),
        Placement(tuple(range(count + 1))),
    )
    share = rng.uniform(0.2, 0.9)
    volumes = rng.choice([1, 1, 0.3, 3], (len(edges), 1)) * 1e6
    volumes = volumes * rng.lognormal(0, 0.2, (len(edges), iterations))
    idle = np.zeros((count + 1, iterations))
    volumes *= wall * share / makespan(problem, Realization(idle, volumes), "maxmin")
    volumes[count:] = 1000.0
    return problem, Realization(idle + (1 - share) * wall / iterations, volumes)


def table(rows: list[Carried], _: Namespace) -> Iterator[str]:
    """Yield distributions of the makespan error, by queues, TCP and forecast."""
    yield heading("|packets over rates - 1|, %", "jobs")
    for sharing in Shares:
        for control in Control:
            mine = [r for r in rows if (r.sharing, r.control) == (sharing, control)]
            parts = {"": mine}
            if sharing is Shares.TCP:
                parts["holds"] = [row for row in mine if row.holds]
                parts["fills"] = [row for row in mine if not row.holds]
            for name, some in parts.items():
                title = f"{sharing}, {control} {name}".strip()
                yield distribution(title, [abs(row.error) for row in some])
    over = [r for r in rows if r.sharing == "tcp" and abs(r.error) > _WRONG]
    found = sum(not row.holds for row in over)
    yield f"over {_WRONG:.0%} off under tcp: {len(over)}, foreseen: {found}"


STUDY = Study(
    row=Carried,
    work=work,
    table=table,
    options=options,
    line=lambda row: f"{row.case:24} {row.fluid:7.3f} s {100 * row.error:+8.2f} %",
    settled=("wall",),
    wrong=lambda rows: any(row.wrong for row in rows),
)
