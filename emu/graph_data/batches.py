"""Choose the vertices that a sampler learns in an iteration.

Every process derives the same answer from the job's settings alone (specs A3): no
message to the stores states what the samplers drew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from emu.array_types import Ints
from emu.graph_data.dataset import Dataset
from emu.graph_data.sampling import Ids, SampledBatch, Structure, sample_batch
from emu.host.stream_key import stream_key
from emu.prediction.core import lib, pointer

# separate streams of one job seed
_SEEDS = 1
_NEIGHBOURS = 2

#: A fanout beyond every degree: no sampling, all neighbours are taken.
ALL_NEIGHBOURS = 10_000_000


@dataclass(frozen=True)
class BatchPlan:
    """Seeds and sampling of every (sampler, iteration) of a job."""

    seed: int
    """Seed of the job."""
    samplers: int
    """Number of samplers, over all workers."""
    batch_size: int
    """Seeds per sampler and iteration, B_s."""
    fanouts: tuple[int, ...]
    """In DGL's order: the last number belongs to the seeds' hop."""
    epoch: str = "replicate"
    """``replicate``: each sampler walks a permutation of the whole training set (the
    paper, A4); ``shard``: of its own 1/samplers of it, by number; ``local``: of as
    many, by owner, see `near_owners`."""

    def __post_init__(self) -> None:
        least = min(self.samplers, self.batch_size, *self.fanouts)
        if least < 1 or not self.fanouts:
            raise ValueError("samplers, batch size and fanouts must be at least 1")
        is_known = self.epoch in {"replicate", "shard", "local"}
        if not is_known:
            raise ValueError(f"epoch is {self.epoch}, not replicate, shard or local")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> BatchPlan:
        """Return the plan of a job, from ``Job.settings``.

        Raises ValueError when a worker's batch does not divide among its samplers.
        """
        size = settings["batch_size"]
        samplers = settings["samplers_per_worker"]
        each, remainder = divmod(size, samplers)
        if remainder:
            problem = f"a batch of {size} does not divide among {samplers} samplers"
            raise ValueError(problem)

        return cls(
            seed=settings["seed"],
            samplers=settings["workers"] * samplers,
            batch_size=each,
            fanouts=tuple(settings["fanouts"]),
            epoch=settings["epoch"],
        )

    def _seeds_per_epoch(self, train: int) -> int:
        # Shards differ by at most one vertex; all walk the shortest length, so that
        # every worker has as many seeds as any other (dgl#3538 hangs otherwise).
        count = train
        if self.epoch != "replicate":
            count = train // self.samplers
        if count < 1:
            raise ValueError(
                f"{train} training vertices are too few for {self.samplers} samplers"
            )
        return count

    def steps_per_epoch(self, train: int) -> int:
        """Return the iterations of one epoch over ``train`` training vertices.

        Raises ValueError when a sampler would have no training vertex.
        """
        seeds = self._seeds_per_epoch(train)
        return -(-seeds // self.batch_size)  # rounded up

    def seeds_after(self, train: int, steps: Ints) -> Ints:
        """Return the seeds drawn after ``steps``; raises as `steps_per_epoch`."""
        of_epoch = train
        if self.epoch != "local":
            of_epoch = self.samplers * self._seeds_per_epoch(train)
        of_step = self.samplers * self.batch_size
        # The last batch of an epoch may be short: epochs are counted whole, only the
        # rest in full batches.
        steps_per_epoch = self.steps_per_epoch(train)
        epochs, rest = np.divmod(steps, steps_per_epoch)
        seeds = epochs * of_epoch + rest * of_step
        return np.asarray(seeds)

    def seeds(self, train: Ids, sampler: int, iteration: int) -> Ids:
        """Return the distinct seeds of one mini-batch; an epoch's last may be short.

        Under ``local`` every training vertex is a seed once per epoch: where shares
        part by one vertex, the last batch of the longer ones has one more. ``train``
        are the vertices of `walk`. Raises ValueError as `steps_per_epoch`.
        """
        vertices = len(train)
        count = self._seeds_per_epoch(vertices)
        steps = self.steps_per_epoch(vertices)
        epoch, step = divmod(iteration, steps)
        first = step * self.batch_size
        last = min(first + self.batch_size, count)
        share = train
        if self.epoch != "replicate":
            # Under `replicate` samplers overlap: each has a permutation of all.
            bounds = self.share_bounds(vertices)
            begin, end = bounds[sampler : sampler + 2]
            share = train[begin:end]
        if self.epoch == "local" and last == count:
            last = len(share)

        # A permutation of its own for every sampler and epoch.
        key = stream_key(self.seed, _SEEDS, sampler, epoch)
        size = last - first
        places = np.empty(size, np.int64)
        # Only the places of this batch: a whole permutation of papers100M's training
        # set would take 10 MB per sampler and process.
        lib.permuted(first, last, len(share), key, pointer(places))
        vertices_of_share = np.asarray(share)
        return vertices_of_share[places]

    def share_bounds(self, train: int) -> Ints:
        """Return where the share of every sampler begins, and the end of the last."""
        # Rounded down one by one: shares differ by one vertex at most.
        return np.arange(self.samplers + 1) * train // self.samplers

    def walk(self, dataset: Dataset) -> Ids:
        """Return the training vertices of a data set as `seeds` takes them."""
        if self.epoch != "local":
            return dataset.train
        return near_owners(dataset, self)

    def stream(self, sampler: int, iteration: int) -> np.uint64:
        """Return the key of the neighbour draws of one mini-batch."""
        return stream_key(self.seed, _NEIGHBOURS, sampler, iteration)

    def hop_fanout(self, hop: int) -> int:
        """Return the fanout of a hop; hop 1 is next to the seeds."""
        return self.fanouts[-hop]

    def batch(
        self,
        structure: Structure,
        train: Ids,
        sampler: int,
        iteration: int,
    ) -> SampledBatch:
        """Sample the batch of one (sampler, iteration); raises as `steps_per_epoch`."""
        seeds = self.seeds(train, sampler, iteration)
        stream = self.stream(sampler, iteration)
        return sample_batch(
            structure,
            seeds,
            fanouts=self.fanouts,
            stream=stream,
        )


@lru_cache(maxsize=4)
def near_owners(dataset: Dataset, plan: BatchPlan) -> Ids:
    """Return the training vertices, those of sampler s at its `BatchPlan.share_bounds`.

    Sampler s draws of what store ``s * stores // samplers`` owns, as far as that goes;
    of fewer samplers than stores each has as many stores. Shares are equal but for one
    vertex: what an owner has beyond its samplers' shares, its last vertices by number,
    goes to the first samplers whose owners have too few. That depends on no placement,
    only on which store owns what. DistDGL's ``node_split`` sorts by owner and cuts
    equal ranges, so that one owner that is short shifts all behind it.
    """
    train = np.asarray(dataset.train)
    stores = dataset.parts
    # Where there are more samplers than stores, several have one home.
    homes = min(plan.samplers, stores)
    bounds = plan.share_bounds(len(train))
    sizes = np.diff(bounds)
    # Whole numbers: consecutive samplers share a home.
    samplers = np.arange(plan.samplers)
    home_of_sampler = samplers * homes // plan.samplers
    sums = np.bincount(home_of_sampler, sizes, homes)
    room = sums.astype(np.int64)

    owner = np.asarray(dataset.owner)
    train_owners = owner[train].astype(np.int64)
    train_home = train_owners * homes // stores
    homes_in_order = range(homes)
    vertices_by_home = [train[train_home == home] for home in homes_in_order]
    pairs = list(zip(vertices_by_home, room, strict=True))
    # What owners have beyond their samplers' shares, for those that are short.
    beyond = np.concatenate([vertices[size:] for vertices, size in pairs])

    shares = []
    begin = 0
    for vertices, size in pairs:
        # Who is short takes the next of what others left over, in one order for all.
        missing = max(size - len(vertices), 0)
        end = begin + missing
        shares.append(vertices[:size])
        shares.append(beyond[begin:end])
        begin = end
    return np.concatenate(shares)
