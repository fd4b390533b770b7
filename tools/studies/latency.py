"""What a latency adds to a step of each system, beside the shares of a prototype.

    tools/study latency OUT [--only "dgcl spst"]

Four machines with NICs of 50, 50, 10 and 10 Gbit/s and a GPU each, gcn on
amazon_computers. NICs add the latency to what they send: a flow has it once.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.units import DURATION
from tools.runner import Study, Work

ALL = {
    "dataset": {"name": "amazon_computers", "normalise": True},
    "model": {"kind": "gcn", "norm": "mean", "hidden": 64, "layers": 2},
    "rates": {"aggregate": "20 ps", "multiply": "0.4 ps", "sample": "30 ns",
              "collect": "200 ps", "step": "0.5 ns", "launch": "50 us"},
}  # fmt: skip
BATCHES = ALL | {
    "fanouts": [10, 25], "batch_size": 128, "epoch": "shard", "iterations": 60
}  # fmt: skip
P3 = BATCHES | {"system": "p3", "push": "derived"}
DORYLUS = ALL | {"system": "dorylus", "mode": "pipe", "backend": "gpu", "epochs": 20}
DGCL = ALL | {"system": "dgcl", "epochs": 20}
#: Jobs, and the shares in % that the prototype's latencies added at `LATENCIES`.
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "dgtp": (BATCHES | {"system": "dgtp", "workers": 4}, "0.1, 0.3, 5"),
    "p3 none": (P3 | {"pipeline": "none"}, "1.3, 30, 441"),
    "p3 A": (P3 | {"pipeline": "A"}, "0.1, 1.6, 263"),
    "dorylus pipe": (
        DORYLUS
        | {"machines": ["f0", "f1", "s0", "s1"], "parameter_servers": ["f0"]}
        | {"intervals": 8},
        "2.8, 55, 604",
    ),
    "dgcl spst": (DGCL | {"plan": "spst"}, "29, 314, 3181"),
    "dgcl peer_to_peer": (DGCL | {"plan": "peer_to_peer"}, "23, 245, 2461"),
    "dgcl best_of": (DGCL | {"plan": "best_of"}, "-"),
}
LATENCIES = (50e-6, 500e-6, 5e-3)


@dataclass(frozen=True)
class Step:
    """Seconds of a step with a latency, ``alone`` without."""

    case: str
    latency: float
    alone: float
    seconds: float


def work(_: Namespace) -> Iterator[Work[Step]]:
    """Yield every job."""
    for name, (job, _theirs) in CASES.items():
        yield name, partial(steps, name, job)


def steps(name: str, job: dict[str, Any]) -> list[Step]:
    """Return the rows of a job."""

    def seconds(latency: float) -> float:
        late = {"out": DURATION.exact(latency)}
        machines = [
            {"name": name, "count": 2, "gpu": 1}
            | {"nic": {"in": rate, "out": rate, "latency": late}}
            for name, rate in (("f", "50 Gbit/s"), ("s", "10 Gbit/s"))
        ]
        content = {"cluster": {"machines": machines}, "job": job}
        ready = prepare(loads(json.dumps(content)))
        return ready.simulate().makespan / ready.problem.job.iterations

    alone = seconds(0.0)
    return [Step(name, late, alone, seconds(late)) for late in LATENCIES]


def table(rows: list[Step], _: Namespace) -> Iterator[str]:
    """Yield the shares that latencies add, how many of them, and the prototype's."""
    for name, (_job, theirs) in CASES.items():
        if own := [row for row in rows if row.case == name]:
            added = [(one.seconds - one.alone, one) for one in own]
            shares = ", ".join(f"{100 * more / one.alone:.1f}" for more, one in added)
            counts = ", ".join(f"{more / one.latency:.1f}" for more, one in added)
            step = f"{name:18} {1e3 * own[0].alone:7.3f} ms"
            yield f"{step} + {shares} % ({counts} L); prototype {theirs} %"


STUDY = Study(row=Step, work=work, table=table)
