"""One scenario as several systems: the same training, in the keys of each.

The vocabulary is `CommonJob`: the graph, the model, the seeds of all workers in one
iteration, and times. Of every system one function reads it from a job, and one writes a
job. Times of what is done to a mini-batch are in proportion to its seeds.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from ruamel.yaml import YAML

from emu.atomic_file import write_atomic
from emu.errors import DataError, ScenarioError
from emu.graph_data import BatchPlan, open_for, sampled_counts
from emu.scenario import build_job, load, read_profile
from emu.scenario.p3_section import P3JobSection
from emu.scenario.quantities import DEFAULT_DEVICE, combined, time_on
from emu.units import DURATION, SIZE
from emu.workloads import PHASES, first_layer_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from emu.scenario import Scenario
    from emu.scenario.cluster_section import ClusterSection
    from emu.scenario.dgtp_section import DgtpJobSection
    from emu.scenario.p3_section import ReplicaSection

    Time = float | dict[str, float]
    TrainingJob = DgtpJobSection | ReplicaSection

#: Keys that mean the same in every system that has them.
_SAME = (
    "dataset", "model", "fanouts", "epoch", "credit_window", "optimizer", "precision",
)  # fmt: skip
_HOPS = ("sampler_hop", "graph_store_hop")


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
    partitioner: str
    """Of the features, where the system has a choice."""
    by_hops: bool
    """Whether samplers ask for the structure hop by hop."""
    demands: Mapping[str, Mapping[str, float]]
    """Kind of process -> amounts; ``replica`` is a worker that samples as well."""
    times: Mapping[str, Time]
    """Kind of task -> seconds, of mini-batches of ``batch_size`` seeds."""
    step: Time
    """Seconds that a worker takes longer where it steps itself."""
    first_layer: float
    """Share of layer 1 in the operations of a forward pass."""

    def spread(self, workers: int, stores: int) -> CommonJob:
        """Return the same seeds per iteration over so many workers and stores.

        They are rounded to whole ones per worker.
        """
        batch = max(1, round(self.workers * self.batch_size / workers))
        factors = {
            "graph_store": self.stores / stores,
            "parameter_server": 1.0,
            "all_reduce": 1.0,
        }
        times = {
            kind: _scaled(time, factors.get(kind, batch / self.batch_size))
            for kind, time in self.times.items()
        }
        return replace(
            self, workers=workers, batch_size=batch, stores=stores, times=times
        )

    def phases(self) -> dict[str, Time]:
        """Return the times of P3's phases: as stated, else by operations.

        A backward pass takes twice the operations of its forward pass, of layer 1 as
        many: nobody asks for the gradient of the features.
        """
        found = self.taken(*PHASES.values())
        if len(found) < len(PHASES) and "worker" in self.times:
            first, rest = self.first_layer, 1 - self.first_layer
            parts = (first, rest, 2 * rest, first)
            found = {
                phase: _scaled(self.times["worker"], part / sum(parts))
                for phase, part in zip(PHASES.values(), parts, strict=True)
            }
        last = PHASES["Mb"]
        return found | {
            kind: _sum(found[last], self.step) for kind in found.keys() & {last}
        }

    def taken(self, *kinds: str) -> dict[str, Time]:
        """Return the times that are known of some kinds of task."""
        return {kind: self.times[kind] for kind in kinds if kind in self.times}


def _scaled(time: Time, factor: float) -> Time:
    return combined(lambda seconds: seconds * factor, time)


def _sum(one: Time, other: Time) -> Time:
    return combined(lambda a, b: a + b, one, other)


def _read_dgtp(job: DgtpJobSection, cluster: ClusterSection) -> dict[str, Any]:
    """Return what is a matter of dgtp: servers step, samplers are processes."""
    demands, times = _demands(job), job.times.by_kind()
    worker, sampler = demands["worker"], demands["sampler"]
    replica = {
        name: worker.get(name, 0.0) + job.samplers_per_worker * sampler.get(name, 0.0)
        for name in worker | sampler
    }
    served = job.sync == "parameter_server" and "parameter_server" in times
    return {
        "workers": job.workers,
        "machines": _roomy(job, cluster, replica),
        "stores": len(cluster.named()),
        "by_hops": job.sampling == "multiround",
        "demands": {**demands, "replica": replica},
        # Each server steps its shard, a replica the whole model.
        "step": _scaled(times["parameter_server"], job.parameter_servers)
        if served
        else 0.0,
    }


def _read_replicas(job: ReplicaSection, cluster: ClusterSection) -> dict[str, Any]:
    """Return the same of one replica per machine, which steps itself."""
    ranks = job.ranks([name for name, _ in cluster.named()])
    demands = _demands(job)
    hashed = isinstance(job, P3JobSection) and job.structure == "hashed"
    return {
        "workers": len(ranks),
        "machines": ranks,
        "stores": len(ranks),
        "by_hops": hashed,
        "demands": {**demands, "replica": demands["worker"]},
        "step": 0.0,
    }


def _demands(job: TrainingJob) -> dict[str, dict[str, float]]:
    return {kind: amounts.amounts() for kind, amounts in job.demands}


def _roomy(
    job: DgtpJobSection, cluster: ClusterSection, needed: dict[str, float]
) -> tuple[str, ...]:
    """Return machines with room for a replica, at most one per worker, in their order.

    Where there are more, those on which a worker takes the least time, then those with
    the fastest NIC. One that states no gpu has none where others do.
    """
    gpus = any(machine.gpu for machine in cluster.machines)
    needed = {"gpu": 1.0, **needed} if gpus else needed
    time = job.times.by_kind().get("worker", 0.0)
    built, found = cluster.build().machines, []
    for number, (name, position) in enumerate(cluster.named()):
        machine = cluster.machines[position]
        rooms = {"gpu": 0.0} | machine.amounts() if gpus else machine.amounts()
        if all(rooms.get(r, inf) >= amount for r, amount in needed.items()):
            seconds = time_on(time, machine.device or DEFAULT_DEVICE)
            found.append((seconds, -built[number].bandwidth_in, number, name))
    if not found:
        raise ScenarioError(
            "no machine has room for a worker with its samplers, which are one process "
            "in data_parallel and p3: state smaller demands",
            key="job.demands",
        )
    chosen = sorted(found)[: job.workers]
    return tuple(name for *_, name in sorted(chosen, key=lambda one: one[2]))


def _write_dgtp(common: CommonJob) -> dict[str, Any]:
    common = common.spread(common.workers, len(common.everywhere))
    kinds = ("graph_store", "sampler", "worker", "parameter_server")
    times = {"graph_store": 0.0, "parameter_server": 0.0, **common.taken(*kinds)}
    if common.by_hops:
        times |= {"sampler_fetch": 0.0, **common.taken(*_HOPS, "sampler_fetch")}
    return {
        "workers": common.workers,
        "partitioner": common.partitioner,
        "sampling": "multiround" if common.by_hops else "oneshot",
        **_written(common, times, "worker", "graph_store"),
    }


def _write_data_parallel(common: CommonJob) -> dict[str, Any]:
    common = common.spread(len(common.machines), len(common.machines))
    times = common.taken("sampler", "worker", "graph_store", "all_reduce")
    times |= {k: _sum(times[k], common.step) for k in times.keys() & {"worker"}}
    imported = common.partitioner == "imported"  # which only dgtp takes
    return {
        "partitioner": "hash" if imported else common.partitioner,
        **_placed(common),
        **_written(common, times, "replica", "graph_store"),
    }


def _write_p3(common: CommonJob) -> dict[str, Any]:
    common = common.spread(len(common.machines), len(common.machines))
    times = common.taken("sampler", "all_reduce", *(_HOPS if common.by_hops else ()))
    return {
        **_placed(common),
        "structure": "hashed" if common.by_hops else "replicated",
        **_written(common, times | common.phases(), "replica"),
    }


def _placed(common: CommonJob) -> dict[str, Any]:
    if common.machines == common.everywhere:
        return {}
    return {"machines": [*common.machines]}


def _written(
    common: CommonJob, times: Mapping[str, Time], *demanding: str
) -> dict[str, Any]:
    """Return the keys that all systems have, as a scenario states them."""
    demands = {
        "worker" if kind == "replica" else kind: {
            name: SIZE.exact(amount) if name == "memory" else amount
            for name, amount in common.demands.get(kind, {}).items()
        }
        for kind in demanding
    }
    return {
        **common.same,
        "batch_size": common.batch_size,
        "demands": {kind: amounts for kind, amounts in demands.items() if amounts},
        "times": {kind: _text(time) for kind, time in times.items()},
    }


def _text(time: Time) -> Any:
    if isinstance(time, dict):
        return {device: _text(seconds) for device, seconds in time.items()}
    return DURATION.exact(float(f"{time:.9g}"))  # 113.5 ms, not 0.11349999999999999 s


@dataclass(frozen=True)
class _System:
    read: Callable[[Any, ClusterSection], dict[str, Any]]
    write: Callable[[CommonJob], dict[str, Any]]


#: The systems that a scenario can be turned into.
SYSTEMS = {
    "dgtp": _System(_read_dgtp, _write_dgtp),
    "data_parallel": _System(_read_replicas, _write_data_parallel),
    "p3": _System(_read_replicas, _write_p3),
}


def as_system(
    scenario: Scenario, system: str, overrides: Mapping[str, object] | None = None
) -> Scenario:
    """Return a scenario as another system, with as many seeds per iteration.

    Parameters
    ----------
    overrides
        Keys of the scenario before it is translated, as for `load`.

    Raises
    ------
    ScenarioError
        When either is no system of mini-batches, times are those of a profile, or the
        changed scenario is wrong.
    DataError
        When the data set is needed (for epochs, or the phases of P3) and is missing, or
        the profile is, or is of another job.
    """
    scenario = load(scenario, {**(overrides or {}), "expect": None})
    for name in (scenario.job.system, system):
        if name not in SYSTEMS:
            raise ScenarioError(
                f"{name!r} is not among the systems that can be compared: "
                f"{', '.join(SYSTEMS)}",
                file=scenario.name,
                key="job.system",
            )
    if scenario.job.system == system:
        return scenario
    if scenario.profile is not None:
        problem = (
            "is of one system, to compare several write its means instead: "
            f"job.times={_mean_times(scenario)}"
        )
        raise ScenarioError(problem, file=scenario.name, key="profile")
    job = SYSTEMS[system].write(_common(scenario, split=system == "p3"))
    changes: dict[str, object] = {"job": {"system": system, **job}}
    if scenario.placement.tasks:  # by names that the other system's tasks do not have
        changes["placement"] = None
    return load(scenario, changes)


def _mean_times(scenario: Scenario) -> str:
    """Return the mean times of a scenario's profile by kind, as ``job.times``."""
    job = build_job(scenario)
    found = read_profile(scenario.profile or "").profile(job)
    rows: dict[str, list[float]] = {}
    for task, times in zip(job.tasks, found.times, strict=True):
        rows.setdefault(task.kind, []).append(times.mean())
    share = cast("TrainingJob", scenario.job).share
    means = {
        kind: DURATION.format(float(np.mean(times)) / share(kind))
        for kind, times in sorted(rows.items())
    }
    return f"{{{', '.join(f'{kind}: {time}' for kind, time in means.items())}}}"


def _common(scenario: Scenario, *, split: bool) -> CommonJob:
    """Return the job of a scenario in common words."""
    job = cast("TrainingJob", scenario.job)
    stated = job.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    same = {key: stated[key] for key in _SAME if key in stated}
    batches = job.iterations
    if batches is None:
        built = build_job(scenario)
        batches = built.settings.get("batches", built.iterations)
    times = job.times.by_kind()
    phased = all(phase in times for phase in PHASES.values())
    # P3 takes no program, and says so itself.
    split &= not phased and "worker" in times and "hidden" in stated["model"]
    return CommonJob(
        same={**same, "iterations": batches},
        batch_size=job.batch_size,
        everywhere=tuple(name for name, _ in scenario.cluster.named()),
        partitioner=getattr(job, "partitioner", "hash"),
        times=times,
        first_layer=_first_layer(scenario) if split else 0.0,
        **SYSTEMS[job.system].read(job, scenario.cluster),
    )


def _first_layer(scenario: Scenario) -> float:
    """Return the share of layer 1 in a forward pass, of one sampled mini-batch."""
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    dataset = open_for(settings)
    plan = replace(BatchPlan.from_settings(settings), samplers=1)
    ((counts,),) = sampled_counts(dataset, plan, 1)
    return first_layer_share(
        settings["model"],
        dataset.feature_length,
        dataset.classes,
        edges=[sum(owned) for owned in counts.answered[::-1]],
        vertices=[sum(o) for o in (counts.owned, *counts.frontier_owned[::-1])],
    )


def edits(scenario: Scenario, translated: Scenario) -> dict[str, tuple[Any, Any]]:
    """Return key -> (what it was, what it is) of what a translation states otherwise.

    None where there is no such key, or the default.
    """
    before, after = (
        _flat(
            one.model_dump(
                mode="json",
                include={"job", "placement"},
                exclude_none=True,
                exclude_defaults=True,
            )
        )
        for one in (scenario, translated)
    )
    return {
        key: (before.get(key), after.get(key))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    }


def _flat(found: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in found.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def write_system(scenario: Scenario, system: str, file: Path) -> None:
    """Write a scenario as another system, for ``emu simulate``; makes its folder.

    Raises
    ------
    ScenarioError, DataError
        As `as_system`, or when it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made: {error.strerror}"
        raise DataError(problem, path=str(file.parent)) from error
    text = io.StringIO()
    YAML().dump(as_system(scenario, system).to_json(), text)
    write_atomic(file, text.getvalue())
