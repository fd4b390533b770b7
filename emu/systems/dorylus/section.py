"""Section ``job`` of ``system: dorylus``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import ScenarioError
from emu.graph_data import open_for
from emu.graph_data.intervals import IntervalCounts, count_intervals
from emu.problem import Cluster, Job, Realization, Tuner
from emu.problem.fields.cluster_section import (
    ClusterSection,
    Latency,
    MachineNic,
    MachineSection,
    RackSection,
)
from emu.problem.fields.quantities import write_times
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads.operations import Operations
from emu.systems import Edit, Keys, Problems, Times
from emu.systems.dorylus.deaths import UnansweredLambda
from emu.systems.dorylus.job import dorylus_job
from emu.systems.dorylus.sections import LAMBDA, DorylusKeys, TunerSection
from emu.systems.dorylus.steps import LAMBDAS, THREADS
from emu.systems.dorylus.volumes import (
    count_steps,
    dorylus_times,
    dorylus_volumes,
    epochs_of_edge,
    weight_bytes,
)
from emu.systems.job_section import BuildContext, whole_kinds
from emu.systems.training_section import lacking_memory, number_bytes
from emu.systems.translation import CommonJob, Translation, write_whole_graph
from emu.units import SIZE

#: Keys that nothing but lambdas heeds.
_OF_LAMBDAS = (
    "lambdas", "tuner", "launch", "slow_lambdas", "dying_lambdas", "stream",
    "lambda_latency",
)  # fmt: skip


class DorylusJobSection(DorylusKeys):
    """Dorylus: whole-graph training by graph servers and lambdas.

    ``machines`` are the graph servers; default is all but the parameter servers.
    """

    @property
    @override
    def uncut(self) -> str:
        """Epochs of intervals overlap where reads are of the newest."""
        asynchronous = "mode async keeps no checkpoints: write pipe, or remove this key"
        return asynchronous if self.mode == "async" else ""

    unprofiled: ClassVar[str] = "a profile knows no intervals, write job.times instead"

    @override
    def with_machines(self, cluster: ClusterSection) -> ClusterSection:
        """Return the cluster with slots on servers, and the lambdas behind uplinks.

        What the cluster states already stays: machines called ``lambda0``, ... and
        racks called ``lambdas of SERVER``.
        """
        names = cluster.names
        by_name = cluster.by_name
        servers = self.ranks(names)
        if not servers or not {*servers} <= {*names} or len({*servers}) < len(servers):
            return cluster  # errors of their own
        of_servers = [by_name[server] for server in servers]
        machines = [
            machine.model_copy(update={"slots": self._slots(machine)})
            if any(machine is server for server in of_servers)
            else machine
            for machine in cluster.machines
        ]
        if not self.uses_lambdas or _without_nic(cluster):
            return cluster.model_copy(update={"machines": tuple(machines)})
        lambdas = self.lambdas_of(servers)
        racks = [*cluster.racks]
        rack_names = {rack.name for rack in racks}
        for number, server in enumerate(servers):
            first = number * self.intervals
            rack = RackSection.model_construct(
                name=_rack_name(server),
                machines=lambdas[first : first + self.intervals],
                uplink=_nic(self.lambda_uplink),
            )
            racks += [] if rack.name in rack_names else [rack]
        if lambdas[0] not in names:
            count = len(lambdas)
            machines.append(
                MachineSection.model_construct(
                    name="lambda" if count > 1 else lambdas[0],
                    count=count,
                    nic=_nic(self.lambda_nic, self.lambda_latency),
                )
            )
        update = {"machines": tuple(machines), "racks": tuple(racks)}
        return cluster.model_copy(update=update)

    def _slots(self, server: MachineSection) -> dict[str, int]:
        """Return the slots of a server, those that it states among them."""
        slots = {THREADS: self.threads or max(int(server.cpu or 1), 1)}
        slots[LAMBDAS] = self.quota
        if self.backend == "gpu":
            slots["gpu"] = max(int(server.gpu or 1), 1)
        return {**slots, **server.slots}

    @property
    @override
    def made_slots(self) -> frozenset[str]:
        """Cores, as threads, unless these are stated; GPUs where they compute."""
        cores = {"cpu"} if self.threads is None else set()
        return frozenset(cores | ({"gpu"} if self.backend == "gpu" else set()))

    @override
    def tuners(self, cluster: Cluster) -> tuple[Tuner, ...]:
        if self.lambdas != "auto":
            return ()
        servers = self.ranks([machine.name for machine in cluster.machines])
        slots = {
            place: machine.slots[LAMBDAS]
            for place, machine in enumerate(cluster.machines)
            if machine.name in servers and LAMBDAS in machine.slots
        }
        return tuple(
            Tuner(
                place, LAMBDAS, THREADS, max(first, self.intervals), self.tuner.period
            )
            for place, first in slots.items()
        )

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        names = [name for name in cluster.names if not name.startswith(LAMBDA)]
        for position, name in enumerate(self.parameter_servers):
            trail: Trail = ("job", "parameter_servers", position)
            if name not in names:
                yield trail, f"no machine {name!r}, {nearest(name, names)}"
            elif name in self.parameter_servers[:position]:
                yield trail, f"{name!r} occurs twice, write it once"
        graph_servers = len(self.ranks(names))
        if not graph_servers:
            problem = "no machine is left for a graph server, write machines"
            yield ("job", "machines"), problem
        elif len(self.parameter_servers) > (most := graph_servers * self.intervals):
            problem = (
                f"found {len(self.parameter_servers)} for {most} intervals, of which "
                f"each meets one: write {most} or fewer, or more job.intervals"
            )
            yield ("job", "parameter_servers"), problem
        if self.staleness and self.mode != "async":
            problem = f"found {self.staleness} with mode {self.mode}, write mode: async"
            yield ("job", "staleness"), problem
        yield from self._backend_problems(cluster)
        if self.attends:
            yield from self._attention_problems()
            return
        for key in ("edge_apply", "edge_apply_back"):
            if getattr(self.times, key) is not None:
                problem = "gcn computes nothing on edges: remove this key"
                yield ("job", "times", key), problem

    def _backend_problems(self, cluster: ClusterSection) -> Problems:
        first = cluster.by_name.get(f"{LAMBDA}0")
        if not self.uses_lambdas:
            for key in _OF_LAMBDAS:
                if getattr(self, key) != type(self).model_fields[key].default:
                    problem = f"backend {self.backend} has no lambdas, remove this key"
                    yield ("job", key), problem
        elif bare := _without_nic(cluster):
            problem = (
                f"lambdas are reached through NICs, {bare[0]} has none: state its nic, "
                "or write backend: cpu"
            )
            yield ("job", "backend"), problem
        elif first and self.lambda_latency not in {0.0, first.nic.latency.outward}:
            problem = f"the cluster states {LAMBDA}0: write nic.latency there instead"
            yield ("job", "lambda_latency"), problem
        elif self.stream > 1 and self.dying_lambdas.share:
            problem = "lambdas that may die have one part: write 1"
            yield ("job", "stream"), problem
        elif self.tuner != TunerSection() and self.lambdas != "auto":
            yield ("job", "tuner"), "the quota is not tuned, write lambdas: auto"

    def _attention_problems(self) -> Problems:
        if self.model.norm is not None:
            problem = f"found {self.model.norm} for gat, which attends: remove this key"
            yield ("job", "model", "norm"), problem
        if self.rematerialize:
            problem = "gat always computes activations again: remove this key"
            yield ("job", "rematerialize"), problem
        if self.stream > 1:
            problem = f"found {self.stream}, lambdas of gat have one part: write 1"
            yield ("job", "stream"), problem

    @override
    def list_untimed(self) -> Iterator[str]:
        kinds = {"gather", "apply"}
        if self.attends or self.model.layers > 1:
            kinds.add("scatter")
        if self.attends:
            kinds.add("edge_apply")
        yield from sorted(kinds - self.times.by_kind().keys())

    @override
    def scale_times(
        self, tasks: Mapping[str, str], wanted: set[str], scale: Callable[[Any], Any]
    ) -> tuple[Edit, set[str]]:
        # A backward time that follows from a forward one is written out beside it.
        kinds = whole_kinds(tasks, wanted)
        times = self.times.by_kind()
        times = times if self.rates is None else {}
        edit: Edit = {}
        if "launch" in kinds:
            edit |= {f"job.launch.{key}": scale(time) for key, time in self.launch}
        for kind in kinds & times.keys():
            edit[f"job.times.{kind}"] = scale(times[kind])
            back = f"{kind}_back"
            if back in times and back not in kinds:
                edit[f"job.times.{back}"] = write_times(times[back])
        keys = kinds & {"launch", *times}
        return edit, {name for name in wanted if tasks[name] in keys}

    @override
    def scale_links(
        self, cluster: ClusterSection, links: set[str], scale: Callable[[Any], Any]
    ) -> tuple[Edit, set[str]]:
        if not self.uses_lambdas:
            return {}, set()
        servers = self.ranks(cluster.names)
        lambdas = {*self.lambdas_of(servers)} - {*cluster.names}
        racks = {_rack_name(server) for server in servers}
        racks -= {rack.name for rack in cluster.racks}
        groups = {
            "lambda_nic": {f"{one} {way}" for one in lambdas for way in ("out", "in")},
            "lambda_uplink": {
                f"{one} {way}" for one in racks for way in ("up", "down")
            },
        }
        whole = {key: group for key, group in groups.items() if group <= links}
        edit = {f"job.{key}": scale(getattr(self, key)) for key in whole}
        return edit, set().union(*whole.values())

    @override
    def scale_latencies(self, scale: Callable[[Any], Any]) -> Edit:
        late = self.lambda_latency
        return {"job.lambda_latency": scale(late)} if late else {}

    grows_with: ClassVar[tuple[str, ...]] = ("intervals",)

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        servers = len(self.ranks(machines))
        steps = self.steps
        count = servers * self.intervals
        tensors = sum(step.tensor for step in steps)
        # In an interval from step to step, to and from the gate, by way of a lambda,
        # and one between each tensor task and a parameter server.
        within = len(steps) + 1 + tensors * (3 if self.uses_lambdas else 1)
        each = servers + (1 if self.receives_together(count) else count - 2)
        many = len(self.parameter_servers)
        updates = self.model.layers * many**2 if many > 1 else 0
        exchanges = sum(step.kind.startswith("scatter") for step in steps)
        return count * (within + exchanges * each) + updates

    @override
    def build(self, context: BuildContext) -> Job:
        if self.dying_lambdas.share and context.compute == "real":
            problem = "a lambda that dies takes a stated time, write timed or padded"
            raise ScenarioError(problem, key="emulation.compute")
        try:
            return dorylus_job(self, context)
        except UnansweredLambda as error:
            raise ScenarioError(str(error), key="job.dying_lambdas") from error

    @override
    def realize(
        self, job: Job, context: BuildContext, cluster: Cluster, measured: Times
    ) -> Realization:
        counts, widths = self._sizes(job)
        itemsize = number_bytes(job.settings)
        # The versions of the weights against every parameter server's memory.
        versions = self.lag + 1
        size = versions * sum(map(sum, weight_bytes(self, widths, itemsize)))
        for name in self.parameter_servers:
            lacking = lacking_memory(cluster, name, size)
            if lacking > 0:
                problem = (
                    f"{versions} versions of the weights are {SIZE.format(size)}, "
                    f"{SIZE.format(lacking)} more than the memory of {name}"
                )
                raise ScenarioError(problem, key="job.parameter_servers")
        times = {**measured, **self.times.default_times()}
        volumes = dorylus_volumes(self, job, counts, widths, itemsize)
        rated = None
        if self.rates is not None:
            rated = self.rate_tasks(job, context, volumes[:, None])
        seconds = dorylus_times(self, job, counts, times, context.seed, rated)
        by_epoch = np.repeat(volumes[:, None], job.iterations, axis=1)
        for e in np.flatnonzero(volumes).tolist() if self.dying_lambdas.share else ():
            by_epoch[e] *= epochs_of_edge(job, e)
        return Realization(seconds, by_epoch)

    def _sizes(self, job: Job) -> tuple[IntervalCounts, tuple[int, ...]]:
        """Return the sizes of all intervals, and f_0 .. f_L."""
        dataset = open_for(job.settings)
        how = self.interval_cut
        each = self.intervals
        try:
            counts = count_intervals(dataset, each, how, sources=self.attends)
        except ValueError as error:
            raise ScenarioError(f"{error}: write fewer", key="job.intervals") from error
        hidden = [self.model.hidden] * (self.model.layers - 1)
        return counts, (dataset.feature_length, *hidden, dataset.classes)

    @override
    def count_operations(
        self, job: Job, context: BuildContext, volumes: NDArray[np.float64]
    ) -> Operations:
        return count_steps(self, job, *self._sizes(job), volumes)


#: Intervals of a server in a comparison: with 1 nothing overlaps, and each brings its
#: own copy of the weights: of 1, 2, 3, 4, 8 on four machines 3 are the fastest, 2 next.
_INTERVALS = 2


def _write(common: CommonJob) -> Keys:
    keys = write_whole_graph(common, "dorylus", "gcn", "gat")
    if keys["model"]["kind"] == "gat":
        del keys["model"]["activation"]
    fastest = next(name for name in common.by_nic if name in keys["machines"])
    return {
        **keys,
        "parameter_servers": [fastest],
        "intervals": _INTERVALS,
        "backend": "gpu" if common.gpus else "cpu",
    }


TRANSLATION = Translation(None, _write, counts_epochs=True)


def _nic(rate: float, late: float = 0.0) -> MachineNic:
    """Return an interface of one rate and one latency in both directions."""
    latency = Latency.model_construct(inward=late, outward=late)
    return MachineNic.model_construct(inward=rate, outward=rate, latency=latency)


def _without_nic(cluster: ClusterSection) -> list[str]:
    """Return the names of the machines without a NIC."""
    return [name for name, one in cluster.by_name.items() if not one.nic.outward]


def _rack_name(server: str) -> str:
    return f"lambdas of {server}"
