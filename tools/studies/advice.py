"""`emu advise` against an exhaustive grid, on drawn scenarios.

    tools/study advice OUT [--count 30] [--seed 0]

A grid has every row of ``compare --systems all`` on every subset of the machines, with
every combination of its settings (`System.knobs`); equal machines are interchangeable.
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
from typing import Any

import numpy as np

from emu.errors import EmulatorError
from emu.experiment.advice import Choice, Terms, advise
from emu.experiment.systems import chosen_system, list_variants, variant_named
from emu.scenario import Scenario, load
from emu.scenario.scenario_file import loads
from emu.systems.system import systems
from tests.testing.draw import Draw
from tools.runner import Study, Work

#: Share by which an advice may be slower than the best, and of advices that are not.
NEAR, SHARE = 0.03, 0.9


@dataclass(frozen=True)
class Trial:
    """Seconds of an epoch as advised, by the best of the grid, and as the file is."""

    case: str
    advised: float
    best: float
    stated: float
    cpu: float
    tried: int
    advice: str
    winner: str


def draw_file(seed: int) -> dict[str, Any]:
    """Return a file of up to four machines of two kinds, and one mini-batch job."""
    draw = Draw(seed)
    machines: list[dict[str, Any]] = []
    for name in draw.some(["a", "b"], 1):
        rate = draw.one("1 Gbit/s", "5 Gbit/s", "10 Gbit/s", "50 Gbit/s")
        nic = {"in": rate, "out": rate, "latency": draw.one("0 us", "50 us", "500 us")}
        own = {"name": name, "count": draw.count(1, 2), "nic": nic, "gpu": 1}
        machines.append(own | draw.maybe(device="old"))
    times = {"aggregate": "20 ps", "multiply": "0.4 ps", "sample": "30 ns"}
    times |= {"collect": draw.one("20 ps", "200 ps"), "step": "0.5 ns"}
    rates: dict[str, Any] = times | {"launch": draw.one("5 us", "50 us")}
    if any("device" in machine for machine in machines):
        rates["multiply"] = {"default": "0.4 ps", "old": "4 ps"}
    job = {
        "system": draw.one("dgtp", "data_parallel", "p3"),
        "dataset": {
            "name": "products-like",
            "scale": draw.one(0.0005, 0.001),
            "feature_length": draw.one(16, 100, 602),
        },
        "model": {"kind": draw.one("gcn", "sage"), "hidden": draw.one(16, 64, 256)}
        | {"layers": 2},
        "fanouts": draw.one([5, 5], [10, 25]),
        "batch_size": draw.one(16, 64),
        "iterations": 6,
        "rates": rates,
    }
    if job["system"] == "dgtp":
        job["workers"] = sum(machine["count"] for machine in machines)
    placement = {"iterations": 50}
    return {"cluster": {"machines": machines}, "job": job, "placement": placement}


def grid(scenario: Scenario) -> Iterator[Choice]:
    """Yield every row on every subset of the machines, with all of its settings."""
    places = dict(scenario.cluster.names_and_positions())
    subsets = {
        tuple(places[name] for name in names): names
        for count in range(1, len(places) + 1)
        for names in combinations(places, count)
    }
    for row, names in product(list_variants(["all"]), subsets.values()):
        if variant_named(row).alone and len(names) > 1:
            continue
        try:
            plain = chosen_system(scenario, row, None, names, spread=True)
        except EmulatorError:
            continue
        knobs = systems()[plain.job.system].knobs
        for values in product(*knobs.values()):
            keys = dict(zip(knobs, values, strict=True))
            if keys.get("sync") == "ring" and values[0] != 1:
                continue  # which a ring has none of
            edit = {f"job.{key}": value for key, value in keys.items()}
            try:
                one = Choice.simulate(row, load(plain, edit), None)
            except EmulatorError:
                continue
            yield replace(one, keys=keys)


def compare(seed: int) -> list[Trial]:
    """Return the row of a seed."""
    scenario = loads(json.dumps(draw_file(seed)), name=f"drawn-{seed}.json")
    began = time.process_time()
    advice = advise(scenario, Terms(seeds=1))
    cpu = time.process_time() - began
    choices = sorted(grid(scenario), key=lambda one: one.seconds)
    as_stated = advice.stated
    stated = as_stated.seconds if isinstance(as_stated, Choice) else float("inf")
    figures = advice.best.seconds, choices[0].seconds, stated, cpu, len(choices)
    return [Trial(f"seed {seed}", *figures, advice.best.name, choices[0].name)]


def work(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield every seed."""
    for seed in range(options.seed, options.seed + options.count):
        yield f"seed {seed}", partial(compare, seed)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add which seeds are drawn."""
    parser.add_argument("--count", type=int, default=30)
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
