"""Nothing compiled reads or writes beyond its arrays: C would not notice."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.building.core import MADE, build_core

ROOT = Path(__file__).parents[3]
_DRAWS = '''
import numpy as np
from tests import draws
from emu.prediction.scheduling import RATE_POLICIES, compiled_problem
from emu.prediction.simulation import simulate
from tools.benches.evaluator import MakespanEvaluator
from emu.testing.strategies import random_problem
from emu.scenario.own_rules import register_program
from tests.prediction.scheduling.virtual_coordinator import VirtualCoordinator

own = register_program("mine.py:Mine", """class Mine:
    def rates(self, flows, capacity):
        crossed = [link for flow in flows for link in flow.links]
        return [min(capacity[l] / crossed.count(l) for l in f.links) for f in flows]
""")
for seed in draws.some(range(60), few=20):
    rng = np.random.default_rng(seed)
    kinds = "slots", "channels", "latest", "changes", "tuned"
    more = dict.fromkeys(kinds, seed % 2 == 1)
    drawn = random_problem(rng, ties=True, links=True, own=True, jobs=True, **more)
    problem, realization = drawn
    machine_of = np.array(problem.placement.machine_of)
    for policy in (*RATE_POLICIES, own):
        simulate(*drawn, policy, record_rates=True)
        if policy != "portfolio":
            evaluator = MakespanEvaluator(problem.job, problem.cluster, policy)
            evaluator.makespan(machine_of, realization)
            if seed % 10 == 0 and (realization.times > 0).all():
                VirtualCoordinator(*drawn, policy, rng).run()

compiled_problem.PORT_CLOCKS_FROM = 0
for seed in draws.some(range(100, 160), few=20):
    rng = np.random.default_rng(seed)
    drawn = random_problem(rng, ties=seed % 3 == 0, own=True, jobs=True, channels=True)
    simulate(*drawn, "maxmin", record_rates=True)
    if (drawn[1].times > 0).all():
        VirtualCoordinator(*drawn, "maxmin", rng).run()
'''
_SEARCHES = """
import numpy as np
from tests import draws
from emu.errors import PlacementError
from emu.graph_data import BatchPlan
from emu.graph_data.synthetic_graph import synthetic_source
from emu.prediction.placement.search import SearchOptions
from emu.prediction.placement.candidates import JobsCost
from emu.prediction.placement.etp import EtpOptions, search_etp
from emu.problem import Profile
from emu.systems.dgcl.spst import (spst)
from emu.testing.strategies import random_problem
from tests.systems.dgcl.test_planner import random_needs, random_topology
from tools.benches.evaluator import search

for seed in draws.some(range(30), few=10):
    rng = np.random.default_rng(seed)
    more = dict.fromkeys(("slots", "links", "own"), seed % 2 == 1)
    problem, run = random_problem(rng, jobs=seed % 3 == 0, **more)
    job, profile = problem.job, Profile(run.times, run.volumes)
    cost = JobsCost(total=True) if seed % 3 == 0 else None
    common = dict(transfers=80, iterations=job.iterations, cost=cost)
    for how, options in (
        (search_etp, EtpOptions(**common)),
        (search, SearchOptions(**common, sketches=2)),
        (search, SearchOptions(**common, sketches=2, exhaustive=False)),
    ):
        try:
            how(job, problem.cluster, profile, seed=seed, options=options)
        except PlacementError:
            pass
    devices = int(rng.integers(2, 9))
    needs = random_needs(rng, devices, 200)
    spst(needs, random_topology(rng, devices), seed=seed, group=4, sweeps=1)
graph = synthetic_source("products-like", scale=0.001, seed=0).load()
plan = BatchPlan(seed=0, samplers=2, batch_size=30, fanouts=(3, 10_000_000))
for iteration in range(20):
    plan.batch(graph.structure, graph.train, iteration % 2, iteration)
"""

_SENDERS = """
import pytest

files = "shaping/test_compiled.py", "network/test_sending.py"
# The copied tree has no settings of pytest.
options = "-q", "-o", "asyncio_mode=auto"
paths = [f"tests/emulation/{file}" for file in files]
raise SystemExit(pytest.main([*options, *paths]))
"""


def _library(name: str) -> str:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copied tree with a core that looks for faults.

    To build that takes 5 s of CPU: it is done once, and anew where a source changed.
    """
    kept = ROOT / f".pytest_cache/sanitized-{sys.implementation.cache_tag}"
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("emu", "tests", "nodes", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=MADE)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers may want it
        core = kept / "emu/prediction/core"
        # What a lab preloads is built beside the core.
        for sources in ("emu/prediction/core", "emu/lab/machines"):
            shutil.copytree(
                ROOT / sources, kept / sources, ignore=MADE, dirs_exist_ok=True
            )
        build_core(kept, sanitize=True, plain=True)
        for built in core.glob("*.so"):
            shutil.copy(built, tmp_path / "emu/prediction/core")
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(600)  # builds the core
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc has the sanitizers")
@pytest.mark.parametrize(
    "draws", [_DRAWS, _SEARCHES, _SENDERS], ids=["rules", "searches", "senders"]
)
def test_all_stays_within_its_arrays(tree: Path, draws: str) -> None:
    """A build with gaps between arrays; draw 134 found a fault under ``mrtf``."""
    done = subprocess.run(
        [sys.executable, "-c", draws],
        env={
            **os.environ,
            "PYTHONPATH": str(tree),
            "LD_PRELOAD": f"{_library('libasan.so')} {_library('libstdc++.so.6')}",
            "ASAN_OPTIONS": "detect_leaks=0",
        },
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
