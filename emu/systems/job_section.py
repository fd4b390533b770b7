"""The ``job`` section, as every system offers it whatever its keys are."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from emu.host.limits import limit
from emu.problem import Cluster, Job, Realization, Task, Tuner
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import (
    DEFAULT_DEVICE,
)
from emu.problem.fields.section import Resources, Section, Trail
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads.operations import Operations
from emu.systems import (
    Edit,
    Floats,
    JobSettings,
    Keys,
    Names,
    Problems,
    Scale,
    Scaling,
    Times,
)
from emu.systems.device_memory import RESOURCE, Parts, demand_devices
from emu.systems.rates_section import KindTimesSection, RatesSection

#: Cause of what is computed of batches before time 0, in words.
PRECOMPUTING = "precomputing"
#: Edges of the largest job that is built: two iterations of 245 workers in a ring, of
#: 481,000, took 33 s of CPU and 1.3 GB; and flows over all of its iterations, of which
#: times and bytes alone take 32 bytes each.
MOST_EDGES = 500_000
MOST_FLOWS = 100_000_000

#: How a job of another system becomes one of a system that lacks some of its keys.
TRANSLATED = "emu compare FILE --systems NAME --write DIR translates a file"


@dataclass(frozen=True)
class BuildContext:
    """Values that a job takes from the other sections of its scenario."""

    machines: Names
    """Names of those of the cluster."""
    window: int | None
    """Credit window K, None for unlimited."""
    seed: int
    compute: str = "timed"
    """``timed``, ``padded`` or ``real``."""
    byte_scale: float = 1.0
    """Real bytes per emulated byte of payloads that are made up."""
    train_vertices: int = 0
    """Size of the training set, 0 where it is not known."""
    cluster: Cluster | None = None
    """Machines and links, where the data set may be opened, too."""
    stated: ClusterSection | None = None
    """The section that ``cluster`` is of."""
    policy: str = "oes"
    """Rate policy of the schedule."""

    @property
    def devices(self) -> dict[str, str]:
        """Machine -> its device, of those that state one."""
        if self.stated is None:
            return {}
        devices = {}
        for name, machine in self.stated.by_name.items():
            if machine.device is not None:
                devices[name] = machine.device
        return devices


class JobSection(Section):
    """Base of the ``job`` section of every system.

    A system declares ``system``, the literal of its name, ``iterations`` and
    ``credit_window`` among its keys, each documented as it means it.
    """

    trains: ClassVar[bool] = False
    """True where it trains on a data set, which settings of the job then name."""
    traced: ClassVar[bool] = False
    """True where a profiler's trace can give the times of its kinds of task."""
    shaped_by_data: ClassVar[bool] = False
    """True where its tasks follow from the data set and the cluster: without them
    `build` returns a job of fewer tasks."""
    unmeasured: ClassVar[str] = ""
    """Why its tasks cannot be measured, empty where they can."""
    foreign: ClassVar[dict[str, str]] = {}
    """Keys of other systems that a user may expect here -> why there are none."""

    grows_with: ClassVar[Names] = ()
    """Keys that `least_edges` grows with, whole numbers."""

    if TYPE_CHECKING:  # else its keys would stand before those of the systems
        system: str
        times: Any  # a section; a word in jobs of the user's own
        machines: Names | None  # where some of them may be stated

        @property
        def iterations(self) -> int | None: ...  # noqa: D102
        @property
        def credit_window(self) -> int | str: ...  # noqa: D102

    @property
    def unprofiled(self) -> str:
        """Why it takes no profile, empty where it does; measured are ``times`` then."""
        return ""

    @property
    def operation_rates(self) -> RatesSection | None:
        """Rates of operations that stand in place of times."""
        return getattr(self, "rates", None)

    def ranks(self, machines: Sequence[str]) -> Names:
        """Return the machines that take part, out of those of the cluster."""
        if self.machines is None:
            return tuple(machines)
        return self.machines

    def owners(self, machines: Sequence[str]) -> Names:
        """Return the machines that own a part of the data, in the parts' order."""
        return self.ranks(machines)

    @property
    def chosen_count(self) -> int | None:
        """Number of machines that `on_machines` takes; None for any."""
        return None

    def choice_pool(self, machines: Sequence[str]) -> Names:
        """Return the machines of which `on_machines` takes some."""
        return tuple(machines)

    def on_cluster(self, cluster: ClusterSection) -> Self:
        """Return the job, with what follows from the machines of its cluster."""
        return self

    @property
    def length(self) -> str:
        """Number of iterations or epochs, in words."""
        epochs = getattr(self, "epochs", None)
        if epochs:
            unit = "epoch" if epochs == 1 else "epochs"
            return f"{epochs} {unit}"
        unit = "iteration" if self.iterations == 1 else "iterations"
        return f"{self.iterations} {unit}"

    def of_steps(self, steps: int) -> Self:
        """Return the job with so many steps of training, counted in no other way."""
        return self.model_copy(update={"iterations": steps})

    def build(self, context: BuildContext) -> Job:
        """Return the job, ValueError as of `Job`, or for epochs of unknown length."""
        raise NotImplementedError

    def realize(
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
        measured: Times,
    ) -> Realization:
        """Return the times and volumes of ``job``, which `build` has made.

        ``measured``: kind of task -> seconds, which hold where none are stated. Raises
        ScenarioError when a time is missing, or they contradict the cluster or the data
        set; DataError when the data set is missing or damaged.
        """
        raise NotImplementedError

    def device_memory(
        self,
        _job: Job,
        _context: BuildContext,
    ) -> Mapping[str, Parts]:
        """Return what each task keeps in memory of a GPU, in real bytes.

        Raises DataError when the data set is missing or damaged.
        """
        return {}

    def reserve_devices(
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
    ) -> Job:
        """Return the job with `device_memory` demanded, where machines state theirs.

        Raises ScenarioError where it does not fit; DataError as `device_memory`.
        """
        states_memory = [RESOURCE in machine.resources for machine in cluster.machines]
        if not any(states_memory):
            return job
        parts = self.device_memory(job, context)
        return demand_devices(job, cluster, parts, context.byte_scale)

    def planning(self, settings: JobSettings) -> dict[str, Callable[[], object]]:
        """Return what is computed before time 0, by its rate: each does it anew.

        ``settings`` are those of a built job. Raises DataError when the data set is
        missing or damaged.
        """
        partitioner = settings.get("partitioner")
        by_metis = partitioner in {"metis", "metis-dgl", "hierarchical"}
        if not by_metis or settings["parts"] == 1:
            return {}
        from emu.graph_data import open_for  # noqa: PLC0415 - 60 ms
        from emu.graph_data.dataset import partition  # noqa: PLC0415 - likewise

        cut = partial(
            partition,
            open_for(settings).structure,
            settings["parts"],
            settings["partitioner"],
            boxes=settings.get("boxes") or (),
        )
        return {"partition": cut}

    def precomputed(
        self,
        _settings: JobSettings,
        _iterations: int,
    ) -> Mapping[str, float]:
        """Return operation -> count of what is computed of batches before time 0.

        That of the process with the most; each does its own. Of a built job its
        settings and length. Raises DataError as `planning`.
        """
        return {}

    def rate_problems(self) -> Problems:
        """Yield what is wrong with rates beside times, or beside a program's model."""
        if self.operation_rates is None:
            return
        # Times that equal their defaults are not stated, as far as can be seen here.
        if self.times != type(self.times)():
            problem = "found rates and times, of which each gives all times: write one"
            yield ("job", "rates"), problem

    def count_operations(
        self,
        job: Job,
        context: BuildContext,
        volumes: Floats,
    ) -> Operations:
        """Return the operations of every task, from real bytes of (edge, iteration)."""
        raise NotImplementedError

    def rates_of(self, task: Task, device: str) -> dict[str, float]:
        """Return operation -> seconds of a task on a device, of job.rates.

        What a GPU collects lies in its own memory: one rate per place, in every system.
        """
        assert self.operation_rates is not None  # noqa: S101 - for mypy
        rates = self.operation_rates.on(device)
        if self.collects_on_device(task):
            rates["collect"] = rates["collect_device"]
        return rates

    def collects_on_device(self, task: Task) -> bool:
        """Return True where the rows that a task collects lie in memory of a GPU."""
        return task.takes == "gpu"

    def rate_tasks(
        self,
        job: Job,
        context: BuildContext,
        volumes: Floats,
    ) -> Floats:
        """Return seconds of (task, iteration) by the stated rates.

        A task that is pinned has the rates of its machine's device, others the default
        ones, of which ``Task.slowness`` is a multiple.
        """
        devices = context.devices
        rates = []
        for task in job.tasks:
            # Where a task that can move will stand is not known yet.
            device = devices.get(task.pinned or "", DEFAULT_DEVICE)
            rates_of_task = self.rates_of(task, device)
            rates.append(rates_of_task)
        operations = self.count_operations(job, context, volumes)
        return operations.seconds(rates)

    def least_edges(self, machines: Sequence[str]) -> int:
        """Return how many edges the job on these machines has at the least.

        None is built: 10,000 workers with as many parameter servers would take all
        memory before anything could be refused.
        """
        return 1

    def size_problems(self, machines: Sequence[str]) -> Problems:
        """Yield the key that makes more edges or flows than `MOST_EDGES` allow."""
        edges = self.least_edges(machines)
        # Of epochs on samples the length is not known here: a step at the least.
        epochs = getattr(self, "epochs", None)
        steps = self.iterations or epochs or 1
        flows = edges * steps
        if edges > limit(MOST_EDGES):
            key, size, fits = self._largest_key(machines)
            trail = "cluster" if key == "machines" else "job"
            advice = "write fewer"
            if fits:
                advice = f"write {fits:,} or fewer"
            problem = (
                f"found {size:,}, which make {edges:,} edges or more, at most "
                f"{MOST_EDGES:,} are built: {advice}"
            )
            yield (trail, key), problem
        elif flows > limit(MOST_FLOWS):
            key = "epochs" if epochs else "iterations"
            most_steps = MOST_FLOWS // edges
            problem = (
                f"found {steps:,}, with {edges:,} edges or more {flows:,} "
                f"flows, at most {MOST_FLOWS:,} are simulated: write "
                f"{most_steps:,} or fewer"
            )
            yield ("job", key), problem

    def _largest_key(self, machines: Sequence[str]) -> tuple[str, int, int]:
        """Return the key that makes too many edges, its value, and one that fits.

        That is the largest of those by which alone the job can be made small enough:
        that of the others is seldom the slip. Where none can, the largest, and 0.
        """
        most = limit(MOST_EDGES)

        def is_too_much(key: str, size: int) -> bool:
            if key == "machines":
                edges = self.least_edges(machines[:size])
            else:
                job = self.model_copy(update={key: size})
                edges = job.least_edges(machines)
            return edges > most

        sizes = {}
        for key in self.grows_with:
            size = getattr(self, key)
            if isinstance(size, int):
                sizes[key] = size
        sizes["machines"] = len(machines)
        largest_first = sorted(sizes, key=lambda key: -sizes[key])
        for key in largest_first:
            exceeds = partial(is_too_much, key)
            values_below = range(1, sizes[key])
            # Edges grow with each key: the largest value that fits is searched for.
            fits = bisect.bisect_left(values_below, True, key=exceeds)
            if fits:
                return key, sizes[key], fits
        largest, *_ = largest_first
        return largest, sizes[largest], 0

    @property
    def movable_on(self) -> Names | None:
        """Machines that tasks which can move may stand on; None for all."""
        return None

    def on_machines(self, names: Sequence[str], count: int) -> Self | None:
        """Return the job on these machines alone, in place of all ``count``.

        None where the file states them, or where what is trained or what times mean
        would be another, as with one worker per machine, or one part of the graph.
        """
        return None

    def machine_keys(self) -> Edit:
        """Return the keys and values that `on_machines` has set, or the file states."""
        return {}

    def with_machines(self, cluster: ClusterSection) -> ClusterSection:
        """Return the cluster with the machines that the job brings along."""
        return cluster

    def tuners(self, cluster: Cluster) -> tuple[Tuner, ...]:
        """Return the pools of slots that the job tunes while it runs."""
        return ()

    def problems(self, cluster: ClusterSection) -> Problems:
        """Yield (where, what is wrong and what would be right) between its keys."""
        yield from ()

    def slot_problems(self, cluster: ClusterSection) -> Problems:
        """Yield the same of slots, once machines and resources are right."""
        yield from ()

    def list_untimed(self) -> Iterator[str]:
        """Yield the keys of ``times`` that have to be stated, and are not."""
        yield from ()

    def keys_of_kinds(self, kinds: AbstractSet[str]) -> Names:
        """Return the keys of ``times`` that the CPU times of these kinds give."""
        keys = type(self.times).model_fields
        return tuple(key for key in keys if key in kinds)

    def list_demands(self) -> Iterator[tuple[Trail, Resources]]:
        """Yield (where, what is demanded there)."""
        yield from ()

    def demands_at(self, task: Task) -> Trail:
        """Return where the demands of a task of the job are written."""
        for trail, _ in self.list_demands():
            if trail[-1] == task.kind:
                return trail
        return ("job", "demands")

    def list_pins(self) -> Iterator[tuple[Trail, str, str]]:
        """Yield (where, task, machine that the task must stand on)."""
        yield from ()

    def device_times(self) -> Iterator[tuple[Trail, str, Times]]:
        """Yield (where, task or kind of task, device -> seconds) of what differs."""
        times = getattr(self, "times", None)
        if isinstance(times, KindTimesSection):
            yield from times.device_times()

    @property
    def uncut(self) -> str:
        """Why no checkpoints of it can be kept, empty where its system keeps some."""
        return ""

    @property
    def measures_worker(self) -> bool:
        """True where a worker's time is measured."""
        return False

    @property
    def goes_by_speed(self) -> bool:
        """True where stated times are of measurements, and machines' speeds divide."""
        return False

    def idle_keys(self) -> Iterator[str]:
        """Yield sentences on keys of it that change nothing, or are hardly meant."""
        yield from ()

    @property
    def fit_note(self) -> str:
        """Error of a fit where it was not fitted, in words; empty where it is none."""
        return ""

    @property
    def pays_functions(self) -> bool:
        """True where functions of a provider work, of which ``prices`` are."""
        return False

    @property
    def made_slots(self) -> frozenset[str]:
        """Resources of machines whose amounts are numbers of slots of the job."""
        return frozenset()

    @property
    def asks_for_gpus(self) -> str:
        """The key that a gpu per worker would go without, empty where it is stated."""
        return ""

    def on_gpus(self) -> Self:
        """Return the job on machines with gpus, where nothing is said of gpus."""
        return self

    @property
    def rings_follow_placement(self) -> bool:
        """True where the ring is put in order again after placement."""
        return False

    def scale_times(
        self,
        tasks: Mapping[str, str],
        wanted: set[str],
        scale: Scale,
    ) -> Scaling:
        """Return an edit that scales the times of wanted tasks, and whom it covers.

        ``tasks``: all of the job, name -> kind; ``scale``: returns a stated time times
        a factor.
        """
        return {}, set()

    def scale_links(
        self,
        cluster: ClusterSection,
        links: set[str],
        scale: Scale,
    ) -> Scaling:
        """Return an edit that scales links of `with_machines`, and those it covers.

        ``cluster``: as stated, without them; ``scale``: returns a rate times a factor.
        """
        return {}, set()

    def scale_latencies(self, scale: Scale) -> Edit:
        """Return an edit that scales the latencies of links of `with_machines`."""
        return {}

    def scale_volumes(self, rows: list[int], scale: Scale) -> Edit:
        """Return an edit that scales the volumes of edges; empty where none can."""
        return {}

    def manifest(self) -> Keys:
        """Return notes on the system for a run's manifest, beside the scenario."""
        return {}

    def rank_problems(self, cluster: ClusterSection) -> Problems:
        """Yield what is wrong with ``job.machines``: unknown, or there twice."""
        yield from name_problems("machines", self.machines or (), cluster.names)

    def device_problems(self, cluster: ClusterSection) -> Problems:
        """Yield devices with times that no machine has, and what would be right."""
        # A device that no machine has would be a time that nothing ever takes.
        stated = {machine.device for machine in cluster.machines if machine.device}
        devices = sorted(stated)
        entries = [*self.device_times()]
        if self.operation_rates is not None:
            entries += self.operation_rates.device_rates()
        for trail, _, times in entries:
            for device in times:
                if device != DEFAULT_DEVICE and device not in devices:
                    hint = "no machine has a device"
                    if devices:
                        hint = nearest(device, devices)
                    yield (*trail, device), f"no machine has device {device!r}, {hint}"


def name_problems(key: str, stated: Sequence[str], machines: Sequence[str]) -> Problems:
    """Yield what is wrong with machines under a key of ``job``."""
    counts = Counter(stated)
    for position, name in enumerate(stated):
        trail: Trail = ("job", key, position)
        if name not in machines:
            yield trail, f"no machine {name!r}, {nearest(name, machines)}"
        elif counts[name] > 1:
            yield trail, f"{name!r} occurs {counts[name]} times"


def whole_kinds(tasks: Mapping[str, str], wanted: set[str]) -> set[str]:
    """Return the kinds of the wanted tasks; none where others are of these kinds."""
    kinds = {tasks[name] for name in wanted}
    # A time is of a whole kind: scaled for some, it would change others as well.
    of_kinds = {name for name, kind in tasks.items() if kind in kinds}
    if of_kinds - wanted:
        return set()
    return kinds
