"""The scenario: all sections of a file, and the problem that they state."""

from __future__ import annotations

from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Self,
    TypeAlias,
)

from pydantic import Field, PrivateAttr, model_validator
from typing_extensions import override

from emu.problem import Job, Kill, with_faults
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import Count, Duration, FileName, FilePath, Seed
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads import JobPart, several_jobs
from emu.problem.workloads.coflows import with_coflows
from emu.problem.workloads.copies import with_copies
from emu.scenario import events_section
from emu.scenario import run_sections as sections
from emu.scenario.pins import pin
from emu.systems.job_section import BuildContext, JobSection
from emu.systems.section_faults import build_by
from emu.systems.slowness import with_slowness
from emu.systems.system import tasks_with_state_of, updates_missed
from emu.systems.training_section import TrainingSection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emu.problem import CapacityChange, Cluster, Fault, Problem, Tuner


#: A scenario as JSON.
Content: TypeAlias = dict[str, Any]


class _Built(NamedTuple):
    """A job, and what it was built of without data."""

    section: JobSection
    context: BuildContext
    job: Job


# One alone: the check of a file is followed by its run, and large jobs take memory.
_last_built: _Built | None = None


def _build(section: JobSection, context: BuildContext) -> Job:
    """Return the job of a section; it is checked, then placed, and built once for both.

    Of 700,000 flows that takes 13 s.
    """
    global _last_built  # noqa: PLW0603 - of one file at a time
    if context.cluster is not None:
        return build_by(section, context)  # by what data sets hold now
    last = _last_built
    # Sections are frozen, and equal ones state the same job: one of machines with gpus
    # is written anew for each call.
    if last is None or last.section != section or last.context != context:
        last = _Built(
            section=section,
            context=context,
            job=build_by(section, context),
        )
        _last_built = last
    return last.job


class Scenario(sections.FileSection):
    """One experiment: a job on a cluster, how it is run, and what should come out."""

    name: FileName
    """Name of the run directory; default is the file's."""
    cluster: ClusterSection
    """The emulated machines."""
    job: sections.AnyJob
    """The job; or ``jobs``."""
    jobs: tuple[sections.JobsItemSection, ...] = Field(default=(), min_length=1)
    """Several jobs on the one cluster, in place of ``job``."""
    # Jointly placed pairs of jobs took 0.87 of the time of sequential ones, in 20
    # draws.
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
    accuracy: FilePath | dict[str, FilePath] | None = None
    """Curves of accuracy that were recorded, by row of ``emu compare --systems``, each
    of a training as that row is; a file alone is of the file's own system: CSV of
    ``step,accuracy`` or ``epoch,accuracy``. ``--to`` takes steps from it, in place of a
    training."""
    training_scales: tuple[Annotated[float, Field(gt=0, lt=1)], ...] | None = Field(
        default=None, json_schema_extra={"minItems": 3}
    )
    """Scales of a drawn graph at which ``--to`` trains, three or more: the steps that
    rows without a curve take there are followed to the scale of the file."""
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
        # What is no mapping is an error of pydantic's, later.
        if not isinstance(data, dict) or not data.get("jobs"):
            return data

        if "job" in data:
            raise ValueError("found both job and jobs, write one of them")
        # No word that a file may write: it is validated already.
        several = {"system": sections.SEVERAL}
        stand_in = sections.SeveralJobsSection.model_validate(several)
        return {**data, "job": stand_in}

    @model_validator(mode="after")
    def _with_walks(self) -> Self:
        """State ``epoch`` where the file does not.

        From here on it is held: a comparison of partitioners trains one thing.
        """

        def with_epoch(job: JobSection) -> JobSection:
            if not isinstance(job, TrainingSection):
                return job
            if job.epoch is not None:
                return job
            return job.model_copy(update={"epoch": job.default_epoch})

        self._replace_jobs(with_epoch)
        return self

    def _replace_jobs(self, change: Callable[[JobSection], JobSection]) -> None:
        """Put changed sections in place of all jobs: the model is frozen by now."""
        self.__dict__["job"] = change(self.job)
        jobs = []
        for item in self.jobs:
            job = change(item.job)
            changed_item = item.model_copy(update={"job": job})
            jobs.append(changed_item)
        self.__dict__["jobs"] = tuple(jobs)

    @model_validator(mode="after")
    def _with_machines_of_jobs(self) -> Self:
        """Add the machines that jobs bring along; ``to_json`` leaves them out."""
        names = self.cluster.names
        cluster = self.cluster
        for *_, section in self.each_job():
            problems = list(section.size_problems(names))
            if not problems:  # else an error of its own
                cluster = section.with_machines(cluster)
        if cluster is not self.cluster:
            self._stated_cluster = self.cluster
            self.__dict__["cluster"] = cluster  # the model is frozen from now on
        return self

    @model_validator(mode="after")
    def _with_jobs_on_cluster(self) -> Self:
        """Let jobs know the machines that a number of theirs is of."""
        # Last: the machines that jobs bring along are there by now.
        self._replace_jobs(lambda job: job.on_cluster(self.cluster))
        return self

    @property
    def curve_files(self) -> Mapping[str, str]:
        """Files of ``accuracy`` by row."""
        if isinstance(self.accuracy, str):
            return {self.job.system: self.accuracy}
        return self.accuracy or {}

    def trail_of_curve(self, row: str) -> Trail:
        """Return the place of the curve of a row in the file."""
        if isinstance(self.accuracy, dict):
            return ("accuracy", row)
        return ("accuracy",)

    def parts(self) -> tuple[tuple[sections.JobsItemSection, Scenario], ...]:
        """Return each of several jobs with the scenario of it alone; none of one."""
        # What is of all jobs stays with the whole: kills, checkpoints and restarts.
        events = [event for event in self.events if event.kill is None]
        changes: dict[str, Any] = {
            "jobs": (),
            "events": tuple(events),
            "checkpoint": None,
            "on_failure": "abort",
            "max_restarts": None,
            "recovery": None,
        }

        parts = []
        for item in self.jobs:
            changes["job"] = item.job
            changes["placement"] = item.placement
            part = self.model_copy(update=changes)
            parts.append((item, part))
        return tuple(parts)

    @override
    def __repr__(self) -> str:
        """Return the name, the cluster's size and the policies."""
        if self.jobs:
            names = ", ".join(item.name for item in self.jobs)
            words = f"jobs {names}"
        else:
            words = f"{self.job.system} job of {self.job.length}"
        machines = len(self.cluster.names)
        return (
            f"<Scenario {self.name}: {machines} machines, {words}, "
            f"placement {self.placed_by}, rates {self.schedule.rule}>"
        )

    __str__ = __repr__

    @property
    def restarts(self) -> int:
        """Number of times that a run may begin again."""
        if self.on_failure == "abort":
            return 0
        # A stated number is 1 or more, so that ``or`` passes over nothing.
        return self.max_restarts or events_section.DEFAULT_RESTARTS

    @property
    def recovery_time(self) -> float:
        """Seconds from a death until the job goes on."""
        if self.recovery is None:
            return events_section.DEFAULT_RECOVERY
        return self.recovery

    @property
    def states_deaths(self) -> bool:
        """True where events or failures kill, wherever its tasks stand."""
        failures = self.failures
        has_drawn_deaths = failures is not None and failures.mortal > 0.0
        return has_drawn_deaths or any(event.kill for event in self.events)

    def kills(self, problem: Problem) -> tuple[Kill, ...]:
        """Return what is killed of a placed job, by time.

        What stands on no killed machine, or gates alone, is not there to be killed.
        Raises ScenarioError when the task at whose iteration something is killed is not
        there, or has nothing left to do then.
        """
        stated_kills = self._list_kills(problem)
        if not stated_kills:
            return ()
        processes = self._processes_by_name(problem)
        kills = []
        for kill in stated_kills:
            victims = processes.get(kill.name)
            if victims is not None:
                kill_of_victims = replace(kill, processes=tuple(victims))
                kills.append(kill_of_victims)
        kills.sort(key=lambda kill: kill.time)
        return tuple(kills)

    def _list_kills(self, problem: Problem) -> list[Kill]:
        """Return what events and failures kill, without the processes."""
        kills = []
        for position, event in enumerate(self.events):
            if event.kill:
                ended = self._progress(position, problem.job)
                kill = Kill(
                    time=event.time,
                    name=event.kill,
                    processes=(),
                    recovery=event.recovery,
                    ended=ended,
                )
                kills.append(kill)

        if self.failures is not None:
            deaths = self.failures.deaths(problem.cluster, self.seed)
            kills += [Kill(time, name, processes=()) for time, name in deaths]
        return kills

    def _processes_by_name(self, problem: Problem) -> dict[str, list[str]]:
        """Return the processes that die with a task, process, machine or host."""
        job = problem.job
        machines = {*problem.cluster.names}
        hosts = self.emulation.hosts
        processes: dict[str, list[str]] = {}
        homes: dict[str, str] = {}
        for process, members in job.processes.items():
            tasks = [job.tasks[member].name for member in members]
            # All tasks of a process stand on one machine.
            home = problem.machine_of_task[tasks[0]]
            homes[process] = home
            of_host = {hosts[home]} if home in hosts else set[str]()
            # The process of a DGCL device is called as its machine, which is meant.
            words = {process, *tasks} - machines
            for name in {home, *of_host, *words}:
                victims = processes.setdefault(name, [])
                victims.append(process)

        if self.emulation.processes == "machine":
            # Whoever is named, all that share the process of that machine die.
            for name, victims in list(processes.items()):
                dying: dict[str, None] = {}
                for process in victims:
                    home = homes[process]
                    neighbours = processes[home]
                    dying.update(dict.fromkeys(neighbours))
                processes[name] = list(dying)
        return processes

    def _progress(self, position: int, job: Job) -> tuple[int, int] | None:
        """Return the task of an event and the iterations that it has ended by then."""
        progress = self.events[position].at
        if not isinstance(progress, events_section.ProgressSection):
            return None

        tasks = {}
        for members in job.processes.values():
            for member in members:
                task = job.tasks[member]
                tasks[task.name] = member
        name = progress.task
        trail = ("events", position, "at")
        if name not in tasks:  # DGCL has tasks by what its data set is like
            suggestion = nearest(name, list(tasks))
            problem = f"no task {name!r}, {suggestion}"
            raise self.origin.error((*trail, "task"), problem)

        member = tasks[name]
        count = job.rounds[member]
        # With its last iteration a task has ended, and what has ended cannot be killed.
        if progress.iteration >= count:
            remedy = "write a time"
            if count > 1:
                last = count - 1
                remedy = f"write 1 to {last}"
            problem = f"found {progress.iteration}, {name} has {count} iterations"
            problem = f"{problem}: {remedy}"
            raise self.origin.error((*trail, "iteration"), problem)
        return member, progress.iteration

    @property
    def placed_by(self) -> str:
        """Placement policy; ``sequential`` where each of several jobs has its own."""
        if self.jobs and self.place_jobs == "sequential":
            return "sequential"
        return self.placement.policy

    def advice(self, problem: str) -> str:
        """Return the problem of a placement, with advice where gpus are short.

        The advice is for workers whose demand of gpus is not stated.
        """
        demands = []
        for place, _, job in self.each_job():
            if job.asks_for_gpus:
                demands.append(f"{place}job.{job.asks_for_gpus}: 0")
        is_of_gpus = self.cluster.has_gpus and " gpu" in problem
        if not demands or not is_of_gpus:
            return problem

        without_gpus = " and ".join(demands)
        return (
            f"{problem}; a worker needs one gpu where machines have any: write "
            f"{without_gpus} to place workers without, or "
            "gpu for the machines that have more"
        )

    def each_job(self) -> list[tuple[str, str, JobSection]]:
        """Return (before its key, before its tasks' names, section) of every job."""
        if not self.jobs:
            return [("", "", self.job)]
        jobs = []
        for position, item in enumerate(self.jobs):
            place = f"jobs[{position}]."
            prefix = f"{item.name}/"
            jobs.append((place, prefix, item.job))
        return jobs

    @property
    def pins(self) -> Mapping[str, str]:
        """Machine of every task or process that the file pins."""
        pins = {}
        for _, prefix, job in self.each_job():
            for _, task, machine in job.list_pins():
                pins[prefix + task] = machine
        # An explicit placement leaves nothing to search: its places are checked as
        # such.
        if not self.placement.is_explicit:
            pins.update(self.placement.tasks)
        return pins

    def to_cluster(self) -> Cluster:
        """Return the machines, with what events make of their links.

        Where tasks may stand on some alone (``job.machines``), these alone.
        """
        cluster = self.cluster.build()
        links = [link.name for link in cluster.shared_links]
        changes: list[CapacityChange] = []
        faults: list[Fault] = []
        for event in self.events:
            changes += event.changes()
            faults += event.faults(links)
        if self.failures is not None:
            faults += self.failures.faults(cluster, self.seed)

        tuners: list[Tuner] = []
        for *_, job in self.each_job():
            tuners += job.tuners(cluster)
        cluster = replace(
            cluster,
            changes=tuple(changes),
            tuners=tuple(tuners),
        )
        # After the changes: a fault is a share of whatever a link has by then.
        cluster = with_faults(cluster, faults)

        section = self.job
        if self.jobs:  # placed together they have the same machines; else each its own
            if self.place_jobs == "sequential":
                return cluster
            section = self.jobs[0].job
        if section.movable_on is None:
            return cluster
        names = {*cluster.names}
        candidates = names.intersection(section.movable_on)
        return cluster.only(candidates or names)  # unknown ones are an error

    def idle_events(self, makespan: float) -> list[str]:
        """Return a sentence for each event after the end, and for faults too few."""
        sentences = list(events_section.idle_events(self.events, makespan))
        if self.failures is not None:
            # Of all machines, of which a job may leave some out.
            cluster = self.cluster.build()
            faults = self.failures.faults_by_key(cluster, self.seed)
            sentences += events_section.idle_faults(
                self.failures,
                faults,
                makespan,
            )
        return sentences

    def to_job(
        self,
        *,
        train_vertices: int = 0,
        pins: bool = True,
        opened: bool = False,
    ) -> Job:
        """Return the job, with tasks pinned where ``placement.tasks`` says (``pins``).

        ``opened``: whether the data set is opened where tasks follow from it. Raises
        ValueError when the job counts in epochs and the size of the training set is not
        given, or a pin names an unknown task or contradicts another.
        """
        if self.jobs:
            parts = []
            for item, scenario in self.parts():
                job = scenario.to_job(train_vertices=train_vertices)
                part = JobPart(item.name, job, item.release)
                parts.append(part)
            job = several_jobs(parts)
        else:
            context = self.build_context(train_vertices, opened=opened)
            job = self._build_one(context)

        if not pins:
            return job
        present_pins = self.only_present(job, self.pins)
        return pin(job, present_pins)

    def _build_one(self, context: BuildContext) -> Job:
        """Return the only job, with the copies of its state, without pins."""
        # Where one machine states gpus, a worker needs one, and the others have none.
        section = self.job
        if self.cluster.has_gpus:
            section = section.on_gpus()
        job = _build(section, context)
        # A system of another package need not offer the key.
        coflow: Any = getattr(section, "coflow", "task")
        job = with_coflows(job, coflow)
        job = with_slowness(
            job,
            section,
            self.cluster,
            profiled=self.profile is not None,
        )

        checkpoint = self.checkpoint
        if checkpoint is None or checkpoint.to != "peer":
            return job
        owners: dict[str, None] = {}  # a set has no order
        for names in tasks_with_state_of(job).values():
            owners.update(dict.fromkeys(names))
        # Last: `without_copies` tells copies by standing behind all others.
        return with_copies(
            job=job,
            owners=owners,
            every=checkpoint.every,
            missed=updates_missed(job),
        )

    def only_present(self, job: Job, stated: Mapping[str, str]) -> Mapping[str, str]:
        """Return ``stated`` of the tasks of its job: the data set may name others."""
        if not self.job.shaped_by_data:
            return stated
        names = {task.name for task in job.tasks}
        names.update(job.units)
        rows = stated.items()
        return {name: machine for name, machine in rows if name in names}

    def build_context(
        self,
        train_vertices: int = 0,
        *,
        opened: bool = False,
    ) -> BuildContext:
        """Return the values that a job takes from the other sections."""
        stated_window = self.job.credit_window
        window = None
        if isinstance(stated_window, int):  # else unlimited
            window = stated_window
        return BuildContext(
            machines=tuple(self.cluster.names),
            window=window,
            seed=self.seed,
            compute=self.emulation.compute,
            byte_scale=self.emulation.stated_byte_scale,
            train_vertices=train_vertices,
            cluster=self.to_cluster() if opened else None,
            stated=self.cluster,
            policy=self.schedule.rule,
        )

    def to_json(self) -> Content:
        """Return the resolved scenario, loadable again and then equal."""
        content = self.model_dump(mode="json", exclude_none=True)
        # Of job and jobs a file may state one: the stand-in would be read as a second.
        if self.jobs:
            del content["job"]
        else:
            for key in ("jobs", "place_jobs", "joint_cost"):
                del content[key]

        for key in ("events", "on_failure", "systems", "prices"):
            field = type(self).model_fields[key]
            default = field.get_default(call_default_factory=True)
            if getattr(self, key) == default:
                del content[key]
        # Jobs bring their machines along again where this is read.
        if self._stated_cluster is not None:
            cluster = self.stated_cluster
            content["cluster"] = cluster.model_dump(mode="json", exclude_none=True)
        return content
