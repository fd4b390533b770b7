"""A lab measured at one setting of its NICs, predicted at others, then measured there.

For the ``predict.py`` of shipped labs. A setting is the machines' NICs in Mbit/s:
``100,100,50,100``. The first one is fitted; the others are predicted from the fit, into
predictions.json, before they are measured.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from emu.errors import DataError
from emu.host.input_file import read_json
from emu.host.this_host import module_command
from emu.lab.fit_run import fit_run
from emu.lab.output_lines import marks_of
from emu.runs.array_files import read_traffic
from emu.runs.lab_file import read_lab
from emu.scenario import load, prepare

#: Mbit/s of machines m0 to m3.
SETTINGS = (
    "100,100,100,100",
    "50,100,100,100",
    "100,25,100,100",
    "200,50,50,50",
)


def predict_others(
    folder: Path,
    settings: Sequence[str],
    *,
    skip: int,
    mark: str,
) -> None:
    """Measure, fit, predict, measure; print a table.

    Raises EmulatorError when a lab cannot be fitted, simulated or timed, and
    subprocess.CalledProcessError when it fails.

    Parameters
    ----------
    folder
        Of ``lab.yaml``; runs go into ``runs/`` and its name.
    settings
        The first is fitted; none are `SETTINGS`.
    skip
        Iterations that warm up.
    mark
        Beginning of the line that a program prints when an iteration begins.
    """
    first, *others = settings or SETTINGS
    home = Path("runs") / folder.name
    home.mkdir(parents=True, exist_ok=True)
    first_run = _lab_run(folder, first, home)
    fit = fit_run(first_run, skip=skip, mark=mark)
    fit_file = home / "fitted.yaml"
    fit_file.write_text(fit.text("fitted.yaml"))

    # What was predicted once stays: by then its setting may have been measured.
    file = home / "predictions.json"
    seconds = read_json(file) if file.exists() else {}
    for setting in others:
        if setting not in seconds:
            scenario = load(fit_file, _nics(setting))
            schedule = prepare(scenario).simulate()
            seconds[setting] = schedule.makespan / fit.iterations
    content = json.dumps(seconds, indent=1)
    file.write_text(f"{content}\n")

    errors = []
    print(f"{'Mbit/s':20} {'measured':>9} {'predicted':>9} {'error':>7}")  # noqa: T201 -- a script's table
    for setting in others:
        run = _lab_run(folder, setting, home)
        duration = _seconds(run, skip, mark)
        predicted = seconds[setting]
        error = predicted / duration - 1
        errors.append(error)
        columns = f"{duration:7.4f} s {predicted:7.4f} s"
        print(f"{setting:20} {columns} {error:+7.2%}", flush=True)  # noqa: T201 -- likewise
    sizes = np.abs(errors)
    median = np.median(sizes)
    print(f"median {median:.2%}, worst {sizes.max():.2%}")  # noqa: T201 -- likewise


def _nics(setting: str) -> dict[str, str]:
    """Return a setting as changes to the fitted scenario."""
    changes = {}
    for number, nic in enumerate(setting.split(",")):
        changes[f"cluster.machines[{number}].nic"] = f"{nic} Mbit/s"
    return changes


def _seconds(run: Path, skip: int, mark: str) -> float:
    """Return the mean seconds of an iteration, by the lines that programs printed."""
    rows = read_lab(run)["programs"]
    programs = [(row["program"], row["machine"]) for row in rows]
    traffic = read_traffic(run)
    marks = marks_of(run, mark, programs, traffic)
    fewest = min(len(times) for times in marks.values())
    due = skip + 2
    if fewest < due:
        problem = f"a program printed {fewest} lines with {mark!r}, {due} are due"
        raise DataError(problem, path=run)
    means = []
    for times in marks.values():
        lengths = np.diff(times[skip:])
        means.append(lengths.mean())
    return float(np.mean(means))


def _lab_run(
    folder: Path,
    setting: str,
    home: Path,
) -> Path:
    """Run the lab with these NICs, unless that was done; return its run directory."""
    runs = home / setting.replace(",", "-")  # programs take a comma for a list
    marker = runs / "done"
    if not marker.exists():
        machines = []
        for number, nic in enumerate(setting.split(",")):
            machines.append(f"{{name: m{number}, nic: {nic} Mbit/s, cpu: 1}}")
        listed = ", ".join(machines)

        command = module_command(
            "emu",
            "lab",
            str(folder / "lab.yaml"),
            "--set",
            f"cluster.machines=[{listed}]",
            "--runs",
            str(runs),
        )
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- our own words
        newest = max(runs.glob("*-lab-*"))
        marker.write_text(str(newest))
    return Path(marker.read_text())
