"""Runs that we ship for others to check: every system, three kinds of network.

    tools/study exchange docs/exchange [--only p3]

Each is a run over sockets of a small job, written by `emu share` to OUT/CASE.zip and
checked by `emu audit`, which builds it again from its raw records and runs no code of
it. Whoever has measured a cluster sends such a file, or a csv for `emu compare`. Kernel
NICs need root. Delete a row and its file to have the run made again.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import emu
from emu.experiment.recompute import audit_whole
from emu.experiment.systems import as_variant
from emu.runs.audit_inputs import read_to_audit
from emu.runs.shared_run import share_run, unpack_shared
from emu.scenario import Scenario
from emu.scenario.scenario_file import load
from tools.runner import Study, Work

#: Networks by name: senders that keep to rates, NICs of the kernel with a queue for
#: each flow, and with one queue, which TCP shares.
NETWORKS = {
    "paced": {"network": "userspace"},
    "fair": {"network": "kernel", "sharing": "fair"},
    "tcp": {"network": "kernel", "sharing": "tcp"},
}
#: Rows of `emu compare --systems`, and the networks that they run on here.
CASES = {
    "dgtp": ("paced", "fair", "tcp"),
    "distdgl": ("paced",),
    "data_parallel": ("paced",),
    "p3.none": ("paced", "fair"),
    "dgcl": ("paced", "tcp"),
    "dorylus.pipe": ("paced",),
}


@dataclass(frozen=True)
class Shared:
    """One run: what was simulated before, what came, and what an audit of it found."""

    case: str
    processes: int
    time_scale: float
    expected: float
    emulated: float
    trust: str
    prediction: str
    checked: int
    violations: int
    size: int

    @property
    def off(self) -> float:
        """The makespan error, a share."""
        return self.emulated / self.expected - 1


def work(options: Namespace) -> Iterator[Work[Shared]]:
    """Yield every system on its networks."""
    for system, networks in CASES.items():
        for network in networks:
            case = f"{system}-{network}"
            yield case, partial(run, case, system, network, options.out)


def scenario_of(system: str, network: str) -> Scenario:
    """Return the scenario: `table`, shorter, and under the rule of its network."""
    scenario = as_variant(load("table"), system)
    rule = {} if network == "paced" else {"schedule.policy": "maxmin"}
    emulation = {f"emulation.{k}": v for k, v in NETWORKS[network].items()}
    length = "iterations" if hasattr(scenario.job, "batch_size") else "epochs"
    short = {"name": f"{system}-{network}", f"job.{length}": 5, "expect": None}
    return load(scenario, {**short, **rule, **emulation})


def run(case: str, system: str, network: str, out: Path) -> list[Shared]:
    """Return the row of a run, and leave its file."""
    file = out / f"{case}.zip"
    with tempfile.TemporaryDirectory() as folder:
        own = emu.run(scenario_of(system, network), runs=folder)
        content = own.result
        share_run(own.path, file)
    with unpack_shared(file) as there:
        subject = read_to_audit(there, None)
        report, _ = audit_whole(subject, subject.tolerance, 1e-6)
    return [
        Shared(
            case,
            content["processes"],
            content["auto_scale"]["time_scale"],
            content["predicted_makespan"],
            content["makespan"],
            content["verdict"]["trust"],
            content["prediction"]["outcome"],
            sum(report.checked.values()),
            len(report.violations),
            file.stat().st_size,
        )
    ]


def table(rows: list[Shared], _: Namespace) -> Iterator[str]:
    """Yield a row per run, as Markdown."""
    yield "run | processes | simulated | emulated | off | verdict | audit"
    yield "---|---|---|---|---|---|---"
    for row in sorted(rows, key=lambda row: row.case):
        times = f"{1e3 * row.expected:.3f} ms | {1e3 * row.emulated:.3f} ms"
        said = f"{100 * row.off:+.2f} % | {row.trust}, {row.prediction}"
        audited = f"{row.violations} of {row.checked:,} broken"
        yield f"{row.case} | {row.processes} | {times} | {said} | {audited}"


STUDY = Study(row=Shared, work=work, table=table)
