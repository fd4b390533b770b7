"""Where placement pays: what it saves on DistDGL's, over kinds of clusters and loads.

The job is that of products. Half of the machines have a NIC of 50 Gbit/s, the others a
slower one; cores are shared out at random. Rates are max-min on all sides (TCP), so the
placement alone makes the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.errors import InfeasiblePlacement
from emu.placement import (
    EtpOptions,
    SearchOptions,
    place_distdgl,
    place_ifs,
    search,
    search_etp,
)
from emu.problem import Cluster, Machine, Problem
from emu.simulation import makespan
from tools.paper_figures.contest import COST_UNIT, ITERATIONS
from tools.paper_figures.settings import GB, GBIT, SETTINGS
from tools.paper_figures.traffic import REFERENCE_BATCH, profile_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from emu.problem import Job, Placement, Profile
    from tools.paper_figures.traffic import BatchPool

FAST = 50 * GBIT
CANDIDATES = 3000
RULE = "maxmin"


class Cell(NamedTuple):
    """One kind of cluster and load.

    Parameters
    ----------
    spread
        Bandwidth of a fast NIC over that of a slow one.
    room
        Cores of all machines over those that the job demands.
    batch, pmr
        Seeds per sampler, and peak-to-mean ratio; 0 leaves the flows as sampled.
    """

    spread: float
    room: float
    batch: int
    pmr: float


CELLS = tuple(
    Cell(spread, room, batch, pmr)
    for spread, room, (batch, pmr) in product(
        (1.0, 2.0, 5.0, 10.0),
        (1.1, 1.5, 3.0),
        ((250, 0.0), (REFERENCE_BATCH, 0.0), (REFERENCE_BATCH, 3.0)),
    )
)


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Makespans of one draw of a cell, seconds, each with its placement."""

    spread: float
    room: float
    batch: int
    pmr: float
    draw: int
    distdgl: float
    etp: float
    search: float


def draw_gain(cell: Cell, draw: int, pools: Mapping[int, BatchPool]) -> Gain:
    """Place the job on one cluster of a cell in three ways; simulate another run."""
    setting = SETTINGS["products"]
    job = setting.job(ITERATIONS)
    rng = np.random.default_rng([draw, *(round(10 * value) for value in cell)])
    cluster = _cluster(job, cell, rng)
    profile = profile_of(setting, job, pools[cell.batch], rng, cell.pmr or None)
    run = profile.draw(rng, ITERATIONS)
    spans = {
        name: makespan(Problem(cluster, job, placement), run, RULE)
        for name, placement in _placements(job, cluster, profile, draw)
    }
    return Gain(
        spread=cell.spread,
        room=cell.room,
        batch=cell.batch,
        pmr=cell.pmr,
        draw=draw,
        **spans,
    )


def _placements(
    job: Job, cluster: Cluster, profile: Profile, seed: int
) -> Iterator[tuple[str, Placement]]:
    naive = place_distdgl(job, cluster)
    yield "distdgl", naive
    drawn = profile.draw(np.random.default_rng(seed), ITERATIONS)
    unit = COST_UNIT * makespan(Problem(cluster, job, naive), drawn, RULE)
    etp = EtpOptions(
        transfers=CANDIDATES, iterations=ITERATIONS, beta_unit=unit, policy=RULE
    )
    yield "etp", search_etp(job, cluster, profile, seed=seed, options=etp).placement
    ours = SearchOptions(
        transfers=CANDIDATES, iterations=ITERATIONS, rounds=1, policy=RULE
    )
    yield "search", search(job, cluster, profile, seed=seed, options=ours).placement


def _cluster(job: Job, cell: Cell, rng: np.random.Generator) -> Cluster:
    """Return machines of ``cell`` that hold ``job``.

    Raises
    ------
    InfeasiblePlacement
        When 1000 draws were in vain.
    """
    count = sum(task.kind == "graph_store" for task in job.tasks)
    asked = sum(task.demands.get("cpu", 0.0) for task in job.tasks)
    for _ in range(1000):
        share = rng.uniform(4, 16, count)
        cores = np.floor(2 * cell.room * asked * share / share.sum()) / 2
        nics = rng.permutation([FAST / cell.spread, FAST] * (count // 2))
        machines = tuple(
            Machine(f"m{m}", nic, nic, {"cpu": own, "gpu": gpus, "memory": 128 * GB})
            for m, (nic, own, gpus) in enumerate(
                zip(nics.tolist(), cores.tolist(), _gpus(count, rng), strict=True)
            )
        )
        try:
            place_ifs(job, Cluster(machines), rng)
        except InfeasiblePlacement:
            continue
        return Cluster(machines)
    raise InfeasiblePlacement("no draw holds the job", resource="cpu", shortfall=0.0)


def _gpus(count: int, rng: np.random.Generator) -> list[float]:
    return rng.integers(1, 5, count).astype(float).tolist()  # type: ignore[no-any-return]
