"""What a training iteration weighs: samples of a synthetic graph, at published size.

A batch of B seeds on a graph of n vertices covers part of it and meets vertices twice;
both depend on B / n. So a graph of scale s is sampled with s * B seeds and the counts
are divided by s. A batch that small scatters 1 / sqrt(s) times too much around its
mean, which is taken back. With products at scale 0.05 this gives a peak-to-mean ratio
of 1.15 at 1000 seeds; the paper profiled 1.16.

Execution times are those of the project's benchmark workloads for a batch of
`REFERENCE_EDGES`, in proportion to the edges sampled; the parameter server's is fixed.
They, not the paper's (which are not published), set the balance of computation and
transfers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.graph_data import BatchPlan, batch_counts, open_dataset
from emu.problem import Profile
from emu.systems.dgtp.job import dgtp_times
from emu.workloads import parameter_count
from emu.workloads.volume_formulas import BLOCK_EDGE_BYTES, LABEL_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from emu.problem import Job
    from tools.paper_figures.settings import Setting

REFERENCE_BATCH = 1000
REFERENCE_EDGES = 850_000  # of products at 1000 seeds
SECONDS = {"graph_store": 0.020, "sampler": 0.015, "worker": 0.060}
SERVER_SECONDS = 0.005
FLOAT_BYTES = 4
POOL = 200  # batches sampled per batch size
PROFILED = 50  # iterations, as the paper profiles
STEEPEST = 64.0


@dataclass(frozen=True, eq=False)
class BatchPool:
    """Batches of one size, as they would be on the published graph.

    Parameters
    ----------
    batch
        Seeds per sampler.
    owned
        Input vertices per store, shape (batches, stores).
    edges
        Mean of the sampled edges of all layers.
    """

    batch: int
    owned: NDArray[np.float64]
    edges: float


def sampled_pools(
    setting: Setting, batches: Iterable[int], seed: int = 0
) -> dict[int, BatchPool]:
    """Return a pool of sampled batches for every batch size.

    The graph is made and partitioned by METIS on first use, which takes 10 s.
    """
    dataset = open_dataset(
        setting.dataset, scale=setting.scale, seed=seed, parts=setting.machines
    )
    pools = {}
    for batch in batches:
        plan = BatchPlan(
            seed=seed,
            samplers=1,
            batch_size=max(round(batch * setting.scale), 1),
            fanouts=setting.fanouts,
        )
        counts = [
            batch_counts(
                plan.batch(dataset.structure, dataset.train, 0, iteration),
                dataset.owner,
                dataset.parts,
            )
            for iteration in range(POOL)
        ]
        full = [c for c in counts if c.seeds == plan.batch_size]
        enlarged = batch / plan.batch_size
        pools[batch] = BatchPool(
            batch,
            at_published_size(np.array([c.owned for c in full]), enlarged),
            float(np.mean([c.edges for c in full])) * enlarged,
        )
    return pools


def at_published_size(owned: NDArray[np.int64], enlarged: float) -> NDArray[np.float64]:
    """Return counts of batches ``enlarged`` times as large; axis 0 are the batches.

    Means grow by ``enlarged``, deviations by its square root, as sums of independent
    parts do.
    """
    mean = owned.mean(axis=0)
    grown = enlarged * mean + np.sqrt(enlarged) * (owned - mean)
    return np.asarray(np.maximum(grown, 0.0))


def peak_to_mean(flows: NDArray[np.float64]) -> float:
    """Return the largest flow over the mean flow.

    The paper's PMR: a store and sampler transfer once per iteration, so that their data
    flow rate is the bytes of an iteration; the peak is over pairs and iterations.
    """
    return float(flows.max() / flows.mean())


def with_peak_to_mean(flows: NDArray[np.float64], ratio: float) -> NDArray[np.float64]:
    """Return ``flows`` scaled up and down to a peak-to-mean ratio of ``ratio``.

    Every flow is raised to one power and the sum restored: the order of the flows, the
    sum and positivity stay. (The paper does not say how it scales.)

    Raises
    ------
    ValueError
        When no power gives the ratio, as for flows that are all equal.
    """
    if ratio < 1:
        raise ValueError(f"a peak-to-mean ratio is at least 1, not {ratio}")
    relative = flows / flows.max()
    low, high = 0.0, STEEPEST
    if peak_to_mean(relative**high) < ratio:
        raise ValueError(f"these flows cannot have a peak-to-mean ratio of {ratio}")
    for _ in range(60):
        power = (low + high) / 2
        if peak_to_mean(relative**power) < ratio:
            low = power
        else:
            high = power
    scaled = relative**high
    return np.asarray(scaled * (flows.sum() / scaled.sum()))


def profile_of(
    setting: Setting,
    job: Job,
    pool: BatchPool,
    rng: np.random.Generator,
    pmr: float | None = None,
) -> Profile:
    """Return `PROFILED` iterations of ``job``, drawn from ``pool``.

    Parameters
    ----------
    pmr
        Peak-to-mean ratio of the flows from stores to samplers; None leaves them as
        sampled. What a sampler sends to its worker is what the stores sent it.
    """
    samplers = setting.workers * setting.samplers_per_worker
    chosen = rng.integers(len(pool.owned), size=(samplers, PROFILED))
    owned = pool.owned[chosen]  # sampler, iteration, store
    if pmr is not None:
        owned = with_peak_to_mean(owned, pmr)
    features = FLOAT_BYTES * setting.feature_length * owned
    blocks = BLOCK_EDGE_BYTES * pool.edges + LABEL_BYTES * pool.batch
    parameters = FLOAT_BYTES * parameter_count(
        {"hidden": setting.hidden, "layers": setting.layers},
        setting.feature_length,
        setting.classes,
    )
    volumes = np.empty((len(job.edges), PROFILED))
    for row, edge in zip(volumes, job.edges, strict=True):
        source, destination = job.tasks[edge.source], job.tasks[edge.destination]
        match source.kind:
            case "graph_store":
                place = source.settings["store"]
                row[:] = features[destination.settings["sampler"], :, place]
            case "sampler":
                row[:] = features[source.settings["sampler"]].sum(axis=1) + blocks
            case _:
                row[:] = parameters
    growth = pool.edges / REFERENCE_EDGES
    seconds = {kind: growth * time for kind, time in SECONDS.items()}
    times = dgtp_times(job, {**seconds, "parameter_server": SERVER_SECONDS})
    return Profile(np.repeat(times[:, :1], PROFILED, axis=1), volumes)
