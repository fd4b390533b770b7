"""Kill, stop and resume processes of runs at any moment; print what came of it.

    tools/hostile chaos OUT [--count 300] [--seed 0] [--patience 4]

Every trial is an ``emu run golden`` of about a second; what is done to which process
and when is a function of the seed and the trial's number. Deadline and silence are
``--patience`` wall seconds: more where this computer has other things to do. Rows go to
OUT/rows.jsonl; those that are there already are not carried out again. Prints a table,
and every row that is not as it should be: a traceback, a culprit that is not named,
something that was left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import emu

MARK = "EMU_CHAOS"
#: Where Linux keeps named shared memory.
_SHARED = Path("/dev/shm")  # noqa: S108


def family(mark: str) -> list[psutil.Process]:
    """Return every process that carries the mark, zombies apart, oldest first."""
    found = []
    line = f"{MARK}={mark}".encode()
    for process in psutil.process_iter():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            dead = process.status() == psutil.STATUS_ZOMBIE
            if line in environment.split(b"\0") and not dead:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


def role_of(process: psutil.Process) -> str:
    """Return what a process of a run is: a task's, or agent, fork server, command.

    Raises psutil.Error when it has ended.
    """
    name, command = process.name(), process.cmdline()
    if name.startswith("emu:"):
        return name.removeprefix("emu:")
    if "emu.emulation.launch.fork_server" in " ".join(command):
        return "fork server"
    return "agent" if "emu.emulation.launch" in command[1:4] else "command"


def roles(mark: str) -> dict[str, psutil.Process]:
    """Return the processes of a run by what they are, of several the oldest."""
    found: dict[str, psutil.Process] = {}
    for process in family(mark):
        with contextlib.suppress(psutil.Error):
            found.setdefault(role_of(process), process)
    return found


def gone(mark: str, spared: set[int], within: float) -> list[psutil.Process]:
    """Wait until no other process of the family is left; return those that are."""
    deadline = time.monotonic() + within
    while left := [each for each in family(mark) if each.pid not in spared]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def shared_memory() -> set[str]:
    """Return the names of shared memory segments."""
    return {*os.listdir(_SHARED)} if _SHARED.is_dir() else set()  # noqa: PTH208


def settings(
    scenario: str, changes: list[str], time_scale: float, wall: float
) -> list[str]:
    """Return ``--set`` of changes and of iterations that take ``wall`` seconds."""
    changes = [f"emulation.time_scale={time_scale}", "expect=null", *changes]
    few, more = (
        emu.simulate(emu.load(scenario, [*changes, f"job.iterations={n}"])).makespan
        for n in (20, 40)
    )
    count = round(wall / time_scale / ((more - few) / 20))
    changes.append(f"job.iterations={count}")
    return [part for each in changes for part in ("--set", each)]


GONE = 5.0  # wall seconds in which all must be gone
#: Tasks of the scenario, each a process.
TASKS = ("g0", "g1", "s0", "s1", "w0", "ps0")
_VICTIMS = {"command": 3, "agent": 3, "fork server": 2, **dict.fromkeys(TASKS, 1)}
_ACTIONS = ("kill", "terminate", "interrupt", "stop", "pause", "long pause")
_SIGNALS = dict(
    zip(_ACTIONS, (signal.SIGKILL, signal.SIGTERM, signal.SIGINT), strict=False)
)
_FAILED, _INTERRUPTED = 5, 130
_LONGEST = 90.0  # wall seconds that a command may take to end, beyond its deadlines
_PAUSE, _LONG_PAUSE = 1.0, 2.0  # wall seconds, and deadlines


@dataclass(frozen=True)
class Draw:
    """One trial: a function of the seed and its number.

    Parameters
    ----------
    victim
        ``command``, ``agent``, ``fork server`` or a task.
    action
        ``stop`` is for ever, ``pause`` shorter than deadlines, ``long pause`` longer.
    moment
        Share of the wall time that the command takes when nothing happens to it.
    """

    number: int
    victim: str
    action: str
    moment: float

    @classmethod
    def of(cls, seed: int, number: int) -> Draw:
        """Return the trial of this number."""
        chance = np.random.default_rng([seed, number])
        weights = np.array([*_VICTIMS.values()], float)
        victim = chance.choice([*_VICTIMS], p=weights / weights.sum())
        action = chance.choice(_ACTIONS)
        return cls(number, str(victim), str(action), float(chance.uniform(0.0, 1.02)))


def golden(patience: float) -> list[str]:
    """Return the words of a short run with so many wall seconds of patience."""
    changes = ["expect=null", "job.iterations=3", "emulation.time_scale=0.05"]
    changes += [f"emulation.{key}={patience:g} s" for key in ("deadline", "silence")]
    return ["golden", *(part for each in changes for part in ("--set", each))]


class Trial:
    """A command with a mark of its own, in a folder of its own.

    Parameters
    ----------
    folder
        Takes scratch files and run directories; removed by `close`.
    patience
        Wall seconds of the scenario's deadline and silence.
    words
        What stands behind ``emu run``.
    """

    def __init__(
        self, folder: Path, mark: str, patience: float, words: Sequence[str]
    ) -> None:
        self._folder, self.mark, self.patience = folder, mark, patience
        self.runs = folder / "runs"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        self._shared = shared_memory()
        self.start([*words, "--runs", str(self.runs)])

    def start(self, words: Sequence[str]) -> None:
        """Start ``emu run`` with these words."""
        self._output = (self._folder / "output").open("wb")
        self.began = self.acted = time.monotonic()
        self.command = subprocess.Popen(
            [sys.executable, "-P", "-m", "emu", "run", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, "TMPDIR": str(self._folder / "tmp"), MARK: self.mark},
            start_new_session=True,
        )

    def printed(self) -> str:
        """Return what the command has printed so far."""
        return (self._folder / "output").read_text(errors="replace")

    def phase(self, there: set[str]) -> str:
        """Return what the run is at, by the processes and files that are there."""
        if any(self._folder.glob("runs/*/result.json")):
            return "report"
        if there - {"command", "agent", "fork server"}:
            return "run"
        return "launch or leave" if "agent" in there else "before or after"

    def act(self, draw: Draw, after: float) -> dict[str, Any]:
        """Do what is drawn so many wall seconds after the command was started.

        A victim that is not there is the command.
        """
        time.sleep(max(0.0, self.began + after - time.monotonic()))
        there = roles(self.mark)
        victim = draw.victim if draw.victim in there else "command"
        done = {"victim": victim, "phase": self.phase({*there}), "missed": False}
        self.acted = time.monotonic()
        try:
            process = there[victim]
            if draw.action in _SIGNALS:
                process.send_signal(_SIGNALS[draw.action])
            else:
                process.suspend()
            if "pause" in draw.action:
                long = _LONG_PAUSE * self.patience
                time.sleep(_PAUSE if draw.action == "pause" else long)
                process.resume()
        except (KeyError, psutil.NoSuchProcess):
            done["missed"] = True
        return done

    def end(self) -> str:
        """Return what the command printed, once it has ended."""
        try:
            self.command.wait(_LONGEST + 3 * self.patience)
        except subprocess.TimeoutExpired:
            self.command.kill()
            self.command.wait()
        self._output.close()
        return self.printed()

    def left(self) -> list[str]:
        """Return what is still there some seconds after the command has ended."""
        late = gone(self.mark, set(), GONE)
        found = [f"process {each.pid} {each.name()}" for each in late]
        files = *(self._folder / "tmp").iterdir(), *self._folder.rglob("*.partial")
        found += [f"file {path}" for path in files]
        return found + [f"memory {name}" for name in shared_memory() - self._shared]

    def close(self) -> None:
        """End every process that is left, and remove the folder."""
        for process in family(self.mark):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def carry_out(
    draw: Draw, after: float, folder: Path, mark: str, patience: float
) -> dict[str, Any]:
    """Return the row of a trial; ``after`` as in `Trial.act`.

    ``seconds`` are those from the action to the end of the command; of a command that
    is stopped for ever, those until all its processes had gone.
    """
    trial = Trial(folder, mark, patience, golden(patience))
    try:
        row = asdict(draw) | {"intended": draw.victim} | trial.act(draw, after)
        stopped = row["victim"] == "command" and draw.action == "stop"
        if stopped:
            orphans = gone(mark, {trial.command.pid}, 3 * patience)
            row["seconds"] = time.monotonic() - trial.acted
            row["unnoticed"] = [each.name() for each in orphans]
            trial.command.kill()
        printed = trial.end()
        if not stopped:
            row["seconds"] = time.monotonic() - trial.acted
        lines = [line for line in printed.strip().splitlines() if line.strip()]
        row["code"] = trial.command.returncode
        row["traceback"] = "Traceback (most recent" in printed
        row["message"] = "\n".join(lines[-4:])
        row["left"] = trial.left()
    finally:
        trial.close()
    return row | {"complaint": complaint(row)}


def named(victim: str, message: str) -> bool:
    """Return whether a message names the process that is to blame."""
    if victim == "command":
        return "interrupted by SIG" in message or "this process" in message
    if victim in TASKS:
        return bool(re.search(rf"\b{victim}\b", message))
    return victim in message or "agent" in message


def complaint(row: dict[str, Any]) -> str:
    """Return what is wrong with a trial, nothing if it is as it should be."""
    wrong = []
    victim, action, code = row["victim"], row["action"], row["code"]
    if row["traceback"]:
        wrong.append("a traceback")
    if row["left"]:
        wrong.append(f"left {', '.join(row['left'])}")
    if row.get("unnoticed"):
        wrong.append(f"not noticed by {', '.join(row['unnoticed'])}")
    allowed = {0, _FAILED}
    if victim == "command" and "pause" not in action:
        allowed.add(-9 if action in ("kill", "stop") else _INTERRUPTED)
    if code not in allowed:
        wrong.append(f"exit code {code}")
    elif code == _FAILED and not named(victim, row["message"]):
        wrong.append("the culprit is not named")
    return "; ".join(wrong)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line per victim and action: trials, ends, seconds, complaints."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        victim = "a task" if row["victim"] in TASKS else row["victim"]
        groups[victim, row["action"]].append(row)
    head = ["victim", "action", "trials", "failed", "named"]
    head += ["median", "most", "left", "wrong"]
    lines = ["{:12} {:11} {:>6} {:>6} {:>6} {:>8} {:>7} {:>5} {:>6}".format(*head)]
    for (victim, action), group in sorted(groups.items()):
        failed = [row for row in group if row["code"] not in (0, -9)]
        blamed = sum(named(row["victim"], row["message"]) for row in failed)
        seconds = [row["seconds"] for row in group]
        lines.append(
            f"{victim:12} {action:11} {len(group):6} {len(failed):6} {blamed:6} "
            f"{statistics.median(seconds):8.2f} {max(seconds):7.2f} "
            f"{sum(bool(row['left']) for row in group):5} "
            f"{sum(bool(row['complaint']) for row in group):6}"
        )
    return "\n".join(lines)


def calm(out: Path, patience: float) -> float:
    """Return the wall seconds of a run to which nothing happens: a median of three."""
    took = []
    for _ in range(3):
        trial = Trial(out / "trial", "calm", patience, golden(patience))
        printed = trial.end()
        took.append(time.monotonic() - trial.began)
        if code := trial.command.returncode:
            sys.exit(f"a run to which nothing happens ends with {code}:\n{printed}")
        trial.close()
    return statistics.median(took)


def main() -> int:
    """Carry out what is missing, and print the table; return 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=4.0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kept, patience = options.out / "rows.jsonl", options.patience
    lines = kept.read_text().splitlines() if kept.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {row["number"] for row in rows if row["seed"] == options.seed}
    missing = [n for n in range(options.count) if n not in done]
    duration = calm(options.out, patience) if missing else 0.0
    for number in missing:
        draw = Draw.of(options.seed, number)
        mark = f"{options.seed}.{number}.{time.time_ns()}"
        after = draw.moment * duration
        row = carry_out(draw, after, options.out / "trial", mark, patience)
        rows.append(row | {"seed": options.seed})
        with kept.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(
            f"{number:4} {row['phase']:16} {row['victim']:12} {row['action']:11} "
            f"{row['seconds']:6.1f} s  {row['complaint']}",
            flush=True,
        )
    print(table(rows))
    bad = [row for row in rows if row["complaint"]]
    for row in bad:
        print(f"\ntrial {row['number']}: {row['complaint']}\n{row['message']}")
    return int(bool(bad))
