"""The scenario: all sections of a file, and the problem that they state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator
from typing_extensions import override

from emu.problem import Job, Kill, with_faults
from emu.problem.fields import quantities
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import Count, Duration, FileName, FilePath, Seed
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads import JobPart, several_jobs
from emu.problem.workloads.coflows import with_coflows
from emu.problem.workloads.copies import with_copies
from emu.scenario import events_section
from emu.scenario import run_sections as sections
from emu.systems.job_section import BuildContext, JobSection, with_slowness
from emu.systems.system import section_types, tasks_with_state_of, updates_missed
from emu.systems.training_section import TrainingSection
from emu.units import DURATION, RATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.problem import Cluster, Problem


_OF_SYSTEM = sections.SectionOfSystem(several=sections.SeveralJobsSection)

#: Of which section a job was built last without data, in which context, and the job.
_last_built: tuple[JobSection, BuildContext, Job] | None = None


def _build(section: JobSection, context: BuildContext) -> Job:
    """Return the job of a section; it is checked, then placed, and built once for both.

    Of 700,000 flows that takes 13 s.
    """
    global _last_built  # noqa: PLW0603 - of one file at a time
    if context.cluster is not None:
        return section.build(context)  # by what data sets hold now
    if (
        _last_built is None
        or _last_built[0] is not section
        or _last_built[1] != context
    ):
        _last_built = section, context, section.build(context)
    return _last_built[2]


class Scenario(sections.FileSection):
    """One experiment: a job on a cluster, how it is run, and what should come out."""

    name: FileName
    """Name of the run directory; default is the file's."""
    cluster: ClusterSection
    """The emulated machines."""
    job: Annotated[JobSection, _OF_SYSTEM]
    """The job; or ``jobs``."""
    jobs: tuple[sections.JobsItemSection, ...] = ()
    """Several jobs on the one cluster, in place of ``job``."""
    place_jobs: Literal["sequential", "joint"] = "sequential"
    """``sequential``: each job by its own placement, on what those before it leave;
    ``joint``: all as one."""
    joint_cost: Literal["max", "sum", "weighted"] = "max"
    """Cost of jobs that are placed together: the longest of their times, the sum of
    these, or the sum by ``weight``."""
    placement: sections.PlacementSection = sections.PlacementSection()
    """Which task stands on which machine."""
    schedule: sections.ScheduleSection = sections.ScheduleSection()
    """Allowed rates of flows."""
    emulation: sections.EmulationSection = sections.EmulationSection()
    """Mapping of emulated to real quantities."""
    events: tuple[events_section.EventSection, ...] = ()
    """Changes while the job runs: ``{at: 5 s, machine: m1, nic: 20 Mbit/s}``."""
    checkpoint: events_section.CheckpointSection | None = None
    """State to go on from: ``{every: 20 iterations, to: disk}``."""
    failures: events_section.FailuresSection | None = None
    """Faults that are drawn by their rate."""
    on_failure: Literal["abort", "restart"] = "abort"
    """``restart``: where a process or host dies or stands still, the job goes on from
    its last checkpoint, or its beginning."""
    max_restarts: Count | None = None
    """Restarts; default is 3."""
    recovery: Duration | None = None
    """Time from a death to the restart, anew with each death meanwhile; default is
    2 s."""
    until: sections.UntilSection | None = None
    """Accuracy that ends the training, found in virtual time before a run starts,
    within the length of the job. That of asynchronous runs is another:
    ``reads_apart``."""
    expect: sections.ExpectSection = sections.ExpectSection()
    """Expected results."""
    prices: sections.PricesSection = sections.PricesSection()
    """Prices of functions."""
    systems: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Keys of ``job`` by row of ``emu compare --systems``, or system: ``{p3: {fanouts:
    [5, 5]}}``; of alternatives, in a list, the best is shown."""
    seed: Seed = 0
    """Seed of everything random."""
    profile: FilePath | None = None
    """File of measured times and volumes, relative to the scenario file."""
    _stated_cluster: ClusterSection | None = PrivateAttr(default=None)

    @property
    def stated_cluster(self) -> ClusterSection:
        """The cluster as stated, without the machines that jobs bring along."""
        return self._stated_cluster or self.cluster

    @model_validator(mode="before")
    @classmethod
    def _one_or_several(cls, data: Any) -> Any:
        """Let ``jobs`` stand for ``job``."""
        if not isinstance(data, dict) or not data.get("jobs"):
            return data
        if data.get("job", {"system": sections.SEVERAL}) != {
            "system": sections.SEVERAL
        }:
            raise ValueError("found both job and jobs, write one of them")
        return {**data, "job": {"system": sections.SEVERAL}}

    @model_validator(mode="after")
    def _with_walks(self) -> Self:
        """State ``epoch`` where the file does not.

        From here on it is held: a comparison of partitioners trains one thing.
        """

        def with_epoch(job: JobSection) -> JobSection:
            if not isinstance(job, TrainingSection) or job.epoch is not None:
                return job
            return job.model_copy(update={"epoch": job.default_epoch})

        self.__dict__["job"] = with_epoch(self.job)
        self.__dict__["jobs"] = tuple(
            item.model_copy(update={"job": with_epoch(item.job)}) for item in self.jobs
        )
        return self

    @model_validator(mode="after")
    def _with_machines_of_jobs(self) -> Self:
        """Add the machines that jobs bring along; ``to_json`` leaves them out."""
        jobs = [item.job for item in self.jobs] or [self.job]
        whole = self.cluster
        machines = self.cluster.names
        for section in jobs:
            if not [*section.size_problems(machines)]:  # else an error of its own
                whole = section.with_machines(whole)
        if whole is not self.cluster:
            self._stated_cluster = self.cluster
            self.__dict__["cluster"] = whole  # the model is frozen from now on
        return self

    @model_validator(mode="after")
    def _with_jobs_on_cluster(self) -> Self:
        """Let jobs know the machines that a number of theirs is of."""
        self.__dict__["job"] = self.job.on_cluster(self.cluster)
        self.__dict__["jobs"] = tuple(
            item.model_copy(update={"job": item.job.on_cluster(self.cluster)})
            for item in self.jobs
        )
        return self

    def parts(self) -> tuple[tuple[sections.JobsItemSection, Scenario], ...]:
        """Return each of several jobs with the scenario of it alone; none of one."""
        alone: dict[str, Any] = {"jobs": (), "on_failure": "abort"}
        alone |= dict.fromkeys(("checkpoint", "max_restarts", "recovery"))
        alone["events"] = tuple(event for event in self.events if event.kill is None)
        parts = []
        for item in self.jobs:
            own = {"job": item.job, "placement": item.placement}
            parts.append((item, self.model_copy(update=alone | own)))
        return tuple(parts)

    @override
    def __repr__(self) -> str:
        """Return the name, the cluster's size and the policies."""
        what = f"jobs {', '.join(item.name for item in self.jobs)}"
        if not self.jobs:
            what = f"{self.job.system} job of {self.job.length}"
        return (
            f"<Scenario {self.name}: {len(self.cluster.names)} machines, {what}, "
            f"placement {self.placed_by}, rates {self.schedule.rule}>"
        )

    __str__ = __repr__

    @property
    def restarts(self) -> int:
        """Number of times that a run may begin again."""
        if self.on_failure == "abort":
            return 0
        return self.max_restarts or events_section.DEFAULT_RESTARTS

    @property
    def recovery_time(self) -> float:
        """Seconds from a death until the job goes on."""
        recovery = self.recovery
        return events_section.DEFAULT_RECOVERY if recovery is None else recovery

    def kills(self, problem: Problem) -> tuple[Kill, ...]:
        """Return what is killed of a placed job, by time.

        What stands on no killed machine, or gates alone, is not there to be killed.
        Raises ScenarioError when the task at whose iteration something is killed is not
        there, or has nothing left to do then.
        """
        tasks = problem.machine_of_task
        rows = []
        for n, event in enumerate(self.events):
            if event.kill:
                count = self._progress(n, problem.job)
                rows.append((event.time, event.kill, event.recovery, count))
        if self.failures is not None:
            deaths = self.failures.deaths(problem.cluster, self.seed)
            rows += [(when, name, None, None) for when, name in deaths]
        processes = dict[str, list[str]]()
        hosts = self.emulation.hosts
        machines = {machine.name for machine in problem.cluster.machines}
        at = dict[str, str]()  # and the machine of every process
        for process, own in problem.job.processes.items():
            names = [problem.job.tasks[task].name for task in own]
            # The process of a DGCL device is called as its machine, which is meant.
            home = at[process] = tasks[names[0]]
            of_host = {hosts[home]} if home in hosts else set[str]()
            for name in {home, *of_host, *({process, *names} - machines)}:
                processes.setdefault(name, []).append(process)
        if self.emulation.processes == "machine":
            for name, some in [*processes.items()]:
                whole = (p for process in some for p in processes[at[process]])
                processes[name] = [*dict.fromkeys(whole)]
        kills = [
            Kill(when, name, (*processes[name],), recovery, count)
            for when, name, recovery, count in rows
            if name in processes
        ]
        return tuple(sorted(kills, key=lambda kill: kill.time))

    def _progress(self, number: int, job: Job) -> tuple[int, int] | None:
        """Return the task of an event and the iterations that it has ended by then."""
        at = self.events[number].at
        if not isinstance(at, events_section.ProgressSection):
            return None
        tasks = {job.tasks[t].name: t for own in job.processes.values() for t in own}
        trail = ("events", number, "at")
        if at.task not in tasks:  # DGCL has tasks by what its data set is like
            problem = f"no task {at.task!r}, {nearest(at.task, [*tasks])}"
            raise self.origin.error((*trail, "task"), problem)
        count = job.rounds[tasks[at.task]]
        if at.iteration >= count:
            right = f"write 1 to {count - 1}" if count > 1 else "write a time"
            problem = f"found {at.iteration}, {at.task} has {count} iterations: {right}"
            raise self.origin.error((*trail, "iteration"), problem)
        return tasks[at.task], at.iteration

    @property
    def placed_by(self) -> str:
        """Placement policy; ``sequential`` where each of several jobs has its own."""
        apart = self.jobs and self.place_jobs == "sequential"
        return "sequential" if apart else self.placement.policy

    def advice(self, problem: str) -> str:
        """Return the problem of a placement, with advice where gpus are short.

        The advice is for workers whose demand of gpus is not stated.
        """
        keys = [f"{at}job.{job.asks_for_gpus}" for at, _, job in self.each_job()]
        keys = [key for key in keys if not key.endswith(".")]
        if not (keys and self.cluster.has_gpus and " gpu" in problem):
            return problem
        return (
            f"{problem}; a worker needs one gpu where machines have any: write "
            f"{' and '.join(f'{key}: 0' for key in keys)} to place workers without, or "
            "gpu for the machines that have more"
        )

    def each_job(self) -> list[tuple[str, str, JobSection]]:
        """Return (before its key, before its tasks' names, section) of every job."""
        jobs = enumerate(self.jobs)
        each = [(f"jobs[{i}].", f"{item.name}/", item.job) for i, item in jobs]
        return each or [("", "", self.job)]

    @property
    def pins(self) -> Mapping[str, str]:
        """Machine of every task or process that the file pins."""
        pins_of = {
            f"{prefix}{task}": machine
            for _, prefix, job in self.each_job()
            for _, task, machine in job.list_pins()
        }
        return pins_of | ({} if self.placement.is_explicit else self.placement.tasks)

    def to_cluster(self) -> Cluster:
        """Return the machines, with what events make of their links.

        Where tasks may stand on some alone (``job.machines``), these alone.
        """
        changes = tuple(change for event in self.events for change in event.changes())
        cluster = self.cluster.build()
        links = [link.name for link in cluster.shared_links]
        faults = [fault for event in self.events for fault in event.faults(links)]
        if self.failures is not None:
            faults += self.failures.faults(cluster, self.seed)
        jobs = (job for *_, job in self.each_job())
        tuners = tuple(tuner for job in jobs for tuner in job.tuners(cluster))
        cluster = replace(cluster, changes=changes, tuners=tuners)
        cluster = with_faults(cluster, faults)
        names = {machine.name for machine in cluster.machines}
        machines = self.job.movable_on
        if self.jobs:  # placed together they have the same; else each its own
            machines = self.jobs[0].job.movable_on
            machines = machines if self.place_jobs == "joint" else None
        if machines is None:
            return cluster
        return cluster.only(names & {*machines} or names)  # unknown ones are an error

    def idle_events(self, makespan: float) -> list[str]:
        """Return a sentence for each event after the end, and for faults too few."""
        events = [*events_section.idle_events(self.events, makespan)]
        if self.failures is not None:
            faults = self.failures.faults(self.cluster.build(), self.seed)
            events += events_section.idle_faults(self.failures, faults, makespan)
        return events

    def to_job(
        self, *, train_vertices: int = 0, pins: bool = True, opened: bool = False
    ) -> Job:
        """Return the job, with tasks pinned where ``placement.tasks`` says (``pins``).

        ``opened``: whether the data set is opened where tasks follow from it. Raises
        ValueError when the job counts in epochs and the size of the training set is not
        given, or a pin names an unknown task or contradicts another.
        """
        if self.jobs:
            parts = []
            for item, alone in self.parts():
                part = alone.to_job(train_vertices=train_vertices)
                parts.append(JobPart(item.name, part, item.release))
            job = several_jobs(parts)
        else:
            section = self.job.on_gpus() if self.cluster.has_gpus else self.job
            job = _build(section, self.build_context(train_vertices, opened=opened))
            # A system of another package need not offer the key.
            job = with_coflows(job, getattr(section, "coflow", "task"))
            with_profile = self.profile is not None
            job = with_slowness(job, section, self.cluster, profiled=with_profile)
            checkpoint = self.checkpoint
            if checkpoint is not None and checkpoint.to == "peer":
                teams = tasks_with_state_of(job).values()
                owners = dict.fromkeys(name for names in teams for name in names)
                job = with_copies(job, owners, checkpoint.every, updates_missed(job))
        return sections.pin(job, self.only_present(job, self.pins)) if pins else job

    def only_present(self, job: Job, stated: Mapping[str, str]) -> Mapping[str, str]:
        """Return ``stated`` of the tasks of its job: the data set may name others."""
        if not self.job.shaped_by_data:
            return stated
        names = {*job.units, *(task.name for task in job.tasks)}
        return {name: where for name, where in stated.items() if name in names}

    def build_context(
        self, train_vertices: int = 0, *, opened: bool = False
    ) -> BuildContext:
        """Return the values that a job takes from the other sections."""
        window = self.job.credit_window
        return BuildContext(
            machines=tuple(self.cluster.names),
            window=window if isinstance(window, int) else None,  # else unlimited
            seed=self.seed,
            compute=self.emulation.compute,
            byte_scale=self.emulation.stated_byte_scale,
            train_vertices=train_vertices,
            cluster=self.to_cluster() if opened else None,
            stated=self.cluster,
            policy=self.schedule.rule,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the resolved scenario, loadable again and then equal."""
        content = self.model_dump(mode="json", exclude_none=True)
        if self.jobs:
            del content["job"]
        else:
            del content["jobs"], content["place_jobs"], content["joint_cost"]
        defaults = {"events": (), "on_failure": "abort", "systems": {}}
        for key, default in {**defaults, "prices": sections.PricesSection()}.items():
            if getattr(self, key) == default:
                del content[key]
        if self._stated_cluster is not None:
            cluster = self.stated_cluster.model_dump(mode="json", exclude_none=True)
            content["cluster"] = cluster
        return content


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenarios; ``LabFile`` in its ``$defs`` is of labs."""
    schema = Scenario.model_json_schema(by_alias=True)
    lab = sections.LabFile.model_json_schema(by_alias=True)
    schema["$defs"] |= {**lab.pop("$defs"), "LabFile": lab}
    job = schema["properties"]["job"]
    job["discriminator"]["mapping"].pop(sections.SEVERAL)
    del schema["$defs"]["SeveralJobsSection"]
    names = set(job["discriminator"]["mapping"].values())
    job["oneOf"] = [one for one in job["oneOf"] if one["$ref"] in names]
    schema["required"] = ["cluster"]
    cluster = schema["$defs"]["ClusterSection"]
    cluster["anyOf"] = [{"required": cluster.pop("required")}]
    cluster["anyOf"] += [{"required": ["topology"]}]
    shorthands: dict[tuple[str, str], dict[str, Any]] = {
        ("MachineSection", "nic"): _short_nic(schema),
        ("RackSection", "uplink"): quantities.text_schema(RATE, "40 Gbit/s"),
        ("MachineNic", "latency"): quantities.text_schema(DURATION, "50 us"),
        ("RackSection", "latency"): quantities.text_schema(DURATION, "5 us"),
        ("RouteSection", "from"): {"type": "string"},
        ("RouteSection", "to"): {"type": "string"},
    }
    for section_type in section_types():
        system = section_type.__name__
        if not section_type.trains:
            continue
        text = {"type": "string", "examples": ["products-like"]}
        shorthands[system, "dataset"] = text
        shorthands[system, "optimizer"] = {"enum": ["adam", "sgd"]}
        model = schema["$defs"][system]["properties"]["model"]
        if "oneOf" in model:
            model["anyOf"] = model.pop("oneOf")
    for (section, key), short in shorthands.items():
        properties = schema["$defs"][section]["properties"]
        properties[key] = {"anyOf": [short, properties[key]]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _short_nic(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of ``nic`` as a rate, ``none`` or a list."""
    rate = quantities.text_schema(RATE, "50 Gbit/s")
    section = schema["$defs"]["MachineSection"]["properties"]["nic"]
    several = {"type": "array", "items": {"anyOf": [rate, section]}, "minItems": 1}
    return {"anyOf": [rate, {"const": "none"}, several], "examples": ["50 Gbit/s"]}


def file_schema() -> dict[str, Any]:
    """Return the JSON Schema of what emu reads, for editors: a lab states ``lab``."""
    schema = json_schema()
    schemas = {"Scenario": schema, **schema.pop("$defs")}
    return {
        "$schema": schema.pop("$schema"),
        "if": {"required": ["lab"]},
        "then": {"$ref": "#/$defs/LabFile"},
        "else": {"$ref": "#/$defs/Scenario"},
        "$defs": schemas,
    }
