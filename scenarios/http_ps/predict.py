"""The lab measured at one setting of its NICs, predicted at others, then measured.

    python scenarios/http_ps/predict.py [SETTINGS ...]

A setting is the machines' NICs in Mbit/s: ``100,100,50,100``. The first one is fitted;
the others are predicted from the fit, into predictions.json, before they are measured.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import emu
from emu.lab.fit_run import Fit, fit_run

HERE = Path(__file__).resolve().parent
SETTINGS = ["100,100,100,100", "50,100,100,100", "100,25,100,100", "200,50,50,50"]


def measured(setting: str, home: Path) -> Fit:
    """Run the lab with these NICs, unless that was done; return its fit."""
    folder = home / setting
    if not (folder / "done").exists():
        command = [sys.executable, "-P", "-m", "emu", "lab", str(HERE / "lab.yaml")]
        machines = ", ".join(
            f"{{name: m{number}, nic: {nic} Mbit/s, cpu: 1}}"
            for number, nic in enumerate(setting.split(","))
        )
        command += ["--set", f"cluster.machines=[{machines}]", "--runs", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (folder / "done").write_text(str(max(folder.glob("*-lab-*"))))
    return fit_run(Path((folder / "done").read_text()), skip=1, mark="step ")


def main() -> None:
    """Measure, fit, predict, measure; print the table."""
    first, *others = sys.argv[1:] or SETTINGS
    home = Path("runs") / HERE.name
    home.mkdir(parents=True, exist_ok=True)
    fit = measured(first, home)
    (home / "fitted.yaml").write_text(fit.text("fitted.yaml"))
    file = home / "predictions.json"
    predictions = json.loads(file.read_text()) if file.exists() else {}
    for setting in others:
        changes = [
            f"cluster.machines[{at}].nic={nic} Mbit/s"
            for at, nic in enumerate(setting.split(","))
        ]
        scenario = emu.load(home / "fitted.yaml", changes)
        predictions.setdefault(
            setting, emu.simulate(scenario).makespan / fit.iterations
        )
    file.write_text(json.dumps(predictions, indent=1) + "\n")
    errors = []
    print(f"{'Mbit/s':20} {'measured':>9} {'predicted':>9} {'error':>7}")
    for setting in others:
        seconds = measured(setting, home).measured
        errors.append(predictions[setting] / seconds - 1)
        both = f"{seconds:7.4f} s {predictions[setting]:7.4f} s"
        print(f"{setting:20} {both} {errors[-1]:+7.2%}", flush=True)
    print(f"median {np.median(np.abs(errors)):.2%}, worst {np.abs(errors).max():.2%}")


if __name__ == "__main__":
    main()
