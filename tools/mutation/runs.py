"""Faults that make runs false, and which of these runs are trusted all the same.

Every fault is planted in a copy of ``emu`` and ``nodes``, which then emulates a small
scenario; the sound product audits what came out, its rule too, and what was learnt. The
first rows are the product as it is. A fault takes some 15 s.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from emu.errors import EmulatorError
from emu.experiment.recompute import audit_whole
from emu.runs.audit_inputs import read_to_audit
from emu.testing.faults import Fault
from tools.building.core import MADE, build_core
from tools.mutation.run_faults import FAULTS, RunFault
from tools.runner import Ledger

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Wall seconds that one run may take; a fault may well stop it.
_PATIENCE = 200
_GOLDEN = ("expect=null", "emulation.time_scale=0.1")
_FAR = "cluster.machines[0].nic={in: 10 B/s, out: 10 B/s, latency: 200 ms}"
#: Files of the scenarios, and what is changed of them.
SCENARIOS: dict[str, tuple[Path, tuple[str, ...]]] = {
    "golden": (ROOT / "scenarios" / "golden.yaml", _GOLDEN),
    "incast": (HERE / "incast.yaml", ()),
    "latency": (HERE / "incast.yaml", (_FAR,)),
    "events": (HERE / "events.yaml", ()),
    "training": (HERE / "training.yaml", ()),
    "learning": (
        HERE / "training.yaml",
        ("emulation.compute=padded", "job.workers=2"),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What a run of a copy says of itself, and the constraints that its audit found."""

    case: str
    trust: str
    guards: str = ""
    audit: str = ""
    makespan: float = math.nan
    makespan_error: float = math.nan

    @property
    def caught(self) -> bool:
        """Whether the run or its audit shows that something is wrong."""
        return self.trust != "trusted" or bool(self.audit)


def main(options: Namespace) -> int:
    """Plant what is chosen; return 1 when one was missed or a sound run not trusted."""
    options.out.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(options.out / "rows.csv", Outcome)
    faults = {name: FAULTS[name] for name in options.only or FAULTS}
    used = {fault.scenario for fault in faults.values()}
    sound = {f"none ({name})": name for name in SCENARIOS if name in used}
    rows = {row.case: row for row in ledger.rows}
    for name in [*sound, *faults]:
        fault = faults.get(name)
        if name not in rows:
            scenario = sound[name] if fault is None else fault.scenario
            rows[name] = run_of(name, fault, scenario)
            ledger.add([rows[name]])
        row = rows[name]
        why = fault.unseen if fault is not None and not row.caught else ""
        audit = row.audit and f"audit: {row.audit}"
        words = "; ".join(filter(None, (row.guards, audit, why)))
        print(f"{name:38} {row.trust:10} {words}", flush=True)
    missed = [name for name in faults if not rows[name].caught]
    unseen = [name for name in missed if faults[name].unseen]
    alarms = [name for name in sound if rows[name].caught]
    print(
        f"{len(faults)} faults: {len(faults) - len(missed)} caught, {len(unseen)} "
        f"that no run can see, {len(missed) - len(unseen)} missed; "
        f"{len(alarms)} false alarms"
    )
    return int(len(missed) > len(unseen) or bool(alarms))


def plant(fault: Fault, root: Path) -> None:
    """Change the file under ``root``.

    Raises ValueError when the text does not occur there exactly once: the product has
    moved on.
    """
    path = root / fault.file
    text = path.read_text(encoding="utf-8")
    changed = fault.plant(text)
    if changed is None:
        raise ValueError(f"{fault.old!r} is {text.count(fault.old)} x in {path}")
    path.write_text(changed, encoding="utf-8")


def run_of(name: str, fault: RunFault | None, scenario: str) -> Outcome:
    """Return what a run of a copy with a fault says of itself, and its audit."""
    with tempfile.TemporaryDirectory(prefix="falsify-") as folder:
        source = here = Path(folder)
        if fault is None:
            source = ROOT
        else:
            for part in ("emu", "nodes"):
                shutil.copytree(ROOT / part, here / part, ignore=MADE)
            plant(fault, here)
            build_core(here)
        file, changes = SCENARIOS[scenario]
        command = [sys.executable, "-P", "-m", "emu", "run", str(file)]
        command += ["--runs", "runs"]
        command += [word for change in changes for word in ("--set", change)]
        paths = os.pathsep.join([str(source), str(source / "nodes")])
        try:
            done = subprocess.run(
                command, cwd=here, timeout=_PATIENCE,
                env={**os.environ, "PYTHONPATH": paths}, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Outcome(name, "no end")
        results = list((here / "runs").glob("*/result.json"))
        if not results:
            printed = done.stderr.strip().splitlines() or ["nothing"]
            return Outcome(name, "error", printed[-1][-200:])
        result = json.loads(results[0].read_text())
        audit = audited(results[0].parent, learnt=scenario == "learning")
    verdict = result["verdict"]
    guards = {found["guard"] for found in verdict["guards"]}
    if verdict["trust"] != "trusted" and not guards:
        guards = {reason[:100] for reason in verdict["reasons"]}
    return Outcome(
        name,
        verdict["trust"],
        "; ".join(sorted(guards)),
        "; ".join(audit),
        result["makespan"],
        result["makespan_error"],
    )


def audited(run: Path, *, learnt: bool) -> list[str]:
    """Return the constraints that a run breaks beside what its guards say."""
    try:
        subject = read_to_audit(run)
        allowed = subject.tolerance
        report, _ = audit_whole(subject, allowed, 1e-6, rule=True, training=learnt)
    except EmulatorError as error:
        return [str(error)[:100]]
    return sorted({violation.constraint for violation in report.violations})
