"""Programs of several kinds fitted at one setting of NICs, predicted at others.

    tools/study fits OUT [--only KIND] [--cpu CORES]

Each runs in a lab of four machines of 40 Mbit/s and is fitted, by the lines that it
prints and by its period. Both fits predict it at three other settings, into OUT, before
it is measured there. An iteration is that of the slowest process by its own clock.
With ``--cpu`` each machine has so many cores, and labs are dilated to fit this host:
beside other programs a fit refuses what waited for cores.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import emu
from emu.errors import DataError
from emu.lab.fit_run import fit_run
from emu.lab.run import run_lab
from emu.problem import Schedule
from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import load_lab
from tools.runner import Study, Work, distribution, heading

#: Programs by kind: servers and clients, or peers of one program.
SERVED = ("http", "xmlrpc", "threads", "turns")
PEERS = ("all_to_all", "all_gather", "broadcast_gather")
FITTED = ("40",) * 4
#: Mbit/s out and in of each machine.
SETTINGS = {
    "half": ("20",) * 4,
    "one slow": ("40", "10", "40", "40"),
    "mixed": ("32", "12/40", "40", "40/16"),
}
ITERATIONS = 24
_PROGRAM = Path(__file__).with_name("_fit_programs.py")
_LINE = re.compile(r"^iteration \d+ ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Predicted:
    """One setting of one kind: seconds per iteration, and what TCP had to send again.

    NaN where the run could not be fitted.
    """

    case: str
    setting: str
    measured: float
    marked: float
    by_period: float
    retransmitted: int
    timeouts: int


def options(parser: ArgumentParser) -> None:
    """Add what machines have."""
    parser.add_argument("--cpu", type=float, help="cores of a machine; dilates labs")


def lab(
    kind: str, nics: tuple[str, ...], folder: Path, cpu: float | None = None
) -> Path:
    """Run the programs of a kind on machines with these NICs; return the directory."""
    run = f"exec {sys.executable} {_PROGRAM} {kind} {ITERATIONS}"
    machines: list[dict[str, Any]] = []
    for number, nic in enumerate(nics):
        machines.append({"name": f"m{number}", "nic": _nic(nic)})
    peers = [{"name": "peer", "run": run}]
    served = [
        {"name": "server", "on": ["m0"], "run": run},
        {"name": "worker", "on": ["m1", "m2", "m3"], "run": f"{run} {{address of m0}}"},
    ]
    until = {"until": "worker"} if kind in SERVED else {}
    programs = served if kind in SERVED else peers
    file = folder / "lab.json"
    folder.mkdir(parents=True, exist_ok=True)
    section: dict[str, Any] = {"programs": programs, **until}
    if cpu is not None:
        section["time_scale"] = "auto"
        for machine in machines:
            machine["cpu"] = cpu
    content = {"cluster": {"machines": machines}, "lab": section}
    file.write_text(json.dumps(content))
    directory = RunDirectory.create(f"{kind}-lab", folder)
    result = run_lab(load_lab(str(file), []), directory)
    if result["failed"]:
        raise DataError(
            f"{result['failed']['program']} failed", path=str(directory.path)
        )
    return directory.path


def _nic(text: str) -> dict[str, str]:
    out, _, into = text.partition("/")
    return {"out": f"{out} Mbit/s", "in": f"{into or out} Mbit/s"}


def measured(run: Path) -> float:
    """Return the seconds per iteration of the slowest, without the first two."""
    clocks = [_LINE.findall(log.read_text()) for log in run.glob("*.log")]
    times = [np.array(found, float)[2:] for found in clocks if found]
    slowest = max(float(each[-1] - each[0]) / (len(each) - 1) for each in times)
    # Clocks of programs are this host's: a dilated second takes several of theirs.
    scale = json.loads((run / "lab.json").read_text()).get("time_scale", 1.0)
    return slowest / float(scale)


def per_iteration(schedule: Schedule) -> float:
    """Return likewise what was simulated."""
    ends = schedule.task_end[:, 2:]
    return float((ends[:, -1] - ends[:, 0]).max() / (ends.shape[1] - 1))


def predictions(run: Path, mark: str) -> dict[str, float]:
    """Return the seconds of every setting by a fit of the run; none without one."""
    try:
        fitted = fit_run(run, skip=1, mark=mark)
    except DataError as why:
        print(f"    {why}")
        return dict.fromkeys(SETTINGS, float("nan"))
    file = run / "fitted.json"
    file.write_text(fitted.text(file.name))
    found = {}
    for name, nics in SETTINGS.items():
        new = {f"cluster.machines[{n}].nic": _nic(nic) for n, nic in enumerate(nics)}
        found[name] = per_iteration(emu.simulate(emu.load(file, new)))
    return found


def compared(kind: str, out: Path, cpu: float | None = None) -> list[Predicted]:
    """Return the rows of one kind, whose predictions are written beforehand."""
    base = lab(kind, FITTED, out / kind / "fitted", cpu)
    expected = {mark: predictions(base, mark) for mark in ("iteration", "")}
    (out / kind / "predictions.json").write_text(json.dumps(expected))
    rows = []
    for name, nics in SETTINGS.items():
        run = lab(kind, nics, out / kind / name, cpu)
        tcp = json.loads((run / "lab.json").read_text())["tcp"].values()
        counts = [sum(one[key] for one in tcp) for key in ("retransmitted", "timeouts")]
        each = expected["iteration"][name], expected[""][name]
        rows.append(Predicted(kind, name, measured(run), *each, *counts))
        print(f"    {rows[-1]}", flush=True)
    return rows


def work(options: Namespace) -> Iterator[Work[Predicted]]:
    """Yield every kind."""
    for kind in (*SERVED, *PEERS):
        yield kind, partial(compared, kind, options.out, options.cpu)


def table(rows: list[Predicted], _: Namespace) -> Iterator[str]:
    """Yield a line per row, and the distribution of errors by kind."""
    yield "kind, setting: measured s, by marks, by period, sent again, timeouts"
    for row in rows:
        errors = [f"{t / row.measured - 1:+.2%}" for t in (row.marked, row.by_period)]
        numbers = f"{row.case}, {row.setting}: {row.measured:.4f}, {', '.join(errors)}"
        yield f"{numbers}, {row.retransmitted}, {row.timeouts}"
    yield heading("|predicted over measured - 1|, %", "settings")
    for kind in (*dict.fromkeys(row.case for row in rows), ""):
        some = [row for row in rows if row.case == kind or not kind]
        both = (("by marks", "marked"), ("by period", "by_period"))
        for title, name in both:
            errors_ = [abs(getattr(row, name) / row.measured - 1) for row in some]
            yield distribution(f"{kind or 'all'} {title}", errors_)


STUDY = Study(
    row=Predicted,
    work=work,
    table=table,
    options=options,
    settled=("cpu",),
)
