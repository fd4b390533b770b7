"""Jobs in the words of every system, to compare systems on one scenario.

The vocabulary is `CommonJob`: the graph, the model, the seeds of all workers in one
iteration, and times. A system's `Translation` reads it from a job and writes a job of
it. Times of what is done to a mini-batch are in proportion to its seeds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from emu.errors import ScenarioError
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import DEFAULT_DEVICE, combine, time_on
from emu.problem.machine import SIZES
from emu.systems import Keys, PerDevice
from emu.systems.replica_section import ReplicaSection
from emu.systems.stores_section import StoresSection
from emu.systems.training_section import PHASES, TrainingSection
from emu.units import DURATION, SIZE

#: Keys that mean the same in every system that has them.
SAME_KEYS = (
    "dataset", "model", "fanouts", "samplers_per_worker", "features", "epoch",
    "credit_window", "optimizer", "precision", "rates", "coflow",
)  # fmt: skip
HOPS = ("sampler_hop", "graph_store_hop")


@dataclass(frozen=True)
class CommonJob:
    """A training job in the words of every system."""

    same: Mapping[str, Any]
    """Keys that mean the same in all systems, as stated."""
    workers: int
    batch_size: int
    """Seeds of each worker in an iteration."""
    machines: tuple[str, ...]
    """Those with room for a worker that samples as well, which may be fewer than there
    are workers."""
    stores: int
    """Machines that hold features."""
    everywhere: tuple[str, ...]
    """All machines of the cluster."""
    stated: tuple[str, ...] | None
    """Machines that the file states, the only ones that take part in any system."""
    partitioner: str
    """Partitioner of the features, where the system has a choice."""
    by_hops: bool
    """True where samplers ask for the structure hop by hop."""
    demands: Mapping[str, Mapping[str, float]]
    """Kind of process -> amounts; ``replica`` is a worker that samples as well."""
    times: Mapping[str, PerDevice]
    """Kind of task -> seconds, of mini-batches of ``batch_size`` seeds."""
    step: PerDevice
    """Seconds that a worker takes longer where it steps itself."""
    first_layer: float
    """Share of layer 1 in the operations of a forward pass."""
    epochs: int = 0
    """Passes over the training set that the iterations are, begun ones counted."""
    by_nic: tuple[str, ...] = ()
    """Machines of the cluster, those with the fastest NIC first."""
    gpus: bool = False
    """True where machines state gpus."""
    cache: Keys = field(default_factory=dict)
    """Key ``cache`` of systems that pull features, as stated, if it is."""
    owners: Keys = field(default_factory=dict)
    """Key ``stores`` of systems with graph stores, likewise."""

    @property
    def has_stores_apart(self) -> bool:
        """True where machines that compute may own no part of the graph."""
        stores = self.owners.get("stores", "auto")
        return bool(stores != "auto")

    def stores_on(self, machines: Sequence[str]) -> int:
        """Return the number of stores where these machines take part."""
        if self.has_stores_apart:
            return self.stores
        return len(machines)

    def spread(self, workers: int, stores: int) -> CommonJob:
        """Return as many seeds per iteration over such workers and stores.

        They are rounded to what the samplers of a worker can share evenly.
        """
        samplers = self.same.get("samplers_per_worker", 1)
        # All workers together learn from as many seeds: systems train alike.
        seeds = self.workers * self.batch_size
        sampler_batch = seeds / (workers * samplers)
        # Every sampler has a seed at the least.
        batch = samplers * max(1, round(sampler_batch))
        batch_growth = batch / self.batch_size
        factors = {
            # A store has a share of all rows; servers and rings see no mini-batch.
            "graph_store": self.stores / stores,
            "parameter_server": 1.0,
            "all_reduce": 1.0,
        }

        times = {}
        for kind, time in self.times.items():
            factor = factors.get(kind, batch_growth)
            times[kind] = scale_time(time, factor)
        return replace(
            self,
            workers=workers,
            batch_size=batch,
            stores=stores,
            times=times,
        )

    def phases(self) -> dict[str, PerDevice]:
        """Return the times of P3's phases: as stated, else by operations.

        A backward pass takes twice the operations of its forward pass, of layer 1 as
        many: features need no gradient. What graph stores take to collect is of layer
        1, whose machines collect as many bytes, by columns.
        """
        times = self.times_of(*PHASES)
        is_complete = len(times) == len(PHASES)
        if not is_complete and "worker" in self.times:
            first = self.first_layer
            rest = 1 - self.first_layer
            parts = (first, rest, 2 * rest, first)
            worker = self.times["worker"]
            for phase, part in zip(PHASES, parts, strict=True):
                times[phase] = scale_time(worker, part / sum(parts))

        # P3 has no stores: its first phase collects, its last one steps.
        more_times = {
            PHASES[0]: self.times.get("graph_store", 0.0),
            PHASES[-1]: self.step,
        }
        for phase, time in more_times.items():
            if phase in times:
                times[phase] = add_times(times[phase], time)
        return times

    def times_of(self, *kinds: str) -> dict[str, PerDevice]:
        """Return the times that are known of some kinds of task."""
        return {kind: self.times[kind] for kind in kinds if kind in self.times}


def scale_time(time: PerDevice, factor: float) -> PerDevice:
    """Return a time, or one per device, times a factor."""
    return combine(lambda seconds: seconds * factor, time)


def add_times(*times: PerDevice) -> PerDevice:
    """Return the sum of two times, device by device."""
    return combine(operator.add, *times)


@dataclass(frozen=True)
class Translation:
    """A system's way into the common vocabulary and out of it."""

    read: Callable[[Any, ClusterSection], Keys] | None
    """Returns the fields of `CommonJob` that differ by system, from the ``job`` section
    and the cluster; None where a job says nothing of mini-batches."""
    write: Callable[[CommonJob], Keys]
    """Returns keys and values of a ``job`` section."""
    splits_first_layer: bool = False
    """True where `write` uses ``CommonJob.first_layer``; the graph is sampled then."""
    counts_epochs: bool = False
    """True where it uses ``CommonJob.epochs``; the data set is opened then."""


def read_replicas(
    job: ReplicaSection,
    cluster: ClusterSection,
    *,
    by_hops: bool = False,
) -> Keys:
    """Return the values that differ by system, of replicas, which step themselves."""
    ranks = job.ranks(cluster.names)
    demands = {kind: amounts.amounts() for kind, amounts in job.demands}
    keys: Keys = {"cache": {}, "owners": {}}
    if isinstance(job, StoresSection):
        keys = {"cache": job.cache_keys, "owners": job.store_keys}

    return {
        **keys,
        "workers": len(ranks),
        "machines": ranks,
        "stores": len(job.owners(cluster.names)),
        "by_hops": by_hops,
        "demands": {**demands, "replica": demands["worker"]},
        "step": 0.0,
    }


def roomy_machines(
    job: TrainingSection,
    cluster: ClusterSection,
    needed: dict[str, float],
    workers: int,
    among: Collection[str],
) -> tuple[str, ...]:
    """Return machines with room for a replica, at most ``workers``, in their order.

    Of more, those on which a worker takes the least time, then those whose NIC takes
    most in: replicas receive features, which are more than what they send. One that
    states no gpu has none where others do.
    """
    if cluster.has_gpus:
        needed = {"gpu": 1.0, **needed}
    times = job.times.by_kind()
    time = times.get("worker", 0.0)
    if job.rates is not None:  # workers multiply most
        time = job.rates.multiply

    sections = cluster.by_name
    positions = {name: position for position, name in enumerate(cluster.names)}
    machines = {machine.name: machine for machine in cluster.build().machines}

    def badness(name: str) -> tuple[float, float, int]:
        device = sections[name].device or DEFAULT_DEVICE
        seconds = time_on(time, device)
        bandwidth = machines[name].bandwidth_in
        return seconds, -bandwidth, positions[name]

    candidates = [name for name in cluster.roomy(needed) if name in among]
    if not candidates:
        raise ScenarioError(
            "no machine has room for a worker with its samplers, which are one process "
            "in data_parallel and p3: state smaller demands",
            key="job.demands",
        )
    candidates.sort(key=badness)
    best = candidates[:workers]
    # In the cluster's order again: ranks must not depend on speeds.
    best.sort(key=positions.__getitem__)
    return tuple(best)


def machines_key(common: CommonJob) -> Keys:
    """Return the machines that take part, where these are not all."""
    if common.machines == common.everywhere:
        return {}
    return {"machines": [*common.machines]}


def refuse_stores(common: CommonJob, system: str) -> None:
    """Raise ScenarioError where graph stores stand apart; the system has none."""
    if common.has_stores_apart:
        problem = (
            f"{system} has no graph stores: systems: {{{system}: {{stores: auto}}}} "
            "lets each machine own a part"
        )
        raise ScenarioError(problem, key="job.stores")


#: Keys of a mini-batch job that a system has which trains on the whole graph.
_WHOLE_KEYS = ("dataset", "optimizer", "precision", "rates", "coflow")


def write_whole_graph(common: CommonJob, system: str, *kinds: str) -> Keys:
    """Return the keys of a job that trains on the whole graph, as many epochs.

    ``kinds`` are those of its models. Neighbours are averaged, as in mini-batches.
    Raises ScenarioError when it has no such model, times or stores are stated.
    """
    refuse_stores(common, system)
    model = common.same["model"]
    kind = model.get("kind", "sage")
    # A model is not changed for the sake of a comparison.
    if kind not in kinds:
        problem = f"trains {' or '.join(kinds)} on the whole graph, not {kind}"
        raise ScenarioError(problem, key="job.model.kind")
    if common.same.get("rates") is None:
        problem = (
            "times of mini-batches say nothing of the whole graph: write job.rates in "
            "place of job.times, emu profile --rates measures them"
        )
        raise ScenarioError(problem, key="job.times")

    whole_model = {"kind": kind}
    for key in ("hidden", "layers"):
        if key in model:
            whole_model[key] = model[key]
    # Sampled systems average neighbours: so must this one, to train the same.
    if kind == "gcn":
        whole_model["norm"] = "mean"
    # As sampled systems have it between layers, whatever this one's default is.
    whole_model["activation"] = "relu"
    machines = common.stated or common.everywhere
    stated = {key: common.same[key] for key in _WHOLE_KEYS if key in common.same}
    return {
        **stated,
        "model": whole_model,
        "epochs": common.epochs,
        "machines": list(machines),
    }


def write_common(
    common: CommonJob,
    times: Mapping[str, PerDevice],
    *demanding: str,
) -> Keys:
    """Return the keys that all systems have, as a scenario states them."""
    demands = {}
    for kind in demanding:
        amounts = {}
        stated = common.demands.get(kind, {})
        for name, amount in stated.items():
            amounts[name] = SIZE.exact(amount) if name in SIZES else amount
        if amounts:
            process = "worker" if kind == "replica" else kind
            demands[process] = amounts

    keys = {
        **common.same,
        "batch_size": common.batch_size,
        "demands": demands,
    }
    if "rates" not in common.same:
        keys["times"] = _text(times)
    return keys


def _text(time: PerDevice | Mapping[str, PerDevice]) -> Any:
    if isinstance(time, Mapping):
        return {device: _text(seconds) for device, seconds in time.items()}
    # Nine digits: a translated job must take the same time as its source.
    return DURATION.format(time, 9)
