"""Causes planted in runs on kernel NICs, and what the runs say that it was.

    tools/study causes OUT [--only CASE]

Each plant is a change of a copy of the product, or something beside the run, that makes
it 3 % longer or more than predicted; sound runs have none. A plant is named where the
likely reason has its word; a reason without it is wrong, and so is any reason of a
sound run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from emu.errors import EmulatorError
from emu.lab.machines.lab import missing_needs
from tools.building.core import MADE, build_core
from tools.runner import Study, Work

ROOT = Path(__file__).parents[2]
#: Wall seconds that one run may take.
_PATIENCE = 100
_SOUND = 12
NOT_FOUND = "cause not found"
#: Programs beside a run that take the one core that it may use.
_BUSY = "while True: pass"


@dataclass(frozen=True)
class Plant:
    """A cause: the word of its name, a change of a source text, and of the scenario."""

    word: str
    file: str = ""
    old: str = ""
    new: str = ""
    """Text that occurs once, and what stands in its place."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    busy: int = 0
    """Programs that keep a core busy, the only one of the run."""


#: Plants by name, see there.
PLANTS = {
    name: Plant(**fields)
    for name, fields in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text()
    ).items()
}


def job_of(kind: str, number: int, volume: str) -> tuple[list[Any], list[Any]]:
    """Return tasks and flows of a kind of job; ``number`` varies its times."""
    send = {"name": "s", "time": f"{20 + number} ms", "pin": "a"}
    receive = {"name": "r", "time": "15 ms", "pin": "b"}
    there = {"from": "s", "to": "r", "volume": volume}
    back = {"from": "r", "to": "s", "volume": "20 kB", "lag": 1}
    if kind == "two senders":
        small = {"name": "t", "time": "25 ms", "pin": "a"}
        small_end = {"name": "u", "time": "140 ms", "pin": "b"}
        flow = {"from": "t", "to": "u", "volume": "100 kB"}
        answer = {"from": "u", "to": "t", "volume": "20 kB", "lag": 1}
        large = {**there, "volume": "800 kB"}
        return [send, receive, small, small_end], [large, flow, back, answer]
    if kind == "a step of 0 s":
        step = {"name": "zero", "time": "0 s", "pin": "b"}
        handoff = {"from": "r", "to": "zero", "volume": "0 B"}
        return [send, receive, step], [there, handoff, {**back, "from": "zero"}]
    if kind == "incast":
        names = [f"s{position}" for position in range(8)]
        tasks = [{**send, "name": name, "pin": f"a{name}"} for name in names]
        flows = [{**there, "from": name, "volume": "20 kB"} for name in names]
        answers = [{**back, "to": name, "volume": "2 kB"} for name in names]
        return [*tasks, receive], [*flows, *answers]
    return [send, receive], [there, back]


def scenario_of(plant: Plant | None, number: int) -> dict[str, Any]:
    """Return a scenario for a plant, or a sound one."""
    settings = {} if plant is None else dict(plant.settings)
    kind = settings.get("job", "")
    volume = settings.get("volume", f"{200 + 10 * number} kB")
    tasks, flows = job_of(kind, number, volume)
    nic = settings.get("nic", "50 Mbit/s")
    names = sorted({task["pin"] for task in tasks})
    machines = [{"name": name, "nic": nic} for name in names]
    if kind == "incast":
        machines[-1]["nic"] = "10 Mbit/s"
    sharing = settings.get("sharing", "fair" if number % 2 == 0 else "tcp")
    return {
        "name": "planted",
        "cluster": {"machines": machines},
        "job": {"system": "custom", "iterations": 12, "tasks": tasks, "flows": flows},
        "schedule": {"policy": "maxmin"},
        "emulation": {"network": "kernel", "sharing": sharing, "max_nic_error": 0.1},
    }


@dataclass(frozen=True)
class Row:
    """A run, and what it says of its difference."""

    case: str
    word: str
    """Word of the cause that was planted; empty for a sound run."""
    trust: str
    error: float
    reason: str
    """Empty where run and prediction agree."""

    @property
    def outcome(self) -> str:
        """Judgement of what it says."""
        if self.reason in ("", NOT_FOUND) or self.reason.startswith("chance"):
            return "none named"
        is_right = bool(self.word) and self.word in self.reason
        return "named" if is_right else "named wrongly"


def work(_: Namespace) -> Iterator[Work[Row]]:
    """Yield every plant, and sound runs.

    Raises EmulatorError when this computer has no kernel NICs.
    """
    if needs := missing_needs():
        raise EmulatorError("; ".join(needs))
    for name, plant in PLANTS.items():
        yield name, partial(rows_of, name, plant, 0)
    for number in range(_SOUND):
        yield f"sound {number}", partial(rows_of, f"sound {number}", None, number)


def rows_of(name: str, plant: Plant | None, number: int) -> list[Row]:
    """Return what a run with a plant says."""
    result = run_planted(plant, scenario_of(plant, number))
    prediction = result["prediction"]
    row = Row(
        case=name,
        word="" if plant is None else plant.word,
        trust=result["verdict"]["trust"],
        error=prediction["error"],
        reason="; ".join(prediction["reasons"]),
    )
    return [row]


def run_planted(plant: Plant | None, scenario: dict[str, Any]) -> dict[str, Any]:
    """Return result.json of a scenario under a copy of the product with a plant.

    Raises EmulatorError when the run leaves none.
    """
    with contextlib.ExitStack() as ends:
        name = ends.enter_context(tempfile.TemporaryDirectory(prefix="causes-"))
        source = ends.enter_context(changed_copy(plant))
        folder = Path(name)
        file = folder / "planted.yaml"
        file.write_text(json.dumps(scenario))
        busy = 0 if plant is None else plant.busy
        core = ["taskset", "-c", "0"] if busy else []
        for _ in range(busy):
            beside = subprocess.Popen([*core, sys.executable, "-c", _BUSY])
            ends.callback(beside.wait)
            ends.callback(beside.kill)
        command = [*core, sys.executable, "-P", "-m", "emu", "run", str(file)]
        command += ["--runs", str(folder / "runs"), "--force"]
        paths = os.pathsep.join([str(source), str(source / "nodes")])
        done = subprocess.run(
            command,
            cwd=folder,
            timeout=_PATIENCE,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        results = list((folder / "runs").glob("*/result.json"))
        if not results:
            lines = done.stderr.strip().splitlines() or ["nothing was said"]
            raise EmulatorError(lines[-1])
        content: dict[str, Any] = json.loads(results[0].read_text())
        return content


@cache
def built_copy() -> tempfile.TemporaryDirectory[str]:
    """Return a copy of the product with its core, which goes with this process."""
    folder = tempfile.TemporaryDirectory(prefix="causes-")
    for part in ("emu", "nodes"):
        shutil.copytree(ROOT / part, Path(folder.name) / part, ignore=MADE)
    build_core(Path(folder.name))
    return folder


@contextlib.contextmanager
def changed_copy(plant: Plant | None) -> Iterator[Path]:
    """Yield the product, or a copy of it with a plant's change, which is taken back."""
    if plant is None or not plant.file:
        yield ROOT
        return
    root = Path(built_copy().name)
    path = root / plant.file
    sound = path.read_text(encoding="utf-8")
    if sound.count(plant.old) != 1:
        raise ValueError(f"{plant.old!r} is {sound.count(plant.old)} x in {path}")
    path.write_text(sound.replace(plant.old, plant.new), encoding="utf-8")
    try:
        yield root
    finally:
        path.write_text(sound, encoding="utf-8")


def table(rows: list[Row], _: Namespace) -> Iterator[str]:
    """Yield every row, and the counts."""
    for row in rows:
        reason = row.reason or "agrees"
        yield f"{row.case:26} {100 * row.error:+7.2f} % {row.trust:10} {reason}"
    for kind, chosen in (
        ("planted", [row for row in rows if row.word]),
        ("sound", [row for row in rows if not row.word]),
    ):
        named = sum(row.outcome == "named" for row in chosen)
        wrong = sum(row.outcome == "named wrongly" for row in chosen)
        yield f"{kind}: {named} of {len(chosen)} named, {wrong} wrongly"


def wrong(rows: list[Row]) -> bool:
    """Return True where a cause was named that was not there."""
    return any(row.outcome == "named wrongly" for row in rows)


STUDY = Study(row=Row, work=work, table=table, wrong=wrong)
