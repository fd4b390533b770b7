"""Section ``job`` of ``system: dgcl``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeAlias

from typing_extensions import override

from emu.errors import ScenarioError
from emu.graph_data import open_for, open_layers
from emu.prediction.simulation import makespan
from emu.problem import (
    Cluster,
    Job,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import default_time, write_times
from emu.problem.fields.section import Trail
from emu.problem.workloads.all_reduce import all_reduce_edge_count
from emu.problem.workloads.operations import Operations
from emu.systems import (
    Edit,
    Floats,
    JobSettings,
    Keys,
    PerDevice,
    Problems,
    Scale,
    Scaling,
    Settings,
    Times,
)
from emu.systems.device_memory import Parts, weight_bytes
from emu.systems.dgcl import plans
from emu.systems.dgcl.job import (
    DgclBuilder,
    dgcl_job,
    dgcl_realization,
)
from emu.systems.dgcl.keys import DgclKeys, DgclTimesSection
from emu.systems.dgcl.planner import MOST_DEVICES, PlanError, plan_of
from emu.systems.job_section import BuildContext, whole_kinds
from emu.systems.slowness import with_slowness
from emu.systems.training_section import count_parameters, number_bytes
from emu.systems.translation import (
    CommonJob,
    Translation,
    add_times,
    write_whole_graph,
)
from emu.systems.whole_graph_section import layer_time

#: Keys of some plans alone -> these plans.
_PLANS_OF: dict[str, tuple[str, ...]] = {
    "host": ("swap",),
    **dict.fromkeys(
        ("plan_seed", "plan_eps", "plan_group", "plan_sweeps"),
        ("spst", "best_of", "dgcl_r"),
    ),
}
#: Kind of plan -> simulated seconds.
Seconds: TypeAlias = dict[str, float]
#: Those of a section in its context: a scenario is built several times.
_EPOCH_TIMES: dict[str, Seconds] = {}


class DgclJobSection(DgclKeys):
    """DGCL: whole-graph training, embeddings gathered along planned trees of links."""

    shaped_by_data: ClassVar[bool] = True

    unprofiled: ClassVar[str] = "a profile knows no stages, write job.times instead"

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        """Return those of the ring: the plan is not known before the data set."""
        # More devices than a plan can have are another problem, which `problems` says.
        devices = min(len(self.ranks(machines)), MOST_DEVICES)
        return max(1, all_reduce_edge_count(devices))

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        yield from self._plan_problems(cluster)
        times = self.times
        yield from self.layer_problems("forward", times.forward)
        yield from self.layer_problems("backward", times.backward)

        devices = len(self.ranks(cluster.names))
        if devices > MOST_DEVICES:
            problem = f"found {devices} devices, a plan has at most {MOST_DEVICES}"
            yield ("job", "machines"), problem
        if times.coordination and self.coordination != "central":
            problem = "found a time of gates, write coordination: central"
            yield ("job", "times", "coordination"), problem

    @override
    def idle_keys(self) -> Iterator[str]:
        fields = type(self).model_fields
        for key, kinds in _PLANS_OF.items():
            is_set = getattr(self, key) != fields[key].default
            if is_set and self.plan not in kinds:
                words = " or ".join(kinds)
                yield f"job.{key} changes nothing: it is of plan: {words}"

    def _plan_problems(self, cluster: ClusterSection) -> Problems:
        if self.plan == "swap":
            yield from self._host_problems(cluster)

        if self.plan == "dgcl_r" and self.boxes is None:
            problem = (
                "found dgcl_r without boxes to replicate between: write partitioner: "
                "hierarchical and boxes"
            )
            yield ("job", "plan"), problem
        if self.plan == "replication" and not self.cache_features:
            problem = "found false for replication, where no row travels: remove it"
            yield ("job", "cache_features"), problem

    def _host_problems(self, cluster: ClusterSection) -> Problems:
        if self.host not in cluster.names:
            problem = (
                f"found swap without a machine {self.host!r} to leave rows on: name "
                "one as job.host, or write cluster.topology: dgx1 or pcie_8"
            )
            yield ("job", "plan"), problem
        elif self.host in (self.machines or ()):
            yield ("job", "host"), f"{self.host!r} holds a part: name another machine"

    @override
    def list_untimed(self) -> Iterator[str]:
        for key in ("forward", "backward"):
            if getattr(self.times, key) is None:
                yield key

    @override
    def keys_of_kinds(self, kinds: AbstractSet[str]) -> tuple[str, ...]:
        """Return all but the time of gates, which compute nothing."""
        keys = list(DgclTimesSection.model_fields)
        keys.remove("coordination")
        return tuple(keys)

    @override
    def device_times(self) -> Iterator[tuple[Trail, str, Times]]:
        for key, kind, time in self._pass_times():
            if isinstance(time, dict):
                yield ("job", "times", key), kind, time

    @override
    def scale_times(
        self,
        tasks: Mapping[str, str],
        wanted: set[str],
        scale: Scale,
    ) -> Scaling:
        if self.rates is not None:
            return {}, set()

        # One key is the time of a whole kind: what shares it with others is not scaled.
        kinds = whole_kinds(tasks, wanted)
        scaled_kinds = {"gather", "scatter", "coordination"} & kinds
        edit: Edit = {}
        for kind in scaled_kinds:
            time = getattr(self.times, kind)
            edit[f"job.times.{kind}"] = scale(time)
        # One key is the time of both: it is scaled where both are.
        received_kinds = {"gathered", "scattered"}
        if received_kinds <= kinds:
            scaled_kinds |= received_kinds
            edit["job.times.receive"] = scale(self.times.receive)

        last = self.model.layers
        forward = {f"layer{number}": number for number in range(1, last + 1)}
        backward = {f"gradient{number}": number for number in range(1, last)}
        backward[f"layer{last}"] = last  # it goes on to its own backward pass
        passes = {"forward": forward, "backward": backward}
        for key, layers in passes.items():
            layer_kinds = kinds & layers.keys()
            if not layer_kinds:
                continue
            scaled_kinds |= layer_kinds
            numbers = {layers[kind] for kind in layer_kinds}
            stated = getattr(self.times, key)
            times = []
            for number in range(1, last + 1):
                time = layer_time(stated, number - 1)
                write = scale if number in numbers else write_times
                times.append(write(time))
            edit[f"job.times.{key}"] = times
        scaled = {name for name in wanted if tasks[name] in scaled_kinds}
        return edit, scaled

    def _pass_times(self) -> Iterator[tuple[str, str, PerDevice]]:
        """Yield (key, kind of task, time) of those that are stated."""
        last = self.model.layers
        forward = self.times.forward
        backward = self.times.backward
        # The two passes of the last layer are one task, of the sum of their times.
        for number in range(last - 1):
            if forward is not None:
                time = layer_time(forward, number)
                yield "forward", f"layer{number + 1}", time
            if backward is not None:
                time = layer_time(backward, number)
                yield "backward", f"gradient{number + 1}", time

        if forward is not None and backward is not None:
            last_forward = layer_time(forward, last - 1)
            last_backward = layer_time(backward, last - 1)
            time = add_times(last_forward, last_backward)
            yield "forward", f"layer{last}", time

    @override
    def build(self, context: BuildContext) -> Job:
        settings = self.settings(context)
        builder = self.builder(context, settings)
        return dgcl_job(builder, settings)

    def settings(self, context: BuildContext) -> Settings:
        """Return the settings that every node program of the job gets."""
        machines = self.ranks(context.machines)
        replicas: list[int] = []
        if self.plan == "dgcl_r":
            replicas = list(self.boxes or ())
        elif self.plan == "replication":  # no two devices share rows
            replicas = [1] * len(machines)
        seed = self.plan_seed
        if seed is None:
            seed = context.seed

        settings = self.whole_graph_settings(context) | {
            "plan": {
                "kind": self.plan,
                "seed": seed,
                "eps": self.plan_eps,
                "group": self.plan_group,
                "sweeps": self.plan_sweeps,
            },
            "cache_features": self.cache_features,
            "backward": self.backward,
            "replicas": replicas,
        }
        # Without a cluster there are no links to plan for.
        cluster = context.cluster
        if cluster is None:
            return settings

        if self.plan == "swap":
            # The host is the device behind all others: it has no rank and no part.
            machines = (*machines, self.host)
        settings["topology"] = plans.topology_settings(cluster, machines)
        # From here on the job is of the plan that was chosen.
        if self.plan == "best_of":
            seconds = self._epoch_times(context, cluster)
            settings["plan"]["kind"] = min(seconds, key=seconds.__getitem__)
            settings["best_of"] = dict(seconds)
        return settings

    def _epoch_times(self, context: BuildContext, cluster: Cluster) -> Seconds:
        """Return the simulated seconds of `EPOCHS` epochs along either plan."""
        key = repr((self, context))
        if key not in _EPOCH_TIMES:
            seconds = {}
            for kind in ("peer_to_peer", "spst"):
                seconds[kind] = self._simulate_time(kind, context, cluster)
            _EPOCH_TIMES[key] = seconds
        return _EPOCH_TIMES[key]

    def _simulate_time(
        self,
        kind: str,
        context: BuildContext,
        cluster: Cluster,
    ) -> float:
        keys = {"plan": kind, "epochs": plans.EPOCHS}
        candidate = self.model_copy(update=keys)
        # With a kind that is not best_of, so that this does not call itself.
        job = candidate.build(context)
        # A slower machine waits less for rows: that may decide between the plans.
        if context.stated is not None:
            job = with_slowness(job, candidate, context.stated, profiled=False)
        reference = candidate.realize(job, context, cluster, {})

        first, *_ = self.ranks(context.machines)
        # Gates are pinned nowhere, and need a place all the same.
        homes = [task.pinned or first for task in job.tasks]
        machines = [cluster.index(home) for home in homes]
        placement = Placement(tuple(machines))
        problem = Problem(cluster, job, placement)
        realization = problem.stretch(reference)
        return makespan(problem, realization, context.policy)

    def builder(self, context: BuildContext, settings: JobSettings) -> DgclBuilder:
        """Return the job's builder; without a cluster, of one that gathers nothing.

        Raises DataError when data set or plan are missing or damaged; ScenarioError
        when there is no plan.
        """
        machines = self.ranks(context.machines)
        # Names and settings of tasks are known before the plan is: nothing travels.
        empty_plan = plan_of(len(machines), [])
        forward = (empty_plan,) * self.model.layers
        if "topology" in settings:
            try:
                forward = plans.open_plans(settings)
            except PlanError as error:
                raise ScenarioError(str(error), key="job.plan") from error

        is_atomic = self.backward == "atomic"
        backward = [plans.gradient_plan(plan, atomic=is_atomic) for plan in forward]
        return DgclBuilder(
            section=self,
            machines=machines,
            plans=forward,
            backward=tuple(backward),
        )

    @override
    def realize(
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
        measured: Times,
    ) -> Realization:
        on_cluster = replace(context, cluster=cluster)
        settings = self.settings(on_cluster)
        dataset = open_for(job.settings)
        times = {
            "gather": self.times.gather,
            "scatter": self.times.scatter,
            "coordination": self.times.coordination,
            "gathered": self.times.receive,
            "scattered": self.times.receive,
        }
        for _, kind, time in self._pass_times():
            times[kind] = default_time(time)

        itemsize = number_bytes(job.settings)
        realization = dgcl_realization(
            self.builder(context, settings),
            times={**measured, **times},
            widths=self.widths(dataset)[:-1],
            parameters=count_parameters(job.settings, dataset),
            # Flows are of emulated bytes; rates, below, are of real ones.
            itemsize=itemsize / context.byte_scale,
            work=replica_work(job.settings),
        )
        if self.rates is None:
            return realization
        volumes = realization.volumes * context.byte_scale
        seconds = self.rate_tasks(job, context, volumes)
        return replace(realization, times=seconds)

    @override
    def device_memory(
        self,
        job: Job,
        context: BuildContext,
    ) -> Mapping[str, Parts]:
        """Return that of every device, under its first layer: DGCL has all rows there.

        Rows of others as well, and what layers compute with its gradient, twice.
        """
        settings = job.settings
        dataset, graphs = open_layers(settings)
        length, *widths = self.widths(dataset)
        parameters = count_parameters(settings, dataset)
        weights = weight_bytes(settings, parameters, steps=True)
        itemsize = number_bytes(settings)

        memory: dict[str, Parts] = {}
        for rank in range(settings["parts"]):
            parts = [graph.part(rank) for graph in graphs]
            numbers = 0
            # Twice: what a layer computes, and the gradient of it.
            for part, width in zip(parts, widths, strict=True):
                numbers += 2 * len(part.local) * width
            # Rows of others come before each layer but the first, which has features.
            first, *later_parts = parts
            for part, width in zip(later_parts, widths[:-1], strict=True):
                numbers += 2 * len(part.remote) * width
            features = first.size * length
            memory[f"d{rank}.layer1"] = {
                "features": float(itemsize * features),
                "rows of layers": float(itemsize * numbers),
                "weights": weights,
            }
        return memory

    @override
    def collects_on_device(self, task: Task) -> bool:
        return True  # every task is one of a GPU

    @override
    def planning(self, settings: JobSettings) -> dict[str, Callable[[], object]]:
        planning = super().planning(settings)
        kind = settings["plan"]["kind"]
        # The best of two plans has made both.
        if kind in {"spst", "dgcl_r"} or "best_of" in settings:
            planning["plan"] = partial(plans.plan_anew, settings)
        return planning

    @override
    def count_operations(
        self,
        job: Job,
        context: BuildContext,
        volumes: Floats,
    ) -> Operations:
        itemsize = number_bytes(job.settings)
        operations = Operations(job)
        operations.add_gradients(job, volumes, itemsize)
        operations.add_bytes(job, volumes, "gather", "scatter")
        for edge, sizes in zip(job.edges, volumes, strict=True):
            reader = job.tasks[edge.destination]
            # To add a number that came is work as of an edge.
            if reader.kind == "scattered":
                numbers = sizes / itemsize
                operations.add(edge.destination, {"aggregate": numbers})

        dataset, graphs = open_layers(job.settings)
        self.count_part_layers(job, operations, graphs, self.widths(dataset))
        parameters = count_parameters(job.settings, dataset)
        for position, task in enumerate(job.tasks):
            if task.kind == "layer1":
                operations.add(position, {"step": parameters})
        return operations


def _write(common: CommonJob) -> Keys:
    keys = write_whole_graph(common, "dgcl", "gcn", "sage", "gin")
    return {**keys, "plan": "best_of"}


TRANSLATION = Translation(None, _write, counts_epochs=True)


def replica_work(settings: JobSettings) -> Seconds:
    """Return task -> edges of all that it computes over its own, where replicas are."""
    if not settings["replicas"]:
        return {}

    _, graphs = open_layers(settings)
    works = {}
    for rank in range(settings["parts"]):
        edges = []
        for graph in graphs:
            adjacency = graph.part(rank).forward
            edges.append(int(adjacency.indptr[-1]))
        # Times are of a device's own vertices, which is all the last layer has.
        local_edges = max(edges[-1], 1)
        for layer, count in enumerate(edges, 1):
            work = count / local_edges
            works[f"d{rank}.layer{layer}"] = work
            works[f"d{rank}.grad{layer}"] = work
    return works
