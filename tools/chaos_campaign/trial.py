"""One run of the command to which something happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import psutil

from tools.chaos_campaign.family import MARK, family, gone, roles, shared_memory

if TYPE_CHECKING:
    from pathlib import Path

    from tools.chaos_campaign.draw import Draw

GONE = 5.0  # wall seconds in which all must be gone
_LONGEST = 90.0  # wall seconds that a command may take to end, beyond its deadlines
_PAUSE, _LONG_PAUSE = 1.0, 2.0  # wall seconds, and deadlines
_SIGNALS = {
    "kill": signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "interrupt": signal.SIGINT,
}


class Trial:
    """A command with a mark of its own, in a folder of its own.

    Parameters
    ----------
    folder
        Takes scratch files and run directories; removed by `close`.
    patience
        Wall seconds of the scenario's deadline and silence.
    """

    def __init__(self, folder: Path, mark: str, patience: float) -> None:
        self._folder, self.mark, self.patience = folder, mark, patience
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        self._shared = shared_memory()
        settings = ["expect=null", "job.iterations=3", "emulation.time_scale=0.05"]
        settings += [
            f"emulation.{key}={patience:g} s" for key in ("deadline", "silence")
        ]
        arguments = [part for each in settings for part in ("--set", each)]
        arguments += ["--runs", str(folder / "runs")]
        environment = {"TMPDIR": str(folder / "tmp"), MARK: mark}
        self._output = (folder / "output").open("wb")
        self.began = self.acted = time.monotonic()
        self.command = subprocess.Popen(
            [sys.executable, "-m", "emu", "run", "golden", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, **environment},
            start_new_session=True,
        )

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
        return (self._folder / "output").read_text(errors="replace")

    def left(self) -> list[str]:
        """Return what is still there some seconds after the command has ended."""
        found = [
            f"process {each.pid} {each.name()}" for each in gone(self.mark, set(), GONE)
        ]
        found += [f"file {path}" for path in (self._folder / "tmp").iterdir()]
        found += [f"file {path}" for path in self._folder.rglob("*.partial")]
        found += [f"memory {name}" for name in shared_memory() - self._shared]
        return found

    def close(self) -> None:
        """End whoever is left, and remove the folder."""
        for process in family(self.mark):
            process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def carry_out(
    draw: Draw, after: float, folder: Path, mark: str, patience: float
) -> dict[str, Any]:
    """Return the row of a trial; ``after`` as in `Trial.act`.

    ``seconds`` are those from the action to the end of the command; of a command that
    is stopped for ever, those until all its processes had gone.
    """
    trial = Trial(folder, mark, patience)
    try:
        row = asdict(draw) | {"intended": draw.victim} | trial.act(draw, after)
        if row["victim"] == "command" and draw.action == "stop":
            orphans = gone(mark, {trial.command.pid}, 3 * patience)
            row["seconds"] = time.monotonic() - trial.acted
            row["unnoticed"] = [each.name() for each in orphans]
            trial.command.kill()
            said = trial.end()
        else:
            said = trial.end()
            row["seconds"] = time.monotonic() - trial.acted
        lines = [line for line in said.strip().splitlines() if line.strip()]
        row["code"] = trial.command.returncode
        row["traceback"] = "Traceback (most recent" in said
        row["message"] = "\n".join(lines[-4:])
        row["left"] = trial.left()
    finally:
        trial.close()
    return row
