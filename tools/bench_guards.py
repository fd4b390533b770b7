"""What the guards of a large run cost: CPU seconds of each, least of three.

    python tools/bench_guards.py [flows]

The run is simulated: the shape of the demo, as many iterations as it takes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from emu.simulation import simulate
from emu.trust.guards.examine import GUARDS
from tests.trust.guards.reported import reported
from tools.bench_report import drawn, placed


def main() -> None:
    """Print the cost of every guard, and of all."""
    flows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    problem = placed(-(-flows // sum(map(bool, placed(1).hops))))
    realization = drawn(problem, 0.3)
    schedule = simulate(problem, realization, record_rates=True)
    evidence = reported(schedule, realization)
    total = 0.0
    for guard in GUARDS:
        costs, found = [], []
        for _ in range(3):
            began = time.process_time()
            found = list(guard(evidence))
            costs.append(time.process_time() - began)
        total += min(costs)
        print(f"{guard.__name__:16} {min(costs):6.3f} s  {len(found)} findings")
    rates = 0 if schedule.rates is None else len(schedule.rates.time)
    print(f"all {total:.3f} s for {len(schedule.flows()):,} flows, {rates:,} rates")


if __name__ == "__main__":
    main()
