"""Section ``job`` of ``system: custom``: any graph of timed tasks and flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from emu.scenario.quantities import (
    DEFAULT_WINDOW,
    Count,
    DurationPerIteration,
    Few,
    Index,
    Name,
    SizePerIteration,
    TaskName,
    Window,
    default_time,
)
from emu.scenario.section import Resources, Section
from emu.workloads import (
    SEGMENTS,
    AllReduce,
    CustomFlow,
    CustomTask,
    custom_job,
    custom_realization,
    with_collectives,
)

if TYPE_CHECKING:
    from emu.problem import Job, Realization


class CustomTaskSection(Section):
    """One task; it runs once per iteration."""

    name: TaskName = Field(examples=["w0"])
    """Unique in the job."""
    kind: Name = "task"
    """``graph_store``, ``sampler``, ``worker``, ``parameter_server`` or any word."""
    time: DurationPerIteration
    """Execution time, one or one per iteration, or ``{default: ..., DEVICE: ...}``."""
    demands: Resources = Resources()
    """What the task needs of its machine."""
    pin: Name | None = None
    """The machine that the task must stand on; without it placement decides."""
    process: TaskName | None = None
    """Tasks of one process stand on one machine and hand over in its memory; default is
    a process of its own."""
    iterations: Count | None = None
    """Times that the task runs; default is ``job.iterations``."""
    slot: Name | None = None
    """Pool of its machine that it holds a slot of while it runs."""
    takes: Name | None = None
    """Pool that it needs a slot of to start; at its end it ``frees`` one."""
    frees: Name | None = None
    """Pool that gets a slot back at its end, or ``none``; default: what it takes."""
    server: TaskName | None = None
    """Process in which the tasks of this server run one at a time, first come first
    served."""
    gate: bool = False
    """No process runs it: a barrier, a release; flows to and from it have 0 bytes."""

    def given_back(self) -> str | None:
        """Return the pool that it frees, empty for none, None for what it takes."""
        return "" if self.frees == "none" else self.frees


class FlowSection(Section):
    """One edge: ``to`` in iteration n needs what ``from`` produced in n - lag."""

    source: Name = Field(alias="from", examples=["s0"])
    """Task that sends."""
    destination: Name = Field(alias="to", examples=["w0"])
    """Task that waits."""
    lag: Index = 0
    """Iterations between sending and needing."""
    volume: SizePerIteration
    """Bytes, one or one per iteration of the source."""
    channel: TaskName | None = None
    """Flows of one channel go one after the other in the order in which they got ready,
    as on one TCP connection."""
    reads: Literal["each", "latest"] = "each"
    """``each``: ``to`` reads n - lag. ``latest``: the newest that has arrived when it
    starts, n - lag at the least."""


class AllReduceSection(Section):
    """An all-reduce round a ring, as gloo and NCCL run it."""

    among: tuple[TaskName, ...] = Field(examples=[["w0", "w1", "w2"]])
    """Tasks, two or more, in the order of the ring: each sends to the next (gloo: to
    the one before)."""
    volume: SizePerIteration
    """Bytes of what each of them brings, one or one per iteration."""
    then: tuple[TaskName, ...] = ()
    """Per task, the one that waits for the sum; default is the task itself, in its next
    iteration."""
    lag: Index | None = None
    """Iterations from a sum to the task that waits; default is 1 without ``then``, 0
    with it."""
    segments: Few = SEGMENTS
    """Pieces that what a step sends is cut into, so that they overlap: 2 in gloo."""

    def all_reduce(self) -> AllReduce:
        """Return what it says."""
        lag = self.lag if self.lag is not None else int(not self.then)
        return AllReduce(self.among, self.volume, self.then, lag, self.segments)


class CollectiveSection(Section):
    """A collective: tasks and flows of its own, in the processes of its tasks."""

    allreduce: AllReduceSection
    """Everybody has the sum of what all bring."""


class CustomJobSection(Section):
    """A job of the user's own."""

    system: Literal["custom"]
    """Kind of job."""
    iterations: Count = Field(examples=[20])
    """Times that every task runs that does not say otherwise."""
    tasks: tuple[CustomTaskSection, ...] = Field(min_length=1)
    """The tasks."""
    flows: tuple[FlowSection, ...] = ()
    """The flows between them."""
    collectives: tuple[CollectiveSection, ...] = ()
    """What some tasks do together, after each of them ended."""
    credit_window: Window = DEFAULT_WINDOW
    """Stores wait for the end of their workers' iteration n - K; ``unlimited`` for no
    limit."""

    def _tasks(self) -> list[CustomTask]:
        return [
            CustomTask(
                task.name,
                default_time(task.time),
                task.kind,
                task.demands.amounts(),
                task.pin,
                task.iterations,
                task.slot or task.takes or task.server or "",
                task.given_back(),
                task.process or task.server or "",
                task.gate,
            )
            for task in self.tasks
        ]

    def _parts(self) -> tuple[list[CustomTask], list[CustomFlow]]:
        reductions = [one.allreduce.all_reduce() for one in self.collectives]
        return with_collectives(self._tasks(), self._flows(), reductions)

    def _flows(self) -> list[CustomFlow]:
        return [
            CustomFlow(
                flow.source,
                flow.destination,
                flow.volume,
                flow.lag,
                flow.channel or "",
                latest=flow.reads == "latest",
            )
            for flow in self.flows
        ]

    def build(self, *, window: int | None, byte_scale: float, seed: int) -> Job:
        """Return the job; see `custom_job`.

        Raises
        ------
        ValueError
            When it is not a job: a cycle without lag, too few values.
        """
        return custom_job(
            *self._parts(),
            self.iterations,
            window=window,
            byte_scale=byte_scale,
            settings={"compute": "timed", "seed": seed},
        )

    def realize(self, job: Job) -> Realization:
        """Return the stated times and volumes for ``job``."""
        return custom_realization(job, *self._parts())
