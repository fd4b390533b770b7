"""Epochs of dgl.distributed on four machines: measured at one setting, predicted.

    python scenarios/distdgl/predict.py [--sharing tcp] [--repeats 5] [NICS ...]
    python scenarios/distdgl/predict.py --repeats 5 @scenarios/distdgl/eight_nics.txt

NICS are Mbit/s of the four machines: ``100,100,20,20``; a file has one setting a line.
The first setting is fitted. The others are predicted from the fit, into a file with the
time, before they are measured. ``--profile fair --sharing tcp`` measures under tcp what
was predicted from the fit of a run under fair. What is there already is kept, so that
it can be stopped and started again. An epoch is what the trainers print: the slowest
one's, mean of all epochs but the first.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import labs
import numpy as np
from labs import Trained

import emu
from emu.errors import DataError
from emu.lab.fit_run import fit_run
from emu.lab.prediction import forecast

NICS = ["100,100,100,100", "50,50,50,50", "100,100,40,40", "200,50,200,50"]


def options() -> argparse.Namespace:
    """Return the command line."""
    parser = labs.options(__doc__)
    parser.add_argument("nics", nargs="*", default=NICS)
    parser.add_argument("--sharing", default="fair", choices=["fair", "tcp"])
    parser.add_argument(
        "--profile", choices=["fair", "tcp"], help="sharing in the run that is fitted"
    )
    given = common(parser)
    given.profile = given.profile or given.sharing
    return given


def common(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the command line, with what train.py gets and where runs are kept."""
    given = parser.parse_args()
    given.arguments = labs.arguments_of(given)
    name = f"{given.graph} {given.arguments}"
    if given.samplers:
        name += f" --samplers {given.samplers}"
    given.home = labs.HOME / name.replace(" --", "-").replace(" ", "-")
    return given


def train(given: argparse.Namespace, nics: str, sharing: str, repeat: int) -> Trained:
    """Train at a setting, unless that was done."""
    machines = [(f"m{number}", nic) for number, nic in enumerate(nics.split(","))]
    return labs.trained(
        machines,
        labs.partitioned(given.graph),
        given.home / sharing / f"{nics}-{repeat}",
        sharing=sharing,
        arguments=given.arguments,
        samplers=given.samplers,
        time_scale=given.time_scale,
    )


def kept(given: argparse.Namespace, nics: str, sharing: str) -> list[Trained]:
    """Return the repeats of a setting that were measured."""
    done = (given.home / sharing).glob(f"{nics}-*/done.json")
    return [train(given, nics, sharing, repeat) for repeat in range(len([*done]))]


def fitted(given: argparse.Namespace, nics: str) -> tuple[Trained, Path]:
    """Return a run at a setting, and the file of its fit."""
    lab = train(given, nics, given.profile, 0)
    file = given.home / given.profile / f"fitted-{nics}.json"
    if not file.exists():
        fit = fit_run(lab.path, skip=lab.batches[0])
        file.write_text(fit.text(file.name))
        print(
            f"fitted to {fit.iterations} iterations: simulated {fit.error:+.2%}, "
            f"held out {fit.held_out_error:+.2%}"
        )
    return lab, file


def frozen(given: argparse.Namespace) -> dict[str, tuple[float, str]]:
    """Return the predicted epochs and when they were; write those not yet."""
    lab, fit = fitted(given, given.nics[0])
    file = fit.with_name(f"predictions-from-{given.nics[0]}.json")
    told = json.loads(file.read_text()) if file.exists() else {}
    for nics in given.nics:
        if nics not in told:
            changes = {
                f"cluster.machines[{at}].nic": f"{nic} Mbit/s"
                for at, nic in enumerate(nics.split(","))
            }
            found = emu.simulate(emu.load(fit, changes))
            if given.sharing == "tcp":
                print(f"{nics}: {forecast(found).sentence()}")
            seconds = found.makespan / found.problem.job.iterations * lab.batches[1]
            told[nics] = {"seconds": seconds, "at": labs.now()}
    file.write_text(json.dumps(told, indent=1) + "\n")
    return {nics: (one["seconds"], one["at"]) for nics, one in told.items()}


@dataclass(frozen=True)
class Row:
    """A setting: its repeats, and what had been predicted.

    Parameters
    ----------
    kind
        ``fitted``; ``frozen``, when predicted before the first repeat began; ``late``.
    """

    nics: str
    kind: str
    runs: list[Trained]
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted / labs.median(self.runs) - 1

    def to_json(self) -> dict[str, object]:
        """Return all figures."""
        return {
            "nics": self.nics,
            "kind": self.kind,
            "predicted": self.predicted,
            "error": self.error,
            "runs": [run.to_json() for run in self.runs],
        }


def measured(
    given: argparse.Namespace, predicted: dict[str, tuple[float, str]]
) -> list[Row]:
    """Measure what was not; return a row for every setting."""
    runs: dict[str, list[Trained]] = {nics: [] for nics in given.nics}
    # Repeats of one setting are not side by side: this computer may change meanwhile.
    for repeat in range(given.repeats):
        for nics in given.nics:
            run = train(given, nics, given.sharing, repeat)
            print(f"{nics} {repeat}: {run.seconds:.3f} s, {labs.verdict([run])}")
            runs[nics].append(run)
    rows = []
    for number, nics in enumerate(given.nics):
        seconds, at = predicted[nics]
        kind = "frozen" if at < min(run.began for run in runs[nics]) else "late"
        if number == 0 and given.profile == given.sharing:
            kind = "fitted"
        rows.append(Row(nics, kind, runs[nics], seconds))
    return rows


def show(rows: list[Row]) -> None:
    """Print the table, and the errors of what was predicted."""
    print("\n| NICs, Mbit/s | measured | range | predicted | error | labs |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.nics} ({row.kind}) | {labs.median(row.runs):.3f} s "
            f"| {labs.ends(row.runs)} | {row.predicted:.3f} s | {row.error:+.2%} "
            f"| {labs.verdict(row.runs)} |"
        )
    errors = [abs(row.error) for row in rows if row.kind != "fitted"]
    if errors:
        print(f"\nmedian {np.median(errors):.2%}, worst {max(errors):.2%}")
    apart = [labs.apart(row.runs) for row in rows]
    print(f"repeats apart by {np.median(apart):.2%} (median), {max(apart):.2%} (worst)")


def own_error(run: Trained) -> float:
    """Return what the simulation of a run's own fit is off by; NaN if it has none."""
    try:
        return fit_run(run.path, skip=run.batches[0]).error
    except DataError:
        return float("nan")


def causes(given: argparse.Namespace, rows: list[Row]) -> None:
    """Print what errors under tcp are made of, where fair was measured as well.

    The fit of a run has its own gaps, so what its simulation is off by is what TCP made
    of its messages.
    """
    print("\n| NICs | error | error under fair | tcp over fair | own fit | TCP |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        fair = kept(given, row.nics, "fair")
        if not fair:
            continue
        own = [own_error(run) for run in row.runs]
        counts = ", ".join(
            f"{np.median([run.sampled[name] for run in row.runs]):.0f} {name}"
            for name in ("retransmitted", "timeouts")
        )
        print(
            f"| {row.nics} | {row.error:+.2%} "
            f"| {row.predicted / labs.median(fair) - 1:+.2%} "
            f"| {labs.median(row.runs) / labs.median(fair) - 1:+.2%} "
            f"| {np.nanmedian(own):+.2%} | {counts} |"
        )


def main() -> None:
    """Partition, measure, fit, predict, measure; print the table."""
    given = options()
    rows = measured(given, frozen(given))
    results = given.home / given.sharing / f"results-from-{given.profile}.json"
    results.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    show(rows)
    if given.sharing == "tcp":
        causes(given, rows)


if __name__ == "__main__":
    main()
