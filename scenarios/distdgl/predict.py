"""Epochs of dgl.distributed on four machines: measured at one setting, predicted.

    python scenarios/distdgl/predict.py [--graph NAME] [--sharing fair|tcp] [NICS ...]

NICS are Mbit/s of the four machines: ``100,100,20,20``. The first setting is fitted;
the others are predicted from the fit, into predictions.json, before they are measured.
What is there already is kept, so that it can be stopped and started again. An epoch is
what the trainers print: the slowest one's, mean of all epochs but the first.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

import emu
from emu.experiment.fit_run import fit_run

HERE = Path(__file__).resolve().parent
NICS = ["100,100,100,100", "50,50,50,50", "100,100,40,40", "200,50,200,50"]
EPOCH = re.compile(r"epoch (\d+) ([\d.]+) s batches (\d+)")


def options() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nics", nargs="*", default=NICS)
    parser.add_argument("--graph", default="products-like")
    parser.add_argument("--sharing", default="fair", choices=["fair", "tcp"])
    parser.add_argument("--repeats", type=int, default=1, help="of what is measured")
    return parser.parse_args()


def run(nics: str, sharing: str, folder: Path) -> Path:
    """Train on machines with these NICs, unless that was done; return the run."""
    done = folder / "done"
    if not done.exists():
        machines = ", ".join(
            f"{{name: m{number}, nic: {nic} Mbit/s}}"
            for number, nic in enumerate(nics.split(","))
        )
        settings = (f"cluster.machines=[{machines}]", f"lab.sharing={sharing}")
        command = [sys.executable, "-m", "emu", "lab", str(HERE / "lab.yaml")]
        for setting in settings:
            command += ["--set", setting]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        told = subprocess.run(
            [*command, "--runs", str(folder)],
            env=os.environ | {"PATH": path},  # whose python the lab's programs take
            check=False,
            capture_output=True,
            text=True,
        )
        if told.returncode:
            raise SystemExit(told.stdout + told.stderr)
        done.write_text(str(max(folder.glob("lab-lab-*"))))
    return Path(done.read_text())


def epochs(lab: Path) -> tuple[float, int]:
    """Return seconds of an epoch, mean of all but the first, and its batches."""
    slowest: dict[int, float] = defaultdict(float)
    batches = 0
    for log in lab.glob("trainer-*.log"):
        for number, seconds, count in EPOCH.findall(log.read_text()):
            slowest[int(number)] = max(slowest[int(number)], float(seconds))
            batches = int(count)
    return float(np.mean([slowest[number] for number in sorted(slowest)[1:]])), batches


def frozen(given: argparse.Namespace, home: Path) -> dict[str, float]:
    """Return the predicted epochs, fitted to the first setting; write those not yet."""
    file = home / "predictions.json"
    told = json.loads(file.read_text()) if file.exists() else {}
    lab = run(given.nics[0], given.sharing, home / f"{given.nics[0]}-0")
    _, batches = epochs(lab)
    fitted = home / "fitted.yaml"
    if not fitted.exists():
        fit = fit_run(lab, skip=batches)
        fitted.write_text(fit.text(fitted.name))
        print(
            f"fitted to {fit.iterations} iterations: simulated {fit.error:+.2%}, "
            f"held out {fit.held_out_error:+.2%}"
        )
    for nics in given.nics:
        if nics not in told:
            machines = enumerate(nics.split(","))
            scenario = emu.load(
                fitted,
                {
                    f"cluster.machines[{at}].nic": f"{nic} Mbit/s"
                    for at, nic in machines
                },
            )
            seconds = emu.simulate(scenario).makespan
            told[nics] = seconds / scenario.job.iterations * batches
    file.write_text(json.dumps(told, indent=1) + "\n")
    return told


def main() -> None:
    """Partition, measure, fit, predict, measure; print the table."""
    given = options()
    home = Path("runs/distdgl")
    if not (home / "graph/graph.json").exists():
        command = [sys.executable, str(HERE / "partition.py"), given.graph]
        subprocess.run([*command, str(home / "graph")], check=True)
    home /= given.sharing
    home.mkdir(exist_ok=True)
    predicted = frozen(given, home)
    print(f"\n{'NICs, Mbit/s':20} {'measured':>10} {'predicted':>10} {'error':>8}")
    errors = []
    for nics in given.nics:
        labs = [
            run(nics, given.sharing, home / f"{nics}-{repeat}")
            for repeat in range(given.repeats)
        ]
        took = [epochs(lab)[0] for lab in labs]
        measured = float(np.median(took))
        error = predicted[nics] / measured - 1
        said = "fitted"
        if nics != given.nics[0]:
            said = ""
            errors.append(abs(error))
        figures = f"{measured:8.3f} s {predicted[nics]:8.3f} s {error:+8.2%}"
        if given.repeats > 1:
            said += f" {min(took):.3f} to {max(took):.3f}"
        print(f"{nics:20} {figures}  {said}", flush=True)
    if errors:
        print(f"median {np.median(errors):.2%}, worst {max(errors):.2%}")


if __name__ == "__main__":
    main()
