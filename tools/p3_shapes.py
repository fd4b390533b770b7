#!/usr/bin/env python3
"""P3's evaluation (OSDI 2021, section 5) as seen here: the paper beside simulation.

    python tools/p3_shapes.py [--scale S] [--out FILE]

Four machines with 10 Gbit/s. One number is calibrated: the rate at which a GPU
computes, so that data parallel training on products computes for a fifth of the time at
a hidden width of 32. The time of a phase is its arithmetic over that rate. Graphs are
made up; ``--scale`` is the share of the published products.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emu.atomic_file import write_atomic
from emu.experiment.systems import as_system
from emu.graph_data import BatchPlan, open_for, sampled_counts
from emu.problem import Placement, Problem
from emu.scenario import Scenario, prepare
from emu.scenario.scenario_file import load, loads
from emu.simulation import makespan
from emu.systems.p3.job import PIPELINES, Pipeline, p3_job
from emu.systems.p3.section import P3JobSection
from emu.systems.p3.volumes import p3_realization, split_model
from emu.units import DURATION

if TYPE_CHECKING:
    from emu.workloads import SampleCounts

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
Row = tuple[str, str, str]


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


class Study:
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

    def counts(self, changes: Changes) -> list[SampleCounts]:
        """Return what all machines sample."""
        return self._counts(self._scenario(changes))

    def _counts(self, scenario: Scenario) -> list[SampleCounts]:
        settings = scenario.to_job().settings
        plan = BatchPlan.from_settings(settings)
        counts = sampled_counts(open_for(settings), plan, settings["batches"])
        return [one for own in counts for one in own]

    def timed(self, changes: Changes, system: str, *, free: bool = False) -> Scenario:
        """Return the scenario as a system, with the times that its arithmetic takes."""
        scenario = self._scenario(changes)
        phases = dict.fromkeys(PHASES, 0.0) if free else self._phases(scenario)
        times = {kind: DURATION.exact(time) for kind, time in phases.items()}
        stated = load(scenario, {"job.times": {"sampler": "0 s", **times}})
        return as_system(stated, system)

    def phase_times(self) -> dict[str, float]:
        """Return kind -> seconds as the setting is."""
        return {"sampler": 0.0, **self._phases(self._scenario({}))}

    def seconds(self, changes: Changes, system: str, *, free: bool = False) -> float:
        """Return the makespan; ``free``: without computation."""
        ready = prepare(self.timed(changes, system, free=free))
        return makespan(ready.problem, ready.realization, ready.policy)

    def gain(self, changes: Changes) -> float:
        """Return how many times as fast as data parallel training P3 is."""
        return self.seconds(changes, "data_parallel") / self.seconds(changes, "p3")

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


def graph_rows(study: Study) -> list[Row]:
    """Return what the paper measured on other graphs and models, and the same here."""
    graphs: list[Changes] = [
        {"job.dataset.scale": study.base.to_json()["job"]["dataset"]["scale"] / 4},
        {},
        {"job.dataset": {"name": "papers100m-like", "scale": 0.005}},
    ]
    whole = {"job.fanouts": "all", "job.batch_size": 100, "job.iterations": 3}
    lengths = [{"job.dataset.feature_length": length} for length in (16, 128, 512)]
    epochs = [study.seconds(one, "p3") for one in lengths]
    layers: list[Changes] = [
        {"job.model.layers": count, "job.fanouts": fanouts(count)}
        for count in (2, 3, 4)
    ]
    hidden = [{"job.model.hidden": width} for width in (16, 32, 64, 96, 128)]
    return [
        ("graphs: a quarter of products, products, papers100M", "2.1 to 5.4 x, growing",
         times([study.gain(one) for one in graphs])),
        ("without sampling", "6.5 to 7.7 x", times([study.gain(whole)])),
        ("features 16, 128, 512: P3's epoch", "doubles at most",
         times([epoch / epochs[0] for epoch in epochs])),
        ("features 16, 128, 512: gain", "up to 4.8 x",
         times([study.gain(one) for one in lengths])),
        ("layers 2, 3, 4", "up to 6.1 x", times([study.gain(one) for one in layers])),
        ("hidden 16, 32, 64, 96, 128: gain", "below 1 near 100 features",
         times([study.gain(one) for one in hidden])),
    ]  # fmt: skip


def machine_rows(study: Study) -> list[Row]:
    """Return what the paper measured of pipeline, copies and machines."""
    plain, piped = (
        study.seconds({"job.pipeline": name}, "p3") for name in ("none", "A")
    )
    cached = [study.seconds({"job.cache": count}, "p3") for count in (4, 2)]
    counts = (1, 2, 4)

    def grown(system: str) -> str:
        spans = [
            study.seconds({"cluster.machines[0].count": count}, system)
            for count in counts
        ]
        pairs = zip(counts, spans, strict=True)
        return times([count * spans[0] / span for count, span in pairs])

    busy = f"{study.busy('data_parallel'):.0%}, {study.busy('p3'):.0%}"
    return [
        ("pipeline A against none", "30 to 50 %", f"{plain / piped - 1:.0%}"),
        ("groups of 2 with a copy each", "up to 1.7 x", times([cached[0] / cached[1]])),
        ("1, 2, 4 machines: throughput of P3", "nearly linear", grown("p3")),
        ("1, 2, 4 machines: of data parallel", "flat", grown("data_parallel")),
        ("GPU busy: data parallel, P3", "20 %, 85 %", busy),
    ]


def cause_rows(study: Study) -> list[Row]:
    """Return what stands behind the shapes that are not the paper's."""
    reached = []
    for count in (2, 3, 4):
        own = study.counts({"job.model.layers": count, "job.fanouts": fanouts(count)})
        inputs = np.mean([one.inputs for one in own])
        outputs = np.mean([one.outputs for one in own])
        reached.append(f"{inputs:,.0f} / {outputs:,.0f} = {inputs / outputs:.1f}")
    long: Changes = {"job.dataset.feature_length": 512}
    fast: Changes = {"cluster.machines[0].nic": "10000 Gbit/s"}

    machines: list[Changes] = [{"cluster.machines[0].count": n} for n in (2, 4)]

    def alone(of: Changes) -> tuple[str, str]:
        whole = study.seconds(of, "p3")
        computing = study.seconds({**of, **fast}, "p3")
        sending = study.seconds(of, "p3", free=True)
        return f"{computing / whole:.0%}", f"{sending / whole:.0%}"

    two, four = (1000 * study.seconds(one, "p3", free=True) for one in machines)
    return [
        ("layers 2, 3, 4: #S_0 / #S_1", "; ".join(reached), ""),
        ("of P3's epoch: computation alone, network alone", *alone({})),
        ("the same with 512 features", *alone(long)),
        ("2, 4 machines: P3's network alone", f"{two:.1f} ms", f"{four:.1f} ms"),
    ]


def own_rows(study: Study) -> list[Row]:
    """Return what the paper leaves open: shares of columns, and rules."""
    uneven: Changes = {
        "cluster.machines": [
            {"count": 2, "nic": "50 Gbit/s"},
            {"count": 2, "nic": "10 Gbit/s"},
        ]
    }
    shares = {
        slow: study.seconds({**uneven, "job.columns": [1.0, 1.0, slow, slow]}, "p3")
        for slow in (0.0, 0.01, *(share / 10 for share in range(1, 11)))
    }
    best = min(shares, key=shares.__getitem__)
    rules = ("oes", "maxmin", "mrtf", "omcoflow", "sebf_madd")
    by_rule = {
        rule: study.seconds({**uneven, "schedule.policy": rule}, "p3") for rule in rules
    }
    said = ", ".join(f"{rule} {by_rule[rule] / by_rule['oes']:.3f}" for rule in rules)
    return [
        (
            "shares of columns on 50/50/10/10 Gbit/s",
            "even",
            f"1 : 1 : {best:g} : {best:g}, {shares[1.0] / shares[best]:.2f} x of even",
        ),
        ("rules on the same, time against oes", "", said),
    ]


def orders() -> list[Pipeline]:
    """Return every static order with up to 4 mini-batches under way."""
    found = []
    for order in itertools.permutations(PIPELINES["A"].order):
        for later in itertools.combinations_with_replacement(range(4), 3):
            try:
                found.append(Pipeline(order, (0, *later)))
            except ValueError:  # a phase before the one that it needs
                continue
    return found


def order_rows(study: Study) -> list[tuple[str, str, str]]:
    """Return the fastest static order for every number of updates missed."""
    scenario = study.timed({}, "p3")
    job, batches = scenario.to_job(), study.batches
    if not isinstance(scenario.job, P3JobSection):
        raise TypeError("not P3's")
    dataset = open_for(job.settings)
    config = scenario.job.config(scenario.build_context(dataset.train_count))
    counts = sampled_counts(dataset, BatchPlan.from_settings(job.settings), batches)
    model = split_model(
        job.settings["model"], dataset.feature_length, dataset.classes, 4
    )
    cluster = scenario.to_cluster()
    best: dict[int, tuple[float, Pipeline]] = {}
    spans: dict[Pipeline, float] = {}
    for pipeline in orders():
        one = replace(config, pipeline=pipeline)
        built = p3_job(one)
        places = tuple(cluster.index(str(task.pinned)) for task in built.tasks)
        realized = p3_realization(one, study.phase_times(), counts, model)
        problem = Problem(cluster, built, Placement(places))
        span = spans[pipeline] = makespan(problem, realized, "oes")
        if pipeline.missed not in best or span < best[pipeline.missed][0]:
            best[pipeline.missed] = span, pipeline
    stated = {name: spans[PIPELINES[name]] for name in PIPELINES}
    rows = [
        (f"{missed}", f"{DURATION.format(span)}", _named(pipeline))
        for missed, (span, pipeline) in sorted(best.items())
    ]
    rows += [
        (f"{PIPELINES[name].missed}", DURATION.format(span), f"the paper's {name}")
        for name, span in stated.items()
    ]
    return rows


def _named(pipeline: Pipeline) -> str:
    behind = dict(zip(PIPELINES["A"].order, pipeline.behind, strict=True))
    return " ".join(
        f"{phase}(c-{behind[phase]})" if behind[phase] else f"{phase}(c)"
        for phase in pipeline.order
    )


def table(head: Row, rows: list[Row]) -> str:
    """Return a table in Markdown."""
    lines = [head, ("---",) * 3, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    study = Study(arguments.scale)
    text = "\n".join(
        [
            f"A GPU computes {study.rate / 1e12:.3g} Tflop/s by the calibration.\n",
            table(("shape", "paper", "here"), graph_rows(study) + machine_rows(study)),
            table(("behind them", "", ""), cause_rows(study)),
            table(("beyond the paper", "its choice", "here"), own_rows(study)),
            table(("updates missed", "makespan", "fastest order"), order_rows(study)),
        ]
    )
    sys.stdout.write(text)
    if arguments.out is not None:
        write_atomic(arguments.out, text)


if __name__ == "__main__":
    main()
