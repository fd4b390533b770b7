"""The scenario: all sections of a file, and the problem that they state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator
from typing_extensions import override

from emu.scenario.cluster_section import ClusterSection
from emu.scenario.custom_section import CustomJobSection
from emu.scenario.device_times import with_slowness
from emu.scenario.dgtp_section import DgtpJobSection, TrainingSection
from emu.scenario.document import Document, Origin
from emu.scenario.events_section import EventSection
from emu.scenario.jobs_section import (
    SEVERAL,
    JobSection,
    JobsItemSection,
    SeveralJobsSection,
)
from emu.scenario.lab_section import LabFile
from emu.scenario.pins import pinned
from emu.scenario.quantities import FileName, FilePath, Seed, text_schema
from emu.scenario.run_sections import (
    EmulationSection,
    ExpectSection,
    PlacementSection,
    ScheduleSection,
)
from emu.scenario.section import Section
from emu.units import RATE
from emu.workloads import JobPart, several_jobs, training_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.problem import Cluster, Job
    from emu.workloads import TrainingConfig


class Scenario(Section):
    """One experiment: a job on a cluster, how it is run, and what should come out."""

    name: FileName
    """Of the run directory; default is the name of the file."""
    cluster: ClusterSection
    """The emulated machines."""
    job: Annotated[JobSection | SeveralJobsSection, Field(discriminator="system")]
    """What is run; or ``jobs``."""
    jobs: tuple[JobsItemSection, ...] = ()
    """Several jobs on the one cluster, in place of ``job``."""
    place_jobs: Literal["sequential", "joint"] = "sequential"
    """``sequential``: each job by its own placement, on what those before it leave;
    ``joint``: all as one."""
    joint_cost: Literal["max", "sum", "weighted"] = "max"
    """Cost of jobs that are placed together: the longest of their times, the sum of
    these, or the sum by ``weight``."""
    placement: PlacementSection = PlacementSection()
    """Which task stands on which machine."""
    schedule: ScheduleSection = ScheduleSection()
    """Who may send how fast."""
    emulation: EmulationSection = EmulationSection()
    """How emulated quantities become real ones."""
    events: tuple[EventSection, ...] = ()
    """What happens while the job runs: ``{at: 5 s, machine: m1, nic: 20 Mbit/s}``."""
    expect: ExpectSection = ExpectSection()
    """What must come out."""
    seed: Seed = 0
    """Of everything random."""
    profile: FilePath | None = None
    """File of measured times and volumes, relative to the scenario file."""
    _origin: Origin = PrivateAttr(default_factory=Origin)

    @property
    def origin(self) -> Origin:
        """Where it was written."""
        return self._origin

    def read_from(self, document: Document) -> None:
        """Note where it was written, for errors that show later."""
        self._origin = Origin(document)

    @model_validator(mode="before")
    @classmethod
    def _one_or_several(cls, data: Any) -> Any:
        """Let ``jobs`` stand for ``job``."""
        if not isinstance(data, dict) or not data.get("jobs"):
            return data
        if data.get("job", {"system": SEVERAL}) != {"system": SEVERAL}:
            raise ValueError("found both job and jobs, write one of them")
        return {**data, "job": {"system": SEVERAL}}

    def parts(self) -> tuple[tuple[JobsItemSection, Scenario], ...]:
        """Return each of several jobs with the scenario of it alone; none of one."""
        return tuple(
            (
                item,
                self.model_copy(
                    update={"job": item.job, "placement": item.placement, "jobs": ()}
                ),
            )
            for item in self.jobs
        )

    @override
    def __repr__(self) -> str:
        """Return the name, the cluster's size and the policies."""
        length = f"{self.job.iterations} iterations"
        if isinstance(self.job, TrainingSection) and self.job.epochs is not None:
            length = f"{self.job.epochs} epochs"
        what = f"{self.job.system} job of {length}"
        if self.jobs:
            what = f"jobs {', '.join(item.name for item in self.jobs)}"
        return (
            f"<Scenario {self.name}: {len(self.cluster.named())} machines, "
            f"{what}, placement {self.placed_by}, "
            f"rates {self.schedule.rule}>"
        )

    __str__ = __repr__

    @property
    def placed_by(self) -> str:
        """Placement policy; ``sequential`` where each of several jobs has its own."""
        apart = self.jobs and self.place_jobs == "sequential"
        return "sequential" if apart else self.placement.policy

    def advice(self, problem: str) -> str:
        """Return what is wrong with a placement, and what to write.

        Where gpus are short of which nobody has stated a demand.
        """
        jobs = [(f"jobs[{i}].", item.job) for i, item in enumerate(self.jobs)]
        keys = [
            f"{where}job.demands.worker.gpu"
            for where, job in (*jobs, ("", self.job))
            if isinstance(job, DgtpJobSection) and job.demands.worker.gpu is None
        ]
        if not (keys and self.cluster.has_gpus and " gpu" in problem):
            return problem
        return (
            f"{problem}; a worker needs one gpu where machines have any: write "
            f"{' and '.join(f'{key}: 0' for key in keys)} to place workers without, or "
            "gpu for the machines that have more"
        )

    @property
    def pins(self) -> Mapping[str, str]:
        """Machine of every task or process that the file pins."""
        jobs = [("", self.job), *((f"{item.name}/", item.job) for item in self.jobs)]
        stated = {
            f"{prefix}{task.name}": task.pin
            for prefix, job in jobs
            if isinstance(job, CustomJobSection)
            for task in job.tasks
            if task.pin is not None
        }
        return stated | ({} if self.placement.spelt_out else self.placement.tasks)

    def to_cluster(self) -> Cluster:
        """Return the machines, with what events make of their links."""
        changes = tuple(change for event in self.events for change in event.changes())
        return replace(self.cluster.build(), changes=changes)

    def to_job(self, *, train_vertices: int = 0, pins: bool = True) -> Job:
        """Return the job.

        Parameters
        ----------
        train_vertices
            Size of the training set, needed where the job counts in epochs.
        pins
            Whether tasks are pinned where ``placement.tasks`` says, which with every
            policy but ``explicit`` it does.

        Raises
        ------
        ValueError
            When the job counts in epochs and ``train_vertices`` is not given, or a pin
            names an unknown task or contradicts another.
        """
        job = self._unpinned_job(train_vertices)
        profiled = self.profile is not None
        job = with_slowness(job, self.job, self.cluster, profiled=profiled)
        return pinned(job, self.pins) if pins else job

    def _unpinned_job(self, train_vertices: int) -> Job:
        if isinstance(self.job, SeveralJobsSection):
            return several_jobs(
                [
                    JobPart(
                        item.name,
                        alone.to_job(train_vertices=train_vertices),
                        item.release,
                    )
                    for item, alone in self.parts()
                ]
            )
        if isinstance(self.job, CustomJobSection):
            byte_scale = self.emulation.stated_byte_scale
            return self.job.build(
                window=self.window, byte_scale=byte_scale, seed=self.seed
            )
        if self.job.epochs is not None and train_vertices < 1:
            raise ValueError("epochs are counted in training vertices: how many?")
        machines = [name for name, _ in self.cluster.named()]
        config = self.to_config(self.job.count_batches(train_vertices, machines))
        return training_job(config)

    @property
    def window(self) -> int | None:
        """Credit window K, None for unlimited."""
        stated = self.job.credit_window
        return stated if isinstance(stated, int) else None

    def to_config(self, batches: int) -> TrainingConfig:
        """Return the shape of a training job of so many mini-batches per worker.

        Raises
        ------
        ValueError
            When it has none: a job of system custom, groups that are not equal.
        """
        if isinstance(self.job, CustomJobSection | SeveralJobsSection):
            raise ValueError("a custom job trains nothing")  # noqa: TRY004 - of the job
        job = self.job
        if isinstance(job, DgtpJobSection) and self.cluster.has_gpus:
            job = job.on_gpus()
        return job.config(
            [name for name, _ in self.cluster.named()],
            batches=batches,
            window=self.window,
            compute=self.emulation.compute,
            seed=self.seed,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the resolved scenario, loadable again and then equal."""
        told = self.model_dump(mode="json", exclude_none=True)
        if self.jobs:
            del told["job"]
        else:
            del told["jobs"], told["place_jobs"], told["joint_cost"]
        if not self.events:
            del told["events"]
        return told


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenarios; ``LabFile`` in its ``$defs`` is of labs."""
    schema = Scenario.model_json_schema(by_alias=True)
    lab = LabFile.model_json_schema(by_alias=True)
    schema["$defs"] |= {**lab.pop("$defs"), "LabFile": lab}
    job = schema["properties"]["job"]
    job["discriminator"]["mapping"].pop(SEVERAL)
    del schema["$defs"]["SeveralJobsSection"]
    named = set(job["discriminator"]["mapping"].values())
    job["oneOf"] = [one for one in job["oneOf"] if one["$ref"] in named]
    schema["required"] = ["cluster"]
    shorthands: dict[tuple[str, str], dict[str, Any]] = {
        ("MachineSection", "nic"): {
            "anyOf": [text_schema(RATE, "50 Gbit/s"), {"const": "none"}],
            "examples": ["50 Gbit/s"],
        },
        ("RackSection", "uplink"): text_schema(RATE, "40 Gbit/s"),
        ("RouteSection", "from"): {"type": "string"},
        ("RouteSection", "to"): {"type": "string"},
    }
    for system in ("DgtpJobSection", "P3JobSection", "DataParallelJobSection"):
        shorthands[system, "dataset"] = {
            "type": "string",
            "examples": ["products-like"],
        }
        shorthands[system, "optimizer"] = {"enum": ["adam", "sgd"]}
        model = schema["$defs"][system]["properties"]["model"]
        model["anyOf"] = model.pop("oneOf")
    for (section, key), short in shorthands.items():
        properties = schema["$defs"][section]["properties"]
        properties[key] = {"anyOf": [short, properties[key]]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def file_schema() -> dict[str, Any]:
    """Return the JSON Schema of what emu reads, for editors: a lab states ``lab``."""
    schema = json_schema()
    named = {"Scenario": schema, **schema.pop("$defs")}
    return {
        "$schema": schema.pop("$schema"),
        "if": {"required": ["lab"]},
        "then": {"$ref": "#/$defs/LabFile"},
        "else": {"$ref": "#/$defs/Scenario"},
        "$defs": named,
    }
