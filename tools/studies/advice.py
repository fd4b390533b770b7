"""`emu advise` to an accuracy against an exhaustive grid, on drawn scenarios.

    tools/study advice OUT [--count 20] [--seed 0]

A grid has every row of ``compare --systems all`` on every set of the machines, with
every combination of batches, fan-outs, caches, sampling processes and learning rates;
`answer` alone says how long each takes. Only what cannot be the best is left out: what
takes longer than the best so far in as many steps as its training has taken elsewhere.
An advice is good that is within 3 % of the best of them; none may be worse than its
file. The exit status is 1 where one is, or fewer than 90 % are good.
"""

from __future__ import annotations

import argparse
import json
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from math import ceil, inf
from typing import Any

import numpy as np

from emu.errors import EmulatorError
from emu.experiment.advice import advise, find_target
from emu.experiment.prospects import Choice, Terms
from emu.experiment.question import Answer, Question, answer
from emu.experiment.row_figures import weights_of
from emu.experiment.systems import Target, list_variants, variant_named
from emu.scenario import Scenario
from emu.scenario.scenario_file import loads
from tests.testing.draw import Draw
from tools.runner import Study, Work

#: Share by which an advice may be slower than the best, and of advices that are not.
NEAR = 0.03
SHARE = 0.9
#: Learning rates of the grid.
RATES = (0.01, 0.03, 0.1)
#: Share of its time over a few steps that a whole training takes at least.
SAFE = 0.8


@dataclass(frozen=True)
class Trial:
    """Seconds to the target as advised, by the best of the grid, and as the file is."""

    case: str
    advised: float
    best: float
    stated: float
    cpu: float
    tried: int
    advice: str
    winner: str


def draw_file(seed: int) -> dict[str, Any]:
    """Return a file of up to three machines of two kinds, and one mini-batch job."""
    draw = Draw(seed)
    machines: list[dict[str, Any]] = []
    for name in draw.some(["a", "b"], 1):
        rate = draw.one("1 Gbit/s", "5 Gbit/s", "10 Gbit/s", "50 Gbit/s")
        nic = {"in": rate, "out": rate, "latency": draw.one("0 us", "50 us", "500 us")}
        machine = {"name": name, "count": draw.count(1, 2), "nic": nic, "gpu": 1}
        machines.append(machine | draw.maybe(device="old"))
    rates: dict[str, Any] = {
        "aggregate": "20 ps",
        "multiply": draw.one("0.4 ps", "20 ps", "100 ps"),
        "sample": "30 ns",
        "collect": draw.one("20 ps", "200 ps"),
        "step": "0.5 ns",
        "launch": draw.one("5 us", "50 us"),
    }
    if any("device" in machine for machine in machines):
        rates["multiply"] = {"default": rates["multiply"], "old": "200 ps"}
    made_up = {"name": "products-like", "scale": draw.one(0.0007, 0.0015)}
    job = {
        "system": draw.one("dgtp", "data_parallel", "p3"),
        "dataset": draw.one(made_up, {"name": "cora", "normalise": True})
        | {"feature_length": draw.one(100, 400)},
        "model": {"kind": draw.one("gcn", "sage"), "hidden": 16, "layers": 2},
        "fanouts": draw.one([4, 4], [10, 10]),
        "batch_size": draw.one(16, 48),
        "iterations": draw.count(20, 60),
        "optimizer": {"name": "adam", "lr": draw.one(0.01, 0.03)},
        "rates": rates,
    }
    if job["system"] == "dgtp":
        job["workers"] = sum(machine["count"] for machine in machines)
    placement = {"iterations": 50}
    return {"cluster": {"machines": machines}, "job": job, "placement": placement}


def list_sets(scenario: Scenario) -> list[tuple[str, ...]]:
    """Return the sets of machines; equal machines are interchangeable."""
    places = dict(scenario.cluster.names_and_positions())
    by_kind = {
        tuple(places[name] for name in names): names
        for count in range(1, len(places) + 1)
        for names in combinations(places, count)
    }
    return [*by_kind.values()]


def list_settings(scenario: Scenario) -> Iterator[dict[str, object]]:
    """Yield every combination of a mini-batch job's settings, but for its rate."""
    job: Any = scenario.job
    columns = job.dataset.feature_length
    batches = [job.batch_size // 4, job.batch_size]
    fanouts = [[max(number // 2, 1) for number in job.fanouts], [*job.fanouts]]
    caches = [None, {"policy": "degree", "size": f"{1000 * columns} B"}]
    for batch, sample, cache, samplers in product(batches, fanouts, caches, (1, 2)):
        settings: dict[str, object] = {
            "job.batch_size": batch,
            "job.fanouts": sample,
            "job.cache": cache,
            "job.samplers_per_worker": samplers,
        }
        if cache is None:
            del settings["job.cache"]
        if samplers == 1:
            del settings["job.samplers_per_worker"]
        yield settings


def list_timed(scenario: Scenario) -> Iterator[Answer]:
    """Yield every row on every set of machines with all settings, for a few steps."""
    short = scenario.model_copy(update={"job": scenario.job.of_steps(12)})
    for row, machines in product(list_variants(["all"]), list_sets(scenario)):
        if variant_named(row).alone:
            continue
        for settings in list_settings(scenario):
            timed = answer(
                Question(
                    scenario=short,
                    row=row,
                    settings=settings,
                    machines=machines,
                    per_machine=True,
                )
            )
            if timed.refused is None:
                yield timed
                if timed.whole_graph:  # which has none of these settings
                    break


@dataclass
class Grid:
    """The best of all settings to a target, and how many were trained."""

    scenario: Scenario
    target: Target
    best: float = inf
    winner: str = ""
    tried: int = 0

    def search(self) -> None:
        """Answer all that may be the best, those with the shortest epochs first."""
        reached: dict[tuple[str, float], float] = {}
        timed = sorted(list_timed(self.scenario), key=lambda one: one.epoch_seconds)
        for found, rate in product(timed, RATES):
            self.tried += 1
            weights = weights_of(found.scenario), rate
            least = reached.get(weights, 1.0) * found.epoch_seconds
            if least * SAFE > self.best:
                continue
            passes = (
                min(
                    self.target.within, ceil(self.best / found.epoch_seconds / SAFE) + 3
                )
                if self.best < inf
                else self.target.within
            )
            settings = {**found.question.settings, "job.optimizer.lr": rate}
            question = replace(
                found.question,
                scenario=self.scenario,
                settings=settings,
                target=replace(self.target, within=passes),
            )
            trained = answer(question)
            if trained.refused is not None:
                reached[weights] = max(passes - 2, 1)
                continue
            reached[weights] = trained.epochs
            if trained.makespan < self.best:
                self.best = trained.makespan
                self.winner = (
                    f"{found.question.row} {found.question.machines} {settings}"
                )


def compare(seed: int) -> list[Trial]:
    """Return the row of a seed; none where the file's job learns nothing."""
    scenario = loads(json.dumps(draw_file(seed)), name=f"drawn-{seed}.json")
    began = time.process_time()
    try:
        target = find_target(scenario, within=40)
        advice = advise(scenario, Terms(target, seeds=1))
    except EmulatorError:
        return []
    cpu = time.process_time() - began
    grid = Grid(scenario, target)
    grid.search()
    stated = advice.stated
    return [
        Trial(
            case=f"seed {seed}",
            advised=advice.best.seconds,
            best=grid.best,
            stated=stated.seconds if isinstance(stated, Choice) else inf,
            cpu=cpu,
            tried=grid.tried,
            advice=advice.best.name,
            winner=grid.winner,
        )
    ]


def work(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield every seed."""
    for seed in range(options.seed, options.seed + options.count):
        yield f"seed {seed}", partial(compare, seed)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add which seeds are drawn."""
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)


def over(row: Trial) -> float:
    """Return the share by which an advice is slower than the best of the grid."""
    return row.advised / row.best - 1


def is_worse(row: Trial) -> bool:
    """Return True for an advice that is slower than the file as it stands."""
    return row.advised > row.stated * (1 + 1e-9)


def is_wrong(rows: list[Trial]) -> bool:
    """Return True where too few are good, or one is worse than its file."""
    good = np.mean([over(row) <= NEAR for row in rows])
    return bool(good < SHARE) or any(map(is_worse, rows))


def table(rows: list[Trial], _: Namespace) -> Iterator[str]:
    """Yield how near the advices came, and what they took."""
    shares = np.array([over(row) for row in rows])
    best, near = (shares <= 1e-9).mean(), (shares <= NEAR).mean()
    yield (
        f"{len(rows)} files, {sum(row.tried for row in rows):,} choices simulated: "
        f"{best:.0%} the best or better, {near:.0%} within {NEAR:.0%}, at most "
        f"{shares.max():+.1%}; {sum(map(is_worse, rows))} worse than the file"
    )
    gains = np.array([row.stated / row.advised for row in rows])
    yield (
        f"{np.median(gains):.2f} x as fast as the file at the median, "
        f"up to {gains.max():.1f} x; CPU {max(row.cpu for row in rows):.0f} s at most"
    )


STUDY = Study(
    row=Trial, work=work, table=table, options=add_options, wrong=is_wrong,
    line=lambda row: f"{row.case}: {over(row):+.2%} ({row.advice}; {row.winner})",
)  # fmt: skip
