"""Section ``job`` of ``system: dgcl``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import ScenarioError
from emu.graph_data import open_for, open_layers
from emu.prediction.simulation import makespan
from emu.problem import Cluster, Job, Placement, Problem, Realization, Schedule
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import default_time, write_times
from emu.problem.fields.section import Trail
from emu.problem.workloads.all_reduce import all_reduce_edge_count
from emu.problem.workloads.model_shapes import parameter_count
from emu.problem.workloads.operations import Operations, count_layer
from emu.systems import Edit, Keys, Problems, Settings, Times
from emu.systems.device_memory import Parts, weight_bytes
from emu.systems.dgcl import plans
from emu.systems.dgcl.job import CARRIES, DgclBuilder, dgcl_job, dgcl_realization
from emu.systems.dgcl.keys import DgclKeys, DgclTimesSection
from emu.systems.dgcl.planner import MOST_DEVICES, Plan, PlanError
from emu.systems.dgcl.spst import lower_bound
from emu.systems.job_section import BuildContext, whole_kinds, with_slowness
from emu.systems.training_section import number_bytes
from emu.systems.translation import CommonJob, Translation, add_times, write_whole_graph
from emu.systems.whole_graph_section import layer_time
from emu.units import format_duration

_WORDS = {"gather": "forward", "scatter": "backward"}
#: Simulated seconds by kind of plan, of a section in its context: a scenario is built
#: several times.
_EPOCH_TIMES: dict[str, dict[str, float]] = {}


class DgclJobSection(DgclKeys):
    """DGCL: whole-graph training, embeddings gathered along planned trees of links."""

    shaped_by_data: ClassVar[bool] = True

    unprofiled: ClassVar[str] = "a profile knows no stages, write job.times instead"

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        """Return those of the ring: the plan is not known before the data set."""
        return max(1, all_reduce_edge_count(min(len(machines), MOST_DEVICES)))

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        if self.plan == "swap" and self.host not in cluster.names:
            problem = (
                f"found swap without a machine {self.host!r} to leave rows on: name "
                "one as job.host, or write cluster.topology: dgx1 or pcie_8"
            )
            yield ("job", "plan"), problem
        elif self.plan == "swap" and self.host in (self.machines or ()):
            yield ("job", "host"), f"{self.host!r} holds a part: name another machine"
        if self.plan == "dgcl_r" and self.boxes is None:
            problem = (
                "found dgcl_r without boxes to replicate between: write partitioner: "
                "hierarchical and boxes"
            )
            yield ("job", "plan"), problem
        if self.plan == "replication" and not self.cache_features:
            problem = "found false for replication, where no row travels: remove it"
            yield ("job", "cache_features"), problem
        yield from self.layer_problems("forward", self.times.forward)
        yield from self.layer_problems("backward", self.times.backward)
        devices = len(self.ranks(cluster.names))
        if devices > MOST_DEVICES:
            problem = f"found {devices} devices, a plan has at most {MOST_DEVICES}"
            yield ("job", "machines"), problem
        if self.times.coordination and self.coordination != "central":
            problem = "found a time of gates, write coordination: central"
            yield ("job", "times", "coordination"), problem

    @override
    def list_untimed(self) -> Iterator[str]:
        for key in ("forward", "backward"):
            if getattr(self.times, key) is None:
                yield key

    @override
    def keys_of_kinds(self, kinds: AbstractSet[str]) -> tuple[str, ...]:
        """Return all but the time of gates, which compute nothing."""
        return tuple(k for k in DgclTimesSection.model_fields if k != "coordination")

    @override
    def device_times(self) -> Iterator[tuple[Trail, str, Times]]:
        for key, kind, time in self._pass_times():
            if isinstance(time, dict):
                yield ("job", "times", key), kind, time

    @override
    def scale_times(
        self, tasks: Mapping[str, str], wanted: set[str], scale: Callable[[Any], Any]
    ) -> tuple[Edit, set[str]]:
        if self.rates is not None:
            return {}, set()
        kinds = whole_kinds(tasks, wanted)
        last = self.model.layers
        keys = {"gather", "scatter", "coordination"} & kinds
        edit = {f"job.times.{kind}": scale(getattr(self.times, kind)) for kind in keys}
        if {"gathered", "scattered"} <= kinds:
            keys |= {"gathered", "scattered"}
            edit["job.times.receive"] = scale(self.times.receive)
        passes = {
            "forward": {f"layer{number}": number for number in range(1, last + 1)},
            "backward": {f"gradient{number}": number for number in range(1, last)}
            | {f"layer{last}": last},
        }
        for key, layers in passes.items():
            layers_changed = {layers[kind] for kind in kinds & layers.keys()}
            keys |= kinds & layers.keys()
            if layers_changed:
                edit[f"job.times.{key}"] = [
                    (scale if number in layers_changed else write_times)(
                        layer_time(getattr(self.times, key), number - 1)
                    )
                    for number in range(1, last + 1)
                ]
        return edit, {name for name in wanted if tasks[name] in keys}

    def _pass_times(self) -> Iterator[tuple[str, str, float | dict[str, float]]]:
        """Yield (key, kind of task, time) of those that are stated."""
        last = self.model.layers
        times = self.times
        for number in range(last - 1):
            if times.forward is not None:
                time = layer_time(times.forward, number)
                yield "forward", f"layer{number + 1}", time
            if times.backward is not None:
                time = layer_time(times.backward, number)
                yield "backward", f"gradient{number + 1}", time
        if times.forward is not None and times.backward is not None:
            ends = (layer_time(t, last - 1) for t in (times.forward, times.backward))
            yield "forward", f"layer{last}", add_times(*ends)

    @override
    def build(self, context: BuildContext) -> Job:
        settings = self.settings(context)
        return dgcl_job(self.builder(context, settings), settings)

    def settings(self, context: BuildContext) -> Settings:
        """Return the settings that every node program of the job gets."""
        ranks = self.ranks(context.machines)
        boxes = list(self.boxes or ()) if self.plan == "dgcl_r" else []
        settings = self.whole_graph_settings(context) | {
            "plan": {
                "kind": self.plan,
                "seed": context.seed if self.plan_seed is None else self.plan_seed,
                "eps": self.plan_eps,
                "group": self.plan_group,
                "sweeps": self.plan_sweeps,
            },
            "cache_features": self.cache_features,
            "backward": self.backward,
            "replicas": [1] * len(ranks) if self.plan == "replication" else boxes,
        }
        if context.cluster is not None:
            ends = (*ranks, self.host) if self.plan == "swap" else ranks
            settings["topology"] = plans.topology_settings(context.cluster, ends)
        if context.cluster is not None and self.plan == "best_of":
            seconds = self._epoch_times(context, context.cluster)
            settings["plan"]["kind"] = min(seconds, key=seconds.__getitem__)
            settings["best_of"] = {**seconds}
        return settings

    def _epoch_times(self, context: BuildContext, cluster: Cluster) -> dict[str, float]:
        """Return the simulated seconds of `EPOCHS` epochs along either plan."""
        if (known := _EPOCH_TIMES.get(key := repr((self, context)))) is not None:
            return known
        seconds = {}
        first = self.ranks(context.machines)[0]
        for kind in ("peer_to_peer", "spst"):
            one = self.model_copy(update={"plan": kind, "epochs": plans.EPOCHS})
            job = one.build(context)
            if context.stated is not None:
                job = with_slowness(job, one, context.stated, profiled=False)
            reference = one.realize(job, context, cluster, {})
            at = (cluster.index(task.pinned or first) for task in job.tasks)  # gates
            problem = Problem(cluster, job, Placement(tuple(at)))
            times = problem.stretch(reference)
            seconds[kind] = makespan(problem, times, context.policy)
        _EPOCH_TIMES[key] = seconds
        return seconds

    def builder(
        self, context: BuildContext, settings: Mapping[str, Any]
    ) -> DgclBuilder:
        """Return the job's builder; without a cluster, of one that gathers nothing.

        Raises DataError when data set or plan are missing or damaged; ScenarioError
        when there is no plan.
        """
        ranks = self.ranks(context.machines)
        none = np.empty(0, np.int64)
        empty = Plan(len(ranks), none.reshape(0, 3).astype(np.int32), none[:1], none)
        forward = (empty,) * self.model.layers
        if "topology" in settings:
            try:
                forward = plans.open_plans(settings)
            except PlanError as error:
                raise ScenarioError(str(error), key="job.plan") from error
        atomic = self.backward == "atomic"
        backward = tuple(plans.gradient_plan(plan, atomic=atomic) for plan in forward)
        return DgclBuilder(self, ranks, forward, backward)

    @override
    def realize(
        self, job: Job, context: BuildContext, cluster: Cluster, measured: Times
    ) -> Realization:
        settings = self.settings(replace(context, cluster=cluster))
        dataset = open_for(job.settings)
        hidden = [self.model.hidden] * (self.model.layers - 1)
        model = job.settings["model"]
        length = dataset.feature_length
        times = {kind: default_time(time) for _, kind, time in self._pass_times()}
        keys = "gather", "scatter", "coordination"
        stages = {key: getattr(self.times, key) for key in keys}
        stages |= dict.fromkeys(("gathered", "scattered"), self.times.receive)
        realization = dgcl_realization(
            self.builder(context, settings),
            {**measured, **stages, **times},
            (length, *hidden),
            parameter_count(model, length, dataset.classes),
            number_bytes(job.settings) / context.byte_scale,
            replica_work(job.settings),
        )
        if self.rates is None:
            return realization
        volumes = realization.volumes * context.byte_scale
        seconds = self.rate_tasks(job, context, volumes)
        return replace(realization, times=seconds)

    @override
    def device_memory(self, job: Job, context: BuildContext) -> Mapping[str, Parts]:
        """Return that of every device, under its first layer: DGCL has all rows there.

        Rows of others as well, and what layers compute with its gradient, twice.
        """
        settings = job.settings
        dataset, graphs = open_layers(settings)
        model = settings["model"]
        length = dataset.feature_length
        hidden = [self.model.hidden] * (self.model.layers - 1)
        parameters = parameter_count(model, length, dataset.classes)
        weights = weight_bytes(settings, parameters, steps=True)
        parts: dict[str, Parts] = {}
        for rank in range(settings["parts"]):
            layers = [graph.part(rank) for graph in graphs]
            outputs = zip(layers, [*hidden, dataset.classes], strict=True)
            numbers = sum(2 * len(part.local) * width for part, width in outputs)
            inputs = zip(layers[1:], hidden, strict=True)
            numbers += sum(2 * len(part.remote) * width for part, width in inputs)
            rows = len(layers[0].vertices) * length
            parts[f"d{rank}.layer1"] = {
                "features": float(number_bytes(settings) * rows),
                "rows of layers": float(number_bytes(settings) * numbers),
                "weights": weights,
            }
        return parts

    @override
    def count_operations(
        self, job: Job, context: BuildContext, volumes: NDArray[np.float64]
    ) -> Operations:
        dataset, graphs = open_layers(job.settings)
        model = job.settings["model"]
        length = dataset.feature_length
        hidden = [self.model.hidden] * (self.model.layers - 1)
        widths = [*pairwise((length, *hidden, dataset.classes))]
        last = self.model.layers
        itemsize = number_bytes(job.settings)
        operations = Operations(job)
        operations.add_gradients(job, volumes, itemsize)
        for edge, row in zip(job.edges, volumes, strict=True):
            # Rows are on the device: to move or add their numbers is work as of edges.
            numbers = {"aggregate": row / itemsize}
            to = job.tasks[edge.destination]
            if job.tasks[edge.source].kind in {"gather", "scatter"}:
                operations.add(edge.source, numbers)
            if to.kind == "scattered":
                operations.add(edge.destination, numbers)
        for t, task in enumerate(job.tasks):
            name = task.kind.rstrip("0123456789")
            if name not in {"layer", "gradient"}:
                continue
            number = task.settings["layer"]
            part = graphs[number - 1].part(task.settings["rank"])
            ends = int(part.forward.indptr[-1]), len(part.vertices), len(part.local)
            shape = widths[number - 1]
            layer = count_layer(
                model["kind"], shape, *ends, shortens=shape[0] > shape[1]
            )
            operations.add(t, layer.forward if name == "layer" else {})
            if name == "gradient" or number == last:
                operations.add(t, layer.backward(first=number == 1))
            if task.kind == "layer1":
                parameters = parameter_count(model, length, dataset.classes)
                operations.add(t, {"step": parameters})
        return operations


def _write(common: CommonJob) -> Keys:
    return {
        **write_whole_graph(common, "dgcl", "gcn", "sage", "gin"),
        "plan": "best_of",
    }


TRANSLATION = Translation(None, _write, counts_epochs=True)


def replica_work(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return task -> edges of all that it computes over its own, where replicas are."""
    if not settings["replicas"]:
        return {}
    _, graphs = open_layers(settings)
    works = {}
    for rank in range(settings["parts"]):
        edges = [int(graph.part(rank).forward.indptr[-1]) for graph in graphs]
        for layer, count in enumerate(edges, 1):
            for name in (f"d{rank}.layer{layer}", f"d{rank}.grad{layer}"):
                works[name] = count / max(edges[-1], 1)
    return works


def gather_lines(schedules: Mapping[str, Schedule], policy: str) -> Iterator[str]:
    """Yield a line per gather: t(S), its simulated time alone, a bound on t(S).

    And the mean time in every schedule, where stages wait for computation: from when
    the last device begins its first stage to when the last one ends its last. Before
    them stands what `plan_lines` yields.
    """
    first = next(iter(schedules.values()))
    job = first.problem.job
    settings = first.problem.job.settings
    by_layer = plans.open_plans(settings)
    topology = plans.read_topology(settings["topology"])
    needs = plans.needs_of_settings(settings)
    atomic = settings["backward"] == "atomic"
    if "emulated" not in schedules:  # else it was said before the run
        yield from plans.plan_lines(settings)
    for kind, layer in sorted(
        {(t.kind, t.settings["layer"]) for t in job.tasks if t.kind in _WORDS}
    ):
        plan = by_layer[layer - 1]
        least = ""
        if not plan.stages:
            continue
        if kind == "scatter":
            plan = plans.gradient_plan(plan, atomic=atomic)
        parts = [
            f"{how} {format_duration(_mean_time(schedule, kind, layer))}"
            for how, schedule in schedules.items()
        ]
        rows = max(int(plan.counts.sum()), 1) * job.iterations
        sizes = _bytes_of(first, kind, layer)
        size = float(sizes.sum()) / rows
        if kind == "gather":
            bound = lower_bound(needs[layer - 1 if len(needs) > 1 else 0], topology)
            least = f"; no plan's t(S) is below {format_duration(size * bound)}"
        where = f"gather of layer {layer}, {_WORDS[kind]}"
        cost = format_duration(size * plan.cost(topology))
        alone = format_duration(_time_alone(first, sizes, policy))
        waits = f"with waits {', '.join(parts)}"
        yield f"{where}: t(S) {cost}, simulated {alone}; {waits}{least}"


def _mean_time(schedule: Schedule, kind: str, layer: int) -> float:
    """Return the seconds of a gather, the mean of the epochs."""
    stages = defaultdict[str, list[int]](list)
    for position, task in enumerate(schedule.problem.job.tasks):
        if task.kind == kind and task.settings["layer"] == layer:
            stages[task.process_name].append(position)
    begin = [schedule.task_start[own].min(axis=0) for own in stages.values()]
    end = [schedule.task_end[own].max(axis=0) for own in stages.values()]
    return float(np.mean(np.max(end, axis=0) - np.max(begin, axis=0)))


def _time_alone(schedule: Schedule, sizes: NDArray[np.float64], policy: str) -> float:
    """Return the seconds of a gather that nobody else's work or bytes delay."""
    problem = schedule.problem
    cluster = replace(problem.cluster, changes=(), speed_changes=())
    job = replace(problem.job, iterations=1)
    alone = Realization(np.zeros((len(job.tasks), 1)), sizes[:, :1])
    return makespan(replace(problem, cluster=cluster, job=job), alone, policy)


def _bytes_of(schedule: Schedule, kind: str, layer: int) -> NDArray[np.float64]:
    """Return the bytes of a gather by edge and iteration, 0 of all other flows."""
    job = schedule.problem.job
    ends = [(job.tasks[e.source], job.tasks[e.destination]) for e in job.edges]
    own = [
        (one.kind, other.kind) in CARRIES
        and (one.kind, one.settings["layer"]) == (kind, layer)
        for one, other in ends
    ]
    return np.where(np.array(own)[:, None], np.nan_to_num(schedule.flow_bytes), 0.0)
