"""Every system to one accuracy over sockets, against its prediction: times and ranks.

    tools/study campaign OUT [--only "four amazon"] [--seeds 3] [--steps 40] [--kernel]

Six systems train on three graphs and two clusters, each on the machines on which it is
fastest (`emu compare --systems --to`). Every job is simulated to the target; its first
steps, all of them where --steps allows, run over sockets at a scale of its own choice.

Needs EMU_DATA for the graphs of others.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import emu
from emu.experiment.system_rows import measure
from emu.experiment.systems import Target
from emu.scenario import Scenario, load, prepare
from emu.scenario.scenario_file import loads
from tools.runner import Study, Work, distribution, heading
from tools.studies.winners import content_of

SYSTEMS = ("dgtp", "distdgl", "data_parallel", "p3.none", "dgcl", "dorylus.pipe")
CLUSTERS = ("four", "two racks")
#: Accuracy that all of them reach, and passes that are tried, by graph.
GRAPHS = {
    "amazon_computers": (0.85, 150),
    "coauthor_physics": (0.93, 60),
    "products-like": (0.7, 60),
}
#: Of the fastest NIC, Gbit/s.
BANDWIDTH = 50
#: Keys of a run on NICs of the kernel, where max-min is what they come to.
KERNEL: dict[str, object] = {
    "emulation.network": "kernel",
    "emulation.sharing": "fair",
    "schedule.policy": "maxmin",
}
#: Two times are a tie where they differ by less.
TIE = 0.01


@dataclass(frozen=True)
class Confirmed:
    """One job: seconds to the target, and of the part that ran over sockets."""

    case: str
    setting: str
    system: str
    seed: int
    machines: int
    steps: int
    to_target: float
    ran: int
    scale: float
    expected: float
    emulated: float
    trust: str
    prediction: str

    @property
    def off(self) -> float:
        """The makespan error, a share."""
        return self.emulated / self.expected - 1

    @property
    def confirmed(self) -> float:
        """Seconds to the target where all of it is off like the part that ran."""
        return self.to_target * (1 + self.off)


def options(parser: ArgumentParser) -> None:
    """Add what is run."""
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="over sockets, at most")
    parser.add_argument("--kernel", action="store_true", help="NICs of the kernel")


def work(options: Namespace) -> Iterator[Work[Confirmed]]:
    """Yield every job."""
    seeds = range(1, options.seeds + 1)
    every = itertools.product(seeds, CLUSTERS, GRAPHS, SYSTEMS)
    for seed, cluster, graph, system in every:
        case = f"{cluster} {graph} {seed} {system}"
        yield case, partial(run, case, options, cluster, graph, seed, system)


def scenario_of(cluster: str, graph: str, seed: int) -> Scenario:
    """Return the file from which all rows of a setting are translated."""
    content = content_of(cluster, "products-like", BANDWIDTH, 100)
    if graph != "products-like":
        content["job"]["dataset"] = {"name": graph, "normalise": True}
    content["job"]["iterations"] = 40
    content |= {"name": graph, "seed": seed}
    return loads(json.dumps(content))


def run(
    case: str, options: Namespace, cluster: str, graph: str, seed: int, system: str
) -> list[Confirmed]:
    """Return the row of a job."""
    accuracy, within = GRAPHS[graph]
    scenario = scenario_of(cluster, graph, seed)
    row = measure(scenario, system, target=Target(accuracy, within=within))
    ready = prepare(row.scenarios[seed])
    steps = ready.problem.job.iterations
    length = "iterations" if hasattr(ready.scenario.job, "batch_size") else "epochs"
    part: dict[str, object] = KERNEL if options.kernel else {}
    if steps > options.steps:
        part = {**part, "until": None, f"job.{length}": options.steps}
    own = load(row.scenarios[seed], {**part, "emulation.time_scale": "auto"})
    with tempfile.TemporaryDirectory() as folder:
        content = emu.run(own, runs=folder).result
    return [
        Confirmed(
            case,
            f"{cluster} {graph}",
            system,
            seed,
            len(row.placing["machines"]),
            steps,
            row.makespan,
            content["iterations"],
            content["auto_scale"]["time_scale"],
            content["predicted_makespan"],
            content["makespan"],
            content["verdict"]["trust"],
            content["prediction"]["outcome"],
        )
    ]


def pairs(rows: list[Confirmed]) -> tuple[int, int]:
    """Return of how many pairs of systems both agree who is first, and how many are."""
    times = defaultdict[Any, dict[str, Confirmed]](dict)
    for row in rows:
        times[row.setting, row.seed][row.system] = row
    agreed = count = 0
    for jobs in times.values():
        for one, other in itertools.combinations(jobs.values(), 2):
            ratio = one.to_target / other.to_target
            if abs(ratio - 1) > TIE:
                count += 1
                agreed += (ratio > 1) == (one.confirmed > other.confirmed)
    return agreed, count


def table(rows: list[Confirmed], _: Namespace) -> Iterator[str]:
    """Yield what all rows come to, and the means of each setting and system."""
    yield heading("off, %, of", "jobs")
    sound = [row for row in rows if row.trust == "trusted"]
    yield distribution("all", (abs(row.off) for row in rows))
    yield distribution("trusted", (abs(row.off) for row in sound))
    agreed, count = pairs(rows)
    yield f"who is first of two: agreed in {agreed} of {count} pairs that are no ties"
    yield ""
    yield f"{'':46}{'machines':>9}{'steps':>7}{'scale':>8}{'ms':>10}{'off, %':>9}"
    groups = defaultdict[Any, list[Confirmed]](list)
    for row in rows:
        groups[row.setting, row.system].append(row)
    for (setting, system), some in groups.items():
        steps, scale, time, off = (
            float(np.mean(values))
            for values in (
                [row.steps for row in some],
                [row.scale for row in some],
                [1e3 * row.expected for row in some],
                [100 * row.off for row in some],
            )
        )
        trusted = sum(row.trust == "trusted" for row in some)
        yield (
            f"{setting + ' ' + system:46}{some[0].machines:>9}{steps:>7.0f}"
            f"{scale:>8.1f}{time:>10.2f}{off:>+9.3f}  {trusted} of {len(some)} trusted"
        )


STUDY = Study(
    row=Confirmed, work=work, table=table, options=options, settled=("steps", "kernel")
)
