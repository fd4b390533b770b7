"""Machines that `best` chooses in drawn clusters, against trying every set of them.

    tools/hostile machines [--count 200] [--seed 0]

Each cluster has one or two machines, and one to three with a slow NIC, see
`tests.scenario.test_machine_choice`. Prints what the choice takes over the best set;
the exit status is 1 where it is within 2 % in less than 95 %, or where all machines
were faster in any.
"""

from __future__ import annotations

import argparse

import numpy as np

from emu.scenario import prepare
from tests.scenario.test_machine_choice import length, on_each_set, with_weak_machines

_WITHIN, _SHARE = 0.02, 0.95


def main() -> int:
    """Draw and compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/hostile machines")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    over, worse = list[float](), 0
    for seed in range(options.seed, options.seed + options.count):
        scenario = with_weak_machines(seed, most=3)
        by_set = on_each_set(scenario)
        if not by_set:
            continue  # no room for its tasks anywhere
        took, least = length(prepare(scenario)), min(by_set.values())
        names = [name for name, _ in scenario.cluster.names_and_positions()]
        over.append(took / least - 1)
        is_worse = took > by_set.get((*names,), took) * (1 + 1e-9)
        worse += is_worse
        if over[-1] > _WITHIN or is_worse:
            print(f"seed {seed}: {took:g} s, {least:g} s on {len(by_set)} sets")
    near = float(np.mean([each <= _WITHIN for each in over]))
    print(
        f"{len(over)} clusters: {near:.1%} within {_WITHIN:.0%} of the best set, "
        f"at most {max(over):+.1%}; {worse} worse than all machines"
    )
    return int(near < _SHARE or worse > 0)
