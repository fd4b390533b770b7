"""Cuts of a job between two iterations: the state that it can go on from.

What a job's iterations 0 to k - 1 leave to the others is the state of the tasks that
keep some, as each has it before its iteration k. Such a task sends a copy on its way
into that iteration; the cut is whole when all have come, and kept in a thread then.
With copies on other machines (`emu.problem.workloads.copies`) those send it, once they
have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from emu.emulation.wire.array_parts import ArrayParts, Arrays, state_parts
from emu.emulation.wire.messages import StatePart
from emu.errors import NodeMisbehaved
from emu.problem import Job
from emu.problem.job import Cut
from emu.problem.workloads import copies_of


@dataclass(frozen=True, eq=False)
class CutPlan:
    """Cuts that an attempt takes, and the one that it begins with."""

    begins: Mapping[str, tuple[str, ...]]
    """Tasks with whose state a task begins, see `emu.systems.system.System.cuts`."""
    every: int
    """Iterations between two cuts."""
    keep: Callable[[Cut], None]
    """Keeps a cut for good; called in a thread, one after the other."""
    start: Cut = field(default_factory=lambda: Cut(0, {}))
    """The cut that it begins with: none before iteration 0."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Tasks whose state makes a cut."""
        owners = chain.from_iterable(self.begins.values())
        return tuple(dict.fromkeys(owners))

    def restores(self, task: str) -> tuple[str, ...]:
        """Return the tasks with whose state a task begins in this attempt."""
        if self.start.iteration == 0:  # it begins with what its settings give
            return ()
        return self.begins.get(task, ())

    def parts_for(self, tasks: list[str]) -> list[StatePart]:
        """Return the messages that carry what the tasks of a process begin with."""
        names: dict[str, None] = {}  # a set has no order
        for task in tasks:
            names.update(dict.fromkeys(self.restores(task)))

        parts: list[StatePart] = []
        for name in names:
            state = self.start.states[name]
            parts += state_parts(name, self.start.iteration, state)
        return parts


class CutKeeper:
    """Gathers the states of one cut after the other, and has them kept."""

    def __init__(self, job: Job, plan: CutPlan | None) -> None:
        self._plan = plan
        self._process = {task.name: task.process_name for task in job.tasks}
        self._copies = copies_of(job)
        for owner, copy in self._copies.items():
            self._process[owner] = job.tasks[copy].process_name
        self._iterations = job.iterations
        # By the iteration of a cut: states, and tasks whose state is whole.
        self._coming: dict[int, dict[str, ArrayParts]] = {}
        self._done: dict[int, set[str]] = {}
        self._keeping: asyncio.Task[None] | None = None

    def add(self, process: str, part: StatePart) -> None:
        """Take in a piece of the state of a task.

        Raises NodeMisbehaved when it is not the process's, of no cut, or damaged.
        """
        plan = self._plan
        if plan is None or not self._is_wanted(plan, process, part):
            raise NodeMisbehaved(f"{process} sent state that was not asked for")
        iteration = part.iteration
        tasks = self._done.setdefault(iteration, set())
        if part.task in tasks:
            raise NodeMisbehaved(f"{process} sent the state of {part.task} twice")

        states = self._coming.setdefault(iteration, {})
        pieces = states.setdefault(part.task, ArrayParts())
        try:
            pieces.add(part)
        except ValueError as error:
            raise NodeMisbehaved(f"{process} sent state: {error}") from error
        if part.last:
            tasks.add(part.task)
        if len(tasks) == len(plan.owners):
            self._begin(plan, iteration)

    def _is_wanted(self, plan: CutPlan, process: str, part: StatePart) -> bool:
        """Return True for the state of a process's task before an iteration of a cut.

        That before the first one is wanted only for copies of it.
        """
        iteration = part.iteration
        first = plan.start.iteration
        end = first + self._iterations
        return (
            part.task in plan.owners
            and self._process.get(part.task) == process
            and iteration % plan.every == 0
            and first <= iteration < end
            and (iteration > first or bool(self._copies))
        )

    def _begin(self, plan: CutPlan, iteration: int) -> None:
        """Keep a cut that is whole, after the one before it; the first is kept."""
        parts = self._coming.pop(iteration)
        if iteration == plan.start.iteration:
            return

        states: dict[str, Arrays] = {}
        try:
            for name in plan.owners:
                states[name] = parts[name].arrays()
        except ValueError as error:
            raise NodeMisbehaved(
                f"the state before {iteration} is damaged: {error}"
            ) from error

        cut = Cut(iteration, states)
        last_keeping = self._keeping
        loop = asyncio.get_running_loop()

        async def keep() -> None:
            if last_keeping is not None:
                await last_keeping
            # In a thread: to write a large state takes seconds.
            await loop.run_in_executor(None, plan.keep, cut)

        self._keeping = loop.create_task(keep())

    def check(self) -> None:
        """Raise the DataError of a cut that could not be kept."""
        if self._keeping is not None and self._keeping.done():
            keeping = self._keeping
            self._keeping = None
            keeping.result()

    async def finish(self) -> None:
        """Wait until all cuts are kept; raises the DataError of one that could not."""
        if self._keeping is not None:
            await self._keeping

    async def aclose(self) -> None:
        """Wait for what is being written: a thread cannot be stopped."""
        if self._keeping is not None:
            await asyncio.wait([self._keeping])
            if not self._keeping.cancelled():
                self._keeping.exception()  # retrieved: another error counts
