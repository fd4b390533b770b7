"""No rule reads or writes beyond its arrays: compiled code would not notice."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Interpreted, an index beyond the end is an error. Draw 134 found one under ``mrtf``.
_DRAWS = """
import numpy as np
from emu.scheduling import RATE_POLICIES
from emu.simulation import simulate
from emu.testing.strategies import random_problem

for seed in range(200):
    rng = np.random.default_rng(seed)
    more = dict.fromkeys(("slots", "channels", "latest", "changes"), seed % 2 == 1)
    drawn = random_problem(rng, ties=True, links=True, own=True, jobs=True, **more)
    for policy in RATE_POLICIES:
        try:
            simulate(*drawn, policy)
        except IndexError as error:
            raise SystemExit(f"draw {seed}, {policy}: {error}") from error
"""


@pytest.mark.timeout(120)
def test_rules_stay_within_their_arrays() -> None:
    interpreted = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _DRAWS],
        env=interpreted, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-500:]
