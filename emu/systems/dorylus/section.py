"""Section ``job`` of ``system: dorylus``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
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
    count_slots,
)
from emu.problem.fields.quantities import write_times
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads.operations import Operations
from emu.systems import (
    Edit,
    Floats,
    Keys,
    PerDevice,
    Problems,
    Scale,
    Scaling,
    Times,
)
from emu.systems.dorylus.deaths import UnansweredLambda, epochs_of_edge
from emu.systems.dorylus.job import dorylus_job
from emu.systems.dorylus.sections import (
    LAMBDA,
    DorylusKeys,
    DyingLambdasSection,
    SlowLambdasSection,
    TunerSection,
)
from emu.systems.dorylus.steps import LAMBDAS, THREADS
from emu.systems.dorylus.volumes import (
    count_steps,
    dorylus_times,
    dorylus_volumes,
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
        # Without it an epoch ends for all intervals at once, and there a checkpoint
        # fits.
        if self.mode != "async":
            return ""
        return "mode async keeps no checkpoints: write pipe, or remove this key"

    @property
    @override
    def pays_functions(self) -> bool:
        return self.uses_lambdas

    unprofiled: ClassVar[str] = "a profile knows no intervals, write job.times instead"

    @override
    def with_machines(self, cluster: ClusterSection) -> ClusterSection:
        """Return the cluster with slots on servers, and the lambdas behind uplinks.

        What the cluster states already stays: machines called ``lambda0``, ... and
        racks called ``lambdas of SERVER``.
        """
        names = cluster.names
        servers = self.ranks(names)
        distinct = {*servers}
        is_known = distinct <= {*names}
        has_twice = len(distinct) < len(servers)
        if not servers or not is_known or has_twice:
            return cluster  # errors of their own

        by_name = cluster.by_name
        # A row of several machines has several names.
        server_rows = {id(by_name[server]) for server in servers}
        machines = []
        for machine in cluster.machines:
            if id(machine) in server_rows:
                slots = self._slots(machine)
                with_slots = machine.model_copy(update={"slots": slots})
                machines.append(with_slots)
            else:
                machines.append(machine)
        if not self.uses_lambdas or _without_nic(cluster):
            return cluster.model_copy(update={"machines": tuple(machines)})

        lambdas = self.lambdas_of(servers)
        # Whether the cluster states lambdas shows at the first of them.
        if lambdas[0] not in names:
            count = len(lambdas)
            row = MachineSection.model_construct(
                # A row of several machines numbers them itself: lambda0, lambda1, ...
                name="lambda" if count > 1 else lambdas[0],
                count=count,
                nic=_nic(self.lambda_nic, self.lambda_latency),
            )
            machines.append(row)
        # Lambdas of a server share its uplink: 800 Mbit/s each alone, 200 at 100
        # (paper, 6).
        racks = (*cluster.racks, *self._lambda_racks(cluster, servers))
        update = {"machines": tuple(machines), "racks": racks}
        return cluster.model_copy(update=update)

    def _lambda_racks(
        self,
        cluster: ClusterSection,
        servers: Sequence[str],
    ) -> Iterator[RackSection]:
        names = {rack.name for rack in cluster.racks}
        lambdas = self.lambdas_of(servers)
        for number, server in enumerate(servers):
            name = _rack_name(server)
            first = number * self.intervals
            end = first + self.intervals
            if name not in names:
                yield RackSection.model_construct(
                    name=name,
                    machines=lambdas[first:end],
                    uplink=_nic(self.lambda_uplink),
                )

    def _slots(self, server: MachineSection) -> dict[str, int]:
        """Return the slots of a server, those that it states among them."""
        cores = count_slots(server.cpu or 1)
        slots = {
            THREADS: self.threads or cores,
            LAMBDAS: self.quota,
        }
        if self.backend == "gpu":
            slots["gpu"] = count_slots(server.gpu or 1)
        # What the cluster states of a server goes before what follows from its
        # hardware.
        return {**slots, **server.slots}

    @property
    @override
    def made_slots(self) -> frozenset[str]:
        """Cores, as threads, unless these are stated; GPUs where they compute."""
        cores = {"cpu"} if self.threads is None else set()
        gpus = {"gpu"} if self.backend == "gpu" else set()
        return frozenset(cores | gpus)

    @override
    def tuners(self, cluster: Cluster) -> tuple[Tuner, ...]:
        if self.lambdas != "auto":
            return ()
        servers = self.ranks(cluster.names)
        tuners = []
        for position, machine in enumerate(cluster.machines):
            if machine.name in servers and LAMBDAS in machine.slots:
                # An interval has one lambda at a time: more slots than intervals help
                # nobody.
                most = max(machine.slots[LAMBDAS], self.intervals)
                tuner = Tuner(
                    position,
                    LAMBDAS,
                    THREADS,
                    most,
                    self.tuner.period,
                )
                tuners.append(tuner)
        return tuple(tuners)

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        yield from self._server_problems(cluster)
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

    def _server_problems(self, cluster: ClusterSection) -> Problems:
        names = [name for name in cluster.names if not name.startswith(LAMBDA)]
        for position, name in enumerate(self.parameter_servers):
            trail: Trail = ("job", "parameter_servers", position)
            if name not in names:
                yield trail, f"no machine {name!r}, {nearest(name, names)}"
            elif name in self.parameter_servers[:position]:
                yield trail, f"{name!r} occurs twice, write it once"

        graph_servers = len(self.ranks(names))
        intervals = graph_servers * self.intervals
        if not graph_servers:
            problem = "no machine is left for a graph server, write machines"
            yield ("job", "machines"), problem
        elif len(self.parameter_servers) > intervals:
            problem = (
                f"found {len(self.parameter_servers)} for {intervals} intervals, of "
                f"which each meets one: write {intervals} or fewer, or more "
                "job.intervals"
            )
            yield ("job", "parameter_servers"), problem

    @override
    def idle_keys(self) -> Iterator[str]:
        slow = self.slow_lambdas
        if slow != SlowLambdasSection() and (not slow.share or slow.factor == 1):
            yield "job.slow_lambdas changes nothing: write share and factor, 10 % and 3"
        dying = self.dying_lambdas
        if dying != DyingLambdasSection() and not dying.share:
            yield "job.dying_lambdas changes nothing: write share, 10 % say"
        if self.first_epoch == "free" and self.mode != "async":
            yield (
                "job.first_epoch: free changes nothing: it is of mode: async, "
                f"found {self.mode}"
            )

    def _backend_problems(self, cluster: ClusterSection) -> Problems:
        # Machines that are stated keep their own latency, so that the key would do
        # nothing.
        stated_lambda = cluster.by_name.get(f"{LAMBDA}0")
        if not self.uses_lambdas:
            for key in _OF_LAMBDAS:
                default = type(self).model_fields[key].default
                if getattr(self, key) != default:
                    problem = f"backend {self.backend} has no lambdas, remove this key"
                    yield ("job", key), problem
        elif bare := _without_nic(cluster):
            problem = (
                f"lambdas are reached through NICs, {bare[0]} has none: state its nic, "
                "or write backend: cpu"
            )
            yield ("job", "backend"), problem
        elif stated_lambda and self.lambda_latency not in {
            0.0,
            stated_lambda.nic.latency.outward,
        }:
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
        # A GCN of one layer scatters nothing: the features of ghosts are there at the
        # start.
        if self.attends or self.model.layers > 1:
            kinds.add("scatter")
        if self.attends:
            kinds.add("edge_apply")
        yield from sorted(kinds - self.times.by_kind().keys())

    @override
    def scale_times(
        self,
        tasks: Mapping[str, str],
        wanted: set[str],
        scale: Scale,
    ) -> Scaling:
        # A backward time that follows from a forward one is written out beside it.
        kinds = whole_kinds(tasks, wanted)
        times: Mapping[str, PerDevice] = {}
        if self.rates is None:
            times = self.times.by_kind()
        edit: Edit = {}
        if "launch" in kinds:
            for key, time in self.launch:
                edit[f"job.launch.{key}"] = scale(time)
        for kind in kinds & times.keys():
            edit[f"job.times.{kind}"] = scale(times[kind])
            back = f"{kind}_back"
            if back in times and back not in kinds:
                edit[f"job.times.{back}"] = write_times(times[back])

        scaled_kinds = kinds & {"launch", *times}
        scaled = {name for name in wanted if tasks[name] in scaled_kinds}
        return edit, scaled

    @override
    def scale_links(
        self,
        cluster: ClusterSection,
        links: set[str],
        scale: Scale,
    ) -> Scaling:
        if not self.uses_lambdas:
            return {}, set()

        servers = self.ranks(cluster.names)
        lambdas = {*self.lambdas_of(servers)} - {*cluster.names}
        racks = {_rack_name(server) for server in servers}
        # Links that the cluster states have their rates there, and no key of the job.
        racks -= {rack.name for rack in cluster.racks}
        nics = {f"{name} {way}" for name in lambdas for way in ("out", "in")}
        uplinks = {f"{name} {way}" for name in racks for way in ("up", "down")}

        edit: Edit = {}
        scaled_links: set[str] = set()
        # A key is the rate of a whole group of links: it changes for all or none.
        groups = {"lambda_nic": nics, "lambda_uplink": uplinks}
        for key, group in groups.items():
            # Of links that the cluster states all, none is left for the key.
            if group and group <= links:
                rate = getattr(self, key)
                edit[f"job.{key}"] = scale(rate)
                scaled_links |= group
        return edit, scaled_links

    @override
    def scale_latencies(self, scale: Scale) -> Edit:
        if not self.lambda_latency:
            return {}
        return {"job.lambda_latency": scale(self.lambda_latency)}

    grows_with: ClassVar[tuple[str, ...]] = ("intervals",)

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        servers = len(self.ranks(machines))
        steps = self.steps
        count = servers * self.intervals

        # In an interval from step to step, to and from the gate, by way of a lambda,
        # and one between each tensor task and a parameter server.
        tensors = sum(step.tensor for step in steps)
        flows_per_tensor = 3 if self.uses_lambdas else 1
        within = len(steps) + 1 + tensors * flows_per_tensor
        exchanges = sum(step.kind.startswith("scatter") for step in steps)
        receivers = 1
        if not self.receives_together(count):
            # A task per interval on every server but its own makes this grow with their
            # square.
            receivers = count - 2
        between = exchanges * (servers + receivers)

        parameter_servers = len(self.parameter_servers)
        updates = 0
        if parameter_servers > 1:
            # What each server has summed goes to all of them.
            updates = self.model.layers * parameter_servers**2
        return count * (within + between) + updates

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
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
        measured: Times,
    ) -> Realization:
        counts, widths = self._sizes(job)
        itemsize = number_bytes(job.settings)
        self._check_memory(cluster, widths, itemsize)
        volumes = dorylus_volumes(self, job, counts, widths, itemsize)
        column = volumes[:, None]
        rated_times = None
        if self.rates is not None:
            rated_times = self.rate_tasks(job, context, column)
        seconds = dorylus_times(
            self,
            job,
            counts,
            # A stated time goes before a measured one.
            times={**measured, **self.times.default_times()},
            seed=context.seed,
            rated=rated_times,
        )

        # Nothing is sampled: all epochs send the same, but for lambdas that die.
        by_epoch = np.repeat(column, job.iterations, axis=1)
        if self.dying_lambdas.share:
            # Edges without bytes need no look: there are many times as many.
            for edge in np.flatnonzero(volumes).tolist():
                by_epoch[edge] *= epochs_of_edge(job, edge)
        return Realization(times=seconds, volumes=by_epoch)

    def _check_memory(
        self,
        cluster: Cluster,
        widths: Sequence[int],
        itemsize: int,
    ) -> None:
        """Hold the versions of the weights against every parameter server's memory."""
        # With one parameter server at most S + 2 versions live (weight stashing, paper,
        # 5.1).
        versions = self.lag + 1
        weights = weight_bytes(self, widths, itemsize)
        size = versions * sum(map(sum, weights))
        for name in self.parameter_servers:
            lacking = lacking_memory(cluster, name, size)
            if lacking > 0:
                problem = (
                    f"{versions} versions of the weights are {SIZE.format(size)}, "
                    f"{SIZE.format(lacking)} more than the memory of {name}"
                )
                raise ScenarioError(problem, key="job.parameter_servers")

    def _sizes(self, job: Job) -> tuple[IntervalCounts, tuple[int, ...]]:
        """Return the sizes of all intervals, and f_0 .. f_L."""
        dataset = open_for(job.settings)
        try:
            counts = count_intervals(
                dataset,
                self.intervals,
                self.interval_cut,
                sources=self.attends,
            )
        except ValueError as error:
            raise ScenarioError(f"{error}: write fewer", key="job.intervals") from error
        return counts, self.widths(dataset)

    @override
    def count_operations(
        self,
        job: Job,
        context: BuildContext,
        volumes: Floats,
    ) -> Operations:
        counts, widths = self._sizes(job)
        return count_steps(self, job, counts, widths, volumes)


#: Intervals of a server in a comparison: with 1 nothing overlaps, and each brings its
#: own copy of the weights: of 1, 2, 3, 4, 8 on four machines 3 are the fastest, 2 next.
_INTERVALS = 2


def _write(common: CommonJob) -> Keys:
    keys = write_whole_graph(common, "dorylus", "gcn", "gat")
    if keys["model"]["kind"] == "gat":
        del keys["model"]["activation"]
    # All gradients go to the parameter server: its NIC is the first to be full.
    fastest = next(name for name in common.by_nic if name in keys["machines"])
    return {
        **keys,
        "parameter_servers": [fastest],
        "intervals": _INTERVALS,
        "backend": "gpu" if common.gpus else "cpu",
    }


TRANSLATION = Translation(None, _write, counts_epochs=True)


def _nic(rate: float, seconds: float = 0.0) -> MachineNic:
    """Return an interface of one rate and one latency in both directions."""
    latency = Latency.model_construct(inward=seconds, outward=seconds)
    return MachineNic.model_construct(inward=rate, outward=rate, latency=latency)


def _without_nic(cluster: ClusterSection) -> list[str]:
    """Return the names of the machines without a NIC."""
    rows = cluster.by_name.items()
    return [name for name, row in rows if not row.nic.outward]


def _rack_name(server: str) -> str:
    return f"lambdas of {server}"
