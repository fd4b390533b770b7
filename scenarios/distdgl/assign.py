"""Which parts on the fast machines? Assignments of partitions, predicted and measured.

    python scenarios/distdgl/assign.py [--nics 100,100,40,40] [--repeats 5] [NICS ...]

A run at 100 Mbit/s on all machines is fitted. Its tasks are moved among machines with
these NICs in all ways that differ, and simulated: assignments-*.json has what was
predicted, with the time. An assignment is called by the NICs of the parts:
``40,100,100,40`` has parts 1 and 2 on the fast machines. Those that are named are
measured, else the one that is predicted to be best and the one to be worst. All that
have been measured are shown.
"""

import argparse
import json
from itertools import permutations

import labs
from predict import common, fitted, kept, train

import emu

PROFILE = "100,100,100,100"


def options() -> argparse.Namespace:
    """Return the command line."""
    parser = labs.options(__doc__)
    parser.add_argument("--nics", default="100,100,40,40", help="of the machines")
    parser.add_argument("assignments", nargs="*", help="that are measured")
    given = common(parser)
    given.sharing = given.profile = "fair"
    return given


def assignments(nics: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the machine of every part, by the NICs of the parts."""
    orders = permutations(range(len(nics)))
    return {",".join(nics[machine] for machine in order): order for order in orders}


def frozen(given: argparse.Namespace) -> dict[str, float]:
    """Return the predicted epochs by assignment; write them if that was not done."""
    file = given.home / f"assignments-{given.nics}.json"
    if not file.exists():
        lab, path = fitted(given, PROFILE)
        nics = given.nics.split(",")
        changes: dict[str, object] = {
            f"cluster.machines[{at}].nic": f"{nic} Mbit/s"
            for at, nic in enumerate(nics)
        }
        where = emu.load(path).placement.tasks
        told = {}
        for name, order in assignments(nics).items():
            moved = {f"m{part}": f"m{machine}" for part, machine in enumerate(order)}
            tasks = {task: moved[machine] for task, machine in where.items()}
            found = emu.simulate(emu.load(path, {**changes, "placement.tasks": tasks}))
            iteration = found.makespan / found.problem.job.iterations
            told[name] = iteration * lab.batches[1]
        file.write_text(json.dumps({"at": labs.now(), "seconds": told}, indent=1))
    seconds: dict[str, float] = json.loads(file.read_text())["seconds"]
    return seconds


def main() -> None:
    """Partition, measure, fit, move, predict, measure; print the table."""
    given = options()
    predicted = frozen(given)
    ordered = sorted(predicted, key=lambda name: predicted[name])
    for repeat in range(given.repeats):
        for name in given.assignments or (ordered[0], ordered[-1]):
            train(given, name, given.sharing, repeat)
    print("\n| NICs of parts 0 to 3 | predicted | measured | range | error | labs |")
    print("|---|---|---|---|---|---|")
    for name in ordered:
        row = f"| {name} | {predicted[name]:.3f} s |"
        runs = kept(given, name, given.sharing)
        if runs:
            error = predicted[name] / labs.median(runs) - 1
            row += f" {labs.median(runs):.3f} s | {labs.ends(runs)} | {error:+.2%} |"
            row += f" {labs.verdict(runs)} |"
        else:
            row += " | | | |"
        print(row)


if __name__ == "__main__":
    main()
