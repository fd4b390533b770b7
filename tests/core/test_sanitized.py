"""No rule reads or writes beyond its arrays: C would not notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.building.core import MADE, build_core

ROOT = Path(__file__).parents[2]
_DRAWS = """
import numpy as np
from emu.scheduling import RATE_POLICIES
from emu.simulation import MakespanEvaluator, simulate
from emu.testing.strategies import random_problem
from tests.scheduling.virtual_coordinator import VirtualCoordinator

for seed in range(200):
    rng = np.random.default_rng(seed)
    kinds = "slots", "channels", "latest", "changes", "tuned"
    more = dict.fromkeys(kinds, seed % 2 == 1)
    drawn = random_problem(rng, ties=True, links=True, own=True, jobs=True, **more)
    problem, realization = drawn
    machine_of = np.array(problem.placement.machine_of)
    for policy in RATE_POLICIES:
        simulate(*drawn, policy, record_rates=True)
        if policy != "portfolio":
            evaluator = MakespanEvaluator(problem.job, problem.cluster, policy)
            evaluator.makespan(machine_of, realization)
            if seed % 10 == 0 and (realization.times > 0).all():
                VirtualCoordinator(*drawn, policy, rng).run()
"""


def _library(name: str) -> str:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc has the sanitizers")
def test_rules_stay_within_their_arrays(tmp_path: Path) -> None:
    """A build with gaps between arrays; draw 134 found a fault under ``mrtf``."""
    for name in ("emu", "tests", "nodes"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=MADE)
    build_core(tmp_path, sanitize=True)
    done = subprocess.run(
        [sys.executable, "-c", _DRAWS],
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "LD_PRELOAD": f"{_library('libasan.so')} {_library('libstdc++.so.6')}",
            "ASAN_OPTIONS": "detect_leaks=0",
        },
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-2000:]
