"""Runs in virtual time under faults drawn from seeds; print what came of them.

    tools/hostile trials [SCENARIO] [--count 1000] [--seed 0] [--set KEY=VALUE]

Every seed is a run of the scenario (by default golden) in this process, see
`emu.testing.trials`. Prints the outcomes, and every seed of which something is to be
complained: the same command with that ``--seed`` and ``--count 1`` repeats it, with its
log. The exit status is 1 then.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from emu.scenario import load, prepare
from emu.testing.trials import Case, Trial, Trials

ROOT = Path(__file__).parents[2]
#: Small payloads at a wall time of their own: neither changes what is tried.
QUICK = ["emulation.time_scale=0.02", "emulation.byte_scale=100"]


def story(seed: int, trial: Trial, *, whole: bool) -> str:
    """Return what was wrong with a trial."""
    lines = [f"seed {seed}: {trial.faults}", f"  happened: {trial.happened}"]
    lines += [f"  error: {trial.error}", *(f"  ! {each}" for each in trial.complaints)]
    return "\n".join([*lines, trial.log] if whole else lines)


def main() -> int:
    """Try; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/hostile trials")
    parser.add_argument("scenario", nargs="?", default="")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--set", dest="edits", action="append", default=[])
    options = parser.parse_args()
    file = options.scenario or ROOT / "scenarios" / "golden.yaml"
    edits = options.edits if options.scenario else [*QUICK, *options.edits]
    case = Case.of(prepare(load(file, edits)), hosts=options.hosts)
    trials, outcomes, bad = Trials(case), Counter[str](), 0
    began = time.process_time()
    for seed in range(options.seed, options.seed + options.count):
        trial = trials.run(seed)
        ended = type(trial.error).__name__ if trial.error else "killed"
        outcomes["equal results" if trial.run else ended] += 1
        if trial.complaints or options.count == 1:
            bad += bool(trial.complaints)
            print(story(seed, trial, whole=options.count == 1))
    rate = options.count / (time.process_time() - began)
    print(f"{options.count} trials, {bad} bad, {rate:.0f} per CPU-s: {dict(outcomes)}")
    return 1 if bad else 0
