"""Sums by gloo on four machines: measured at one setting, predicted at others.

    python scenarios/all_reduce/predict.py [--sharing tcp] [--repeats N] [SETTINGS ...]

A setting is megabytes and the machines' NICs in Mbit/s: ``4@100,100,50,50``. The first
one is fitted; the others are predicted from the fit, into predictions.json, before they
are measured. What is there already is kept. An iteration is a sum and 50 ms of
computing, from sum to sum, as packets tell.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import emu
from emu.lab.fit_run import Fit, fit_run

HERE = Path(__file__).resolve().parent
SETTINGS = ["4@100,100,100,100", "12.5@100,100,100,100", "4@100,100,50,50"]


def measured(setting: str, sharing: str, folder: Path) -> Fit:
    """Sum on machines with these NICs, unless that was done; return its fit."""
    megabytes, nics = setting.split("@")
    if not (folder / "done").exists():
        machines = ", ".join(
            f"{{name: m{number}, nic: {nic} Mbit/s}}"
            for number, nic in enumerate(nics.split(","))
        )
        command = [sys.executable, "-P", "-m", "emu", "lab", str(HERE / "lab.yaml")]
        for change in (
            f"cluster.machines=[{machines}]",
            f"lab.sharing={sharing}",
            f"lab.programs[0].env.MEGABYTES='{megabytes}'",
        ):
            command += ["--set", change]
        command += ["--runs", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (folder / "done").write_text(str(max(folder.glob("*-lab-*"))))
    return fit_run(Path((folder / "done").read_text()), skip=1)


def predicted(fit: Fit, setting: str, home: Path) -> float:
    """Return the seconds of an iteration at a setting."""
    (home / "fitted.yaml").write_text(fit.text("fitted.yaml"))
    megabytes, nics = setting.split("@")
    volume = f"job.collectives[0].allreduce.volume={float(megabytes):g} MB"
    changes = [
        f"cluster.machines[{at}].nic={nic} Mbit/s"
        for at, nic in enumerate(nics.split(","))
    ]
    scenario = emu.load(home / "fitted.yaml", [volume, *changes])
    return emu.simulate(scenario).makespan / fit.iterations


def main() -> None:
    """Measure, fit, predict, measure; print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", default=SETTINGS)
    parser.add_argument("--sharing", default="fair", choices=["fair", "tcp"])
    parser.add_argument("--repeats", type=int, default=1, help="of what is measured")
    given = parser.parse_args()
    home = Path("runs/all_reduce") / given.sharing
    home.mkdir(parents=True, exist_ok=True)
    fit = measured(given.settings[0], given.sharing, home / f"{given.settings[0]}-0")
    file = home / "predictions.json"
    told = json.loads(file.read_text()) if file.exists() else {}
    for setting in given.settings:
        if setting not in told:
            told[setting] = predicted(fit, setting, home)
    file.write_text(json.dumps(told, indent=1) + "\n")
    errors = []
    print(f"{'megabytes@Mbit/s':24} {'measured':>9} {'predicted':>9} {'error':>7}")
    for setting in given.settings:
        took = [
            measured(setting, given.sharing, home / f"{setting}-{repeat}").measured
            for repeat in range(given.repeats)
        ]
        seconds = float(np.median(took))
        errors.append(told[setting] / seconds - 1)
        row = f"{setting:24} {seconds:7.4f} s {told[setting]:7.4f} s {errors[-1]:+7.2%}"
        spread = f"  {min(took):.4f} to {max(took):.4f}" if len(took) > 1 else ""
        print(f"{row}{spread}", flush=True)
    print(f"of those not fitted: worst {np.abs(errors[1:]).max():.2%}")


if __name__ == "__main__":
    main()
