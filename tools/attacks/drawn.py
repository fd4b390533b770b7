"""Scenarios with all features, drawn from seeds, on their whole way.

    tools/hostile drawn [--count 1000] [--seed 0]

Each is validated, simulated, run in virtual time and audited, see
`tests.testing.drawn_runs`. Prints every seed of which something is apart, with what:
the same command with that ``--seed`` and ``--count 1`` repeats it, with its file. The
exit status is 1 then.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.testing.drawn_runs import find_disagreement
from tests.testing.drawn_scenarios import draw_scenario


def main() -> int:
    """Draw and try; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/hostile drawn")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes, apart, began = Counter[str](), 0, time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.count):
            outcome, wrong = find_disagreement(seed, Path(folder))
            outcomes[outcome] += 1
            apart += bool(wrong)
            if options.count == 1:
                print(json.dumps(draw_scenario(seed), indent=1))
            if wrong:
                print(f"seed {seed} ({outcome}): {wrong}", flush=True)
    spent = time.process_time() - began
    print(f"{options.count} draws, {apart} apart, {spent:.0f} CPU-s: {dict(outcomes)}")
    return 1 if apart else 0
