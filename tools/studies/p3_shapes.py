"""P3's evaluation (OSDI 2021, section 5) as seen here: the paper beside simulation.

    tools/study p3_shapes OUT [--scale S]

Four machines with 10 Gbit/s. One number is calibrated: the rate at which a GPU
computes, so that data parallel training on products computes for a fifth of the time at
a hidden width of 32. The time of a phase is its arithmetic over that rate. Graphs are
made up; ``--scale`` is the share of the published products.
"""

from __future__ import annotations

import itertools
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from emu.experiment.systems import as_system
from emu.graph_data import BatchPlan, count_samples, open_for
from emu.prediction.simulation import makespan
from emu.problem.workloads import SampleCounts
from emu.scenario import Scenario, prepare
from emu.scenario.scenario_file import load, loads
from emu.units import DURATION
from tools.runner import Study, Work

TEXT = """\
cluster:
  machines: [{{count: 4, nic: 10 Gbit/s}}]
job:
  system: p3
  dataset: {{name: products-like, scale: {scale}}}
  model: {{hidden: 32, layers: 2}}
  fanouts: [10, 25]
  batch_size: 250
  iterations: 12
  push: derived
  times:
    {{sampler: 0 s, model_forward: 0 s, data_forward: 0 s, data_backward: 0 s,
     model_backward: 0 s}}
emulation: {{compute: timed}}
"""
#: Share of the time in which data parallel training computes, at the calibrated point.
BUSY = 0.2
PHASES = ("model_forward", "data_forward", "data_backward", "model_backward")
Changes = dict[str, Any]
#: What is compared, what the paper states, and what is found here.
Line = tuple[str, str, Callable[[], str]]


@dataclass(frozen=True)
class Shape:
    """A line of the table; ``case`` is what is compared."""

    case: str
    paper: str
    here: str


def forward_work(one: SampleCounts, widths: list[int]) -> list[float]:
    """Return the operations of every layer's forward pass of one mini-batch."""
    sizes = [one.inputs, *(sum(owned) for owned in one.frontier_owned[::-1])]
    edges = [sum(owned) for owned in one.answered[::-1]]
    work = []
    for layer, (before, after) in enumerate(itertools.pairwise(widths)):
        outer, inner, count = sizes[layer], sizes[layer + 1], edges[layer]
        rows = outer if before > after else inner  # the shorter vectors are aggregated
        linear = 2.0 * (rows + inner) * before * after
        work.append(linear + 2.0 * count * min(before, after))
    return work


class Setting:
    """The setting, with what was calibrated."""

    def __init__(self, scale: float) -> None:
        self.base = loads(TEXT.format(scale=scale))
        self.rate = 1.0
        seconds = self.seconds({}, "data_parallel", free=True)
        computing = sum(self._phases(self._scenario({})).values())
        self.rate = computing / (BUSY * seconds / self.batches)

    @property
    def batches(self) -> int:
        """Mini-batches of each machine."""
        return self.base.job.iterations or 1

    def _scenario(self, changes: Changes) -> Scenario:
        return load(self.base, changes)

    def _phases(self, scenario: Scenario) -> dict[str, float]:
        """Return the seconds of each phase, the mean over the sampled mini-batches."""
        settings = scenario.to_job().settings
        dataset, model = open_for(settings), settings["model"]
        hidden = [model["hidden"]] * (model["layers"] - 1)
        widths = [dataset.feature_length, *hidden, dataset.classes]
        every = [forward_work(one, widths) for one in self._counts(scenario)]
        first, *rest = np.mean(every, axis=0) / self.rate
        upper = float(sum(rest))
        # Nothing before layer 1 learns: its backward pass has no gradient of inputs.
        times = (float(first), upper, 2 * upper, float(first))
        return dict(zip(PHASES, times, strict=True))

    def _counts(self, scenario: Scenario) -> list[SampleCounts]:
        settings = scenario.to_job().settings
        plan = BatchPlan.from_settings(settings)
        counts = count_samples(open_for(settings), plan, settings["batches"])
        return [one for own in counts for one in own]

    def timed(self, changes: Changes, system: str, *, free: bool = False) -> Scenario:
        """Return the scenario as a system, with the times that its arithmetic takes."""
        scenario = self._scenario(changes)
        phases = dict.fromkeys(PHASES, 0.0) if free else self._phases(scenario)
        times = {kind: DURATION.exact(time) for kind, time in phases.items()}
        stated = load(scenario, {"job.times": {"sampler": "0 s", **times}})
        return as_system(stated, system)

    def seconds(self, changes: Changes, system: str, *, free: bool = False) -> float:
        """Return the makespan; ``free``: without computation."""
        ready = prepare(self.timed(changes, system, free=free))
        return makespan(ready.problem, ready.realization, ready.policy)

    def gains(self, *changes: Changes) -> Callable[[], str]:
        """Return what finds how many times as fast as data parallel training P3 is."""
        return lambda: times(
            [self.seconds(c, "data_parallel") / self.seconds(c, "p3") for c in changes]
        )

    def over(self, one: Changes, other: Changes) -> float:
        """Return P3's makespan of one setting over that of another."""
        return self.seconds(one, "p3") / self.seconds(other, "p3")

    def grown(self, system: str) -> str:
        """Return the throughput of 1, 2 and 4 machines over that of one."""
        counts, key = (1, 2, 4), "cluster.machines[0].count"
        spans = [self.seconds({key: count}, system) for count in counts]
        pairs = zip(counts, spans, strict=True)
        return times([count * spans[0] / span for count, span in pairs])

    def busy(self, system: str) -> float:
        """Return the share of the time in which GPUs compute."""
        work = sum(self._phases(self._scenario({})).values()) * self.batches
        return work / self.seconds({}, system)


def times(values: list[float]) -> str:
    """Return gains such as ``2.1, 3.4 x``."""
    return ", ".join(f"{value:.2f}" for value in values) + " x"


def fanouts(layers: int) -> list[int]:
    """Return 10 neighbours per hop, 25 of the seeds."""
    return [10] * (layers - 1) + [25]


def shapes(study: Setting) -> Iterator[Line]:
    """Yield what the paper measured of graphs and models."""
    graphs: list[Changes] = [
        {"job.dataset.scale": study.base.to_json()["job"]["dataset"]["scale"] / 4},
        {},
        {"job.dataset": {"name": "papers100m-like", "scale": 0.005}},
    ]
    whole: Changes = {"job.fanouts": "all", "job.batch_size": 100, "job.iterations": 3}
    lengths = [{"job.dataset.feature_length": length} for length in (16, 128, 512)]
    layers: list[Changes] = [
        {"job.model.layers": count, "job.fanouts": fanouts(count)}
        for count in (2, 3, 4)
    ]
    hidden = [{"job.model.hidden": width} for width in (16, 32, 64, 96, 128)]
    what = "graphs: a quarter of products, products, papers100M"
    yield what, "2.1 to 5.4 x, growing", study.gains(*graphs)
    yield "without sampling", "6.5 to 7.7 x", study.gains(whole)
    yield (
        "features 16, 128, 512: P3's epoch",
        "doubles at most",
        lambda: times([study.over(one, lengths[0]) for one in lengths]),
    )
    yield "features 16, 128, 512: gain", "up to 4.8 x", study.gains(*lengths)
    yield "layers 2, 3, 4", "up to 6.1 x", study.gains(*layers)
    what = "hidden 16, 32, 64, 96, 128: gain"
    yield what, "below 1 near 100 features", study.gains(*hidden)
    yield from machine_shapes(study)


def machine_shapes(study: Setting) -> Iterator[Line]:
    """Yield what the paper measured of pipeline, copies and machines."""
    yield (
        "pipeline A against none",
        "30 to 50 %",
        lambda: (
            f"{study.over({'job.pipeline': 'none'}, {'job.pipeline': 'A'}) - 1:.0%}"
        ),
    )
    yield (
        "groups of 2 with a copy each",
        "up to 1.7 x",
        lambda: times([study.over({"job.cache": 4}, {"job.cache": 2})]),
    )
    what = "1, 2, 4 machines: "
    yield f"{what}throughput of P3", "nearly linear", lambda: study.grown("p3")
    yield f"{what}of data parallel", "flat", lambda: study.grown("data_parallel")
    yield (
        "GPU busy: data parallel, P3",
        "20 %, 85 %",
        lambda: f"{study.busy('data_parallel'):.0%}, {study.busy('p3'):.0%}",
    )


def options(parser: ArgumentParser) -> None:
    """Add the size of the graphs."""
    parser.add_argument("--scale", type=float, default=0.1, help="share of products")


def work(options: Namespace) -> Iterator[Work[Shape]]:
    """Yield every line of the tables."""
    study = Setting(options.scale)
    rate = f"{study.rate / 1e12:.3g} Tflop/s"
    yield "a GPU computes", lambda: [Shape("a GPU computes", "", rate)]
    for case, paper, find in shapes(study):
        yield case, partial(one, case, paper, find)


def one(case: str, paper: str, find: Callable[[], str]) -> list[Shape]:
    """Return a line."""
    return [Shape(case, paper, find())]


def table(rows: list[Shape], _: Namespace) -> Iterator[str]:
    """Yield all lines as one table in Markdown."""
    yield "| shape | paper | here |\n| --- | --- | --- |"
    for row in rows:
        yield f"| {row.case} | {row.paper} | {row.here} |"


STUDY = Study(row=Shape, work=work, table=table, options=options, settled=("scale",))
