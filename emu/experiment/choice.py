"""A system on some machines with some settings, and what it takes by simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from emu.experiment.system_rows import limits_of
from emu.experiment.target import Target
from emu.graph_data import open_for
from emu.prediction.analysis.throughput import seeds_per_iteration, speed_of
from emu.problem import Schedule
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.deaths import with_deaths
from emu.scenario.experiment import cost_of
from emu.scenario.machine_choice import machines_words
from emu.systems import Edit


@dataclass(frozen=True, eq=False)
class Choice:
    """One way to train what a file says."""

    system: str
    """Row of a table of systems."""
    plain: Scenario
    """Scenario of it, whatever it is trained to."""
    ready: Experiment
    schedule: Schedule
    target: Target | None = None
    keys: Edit = field(default_factory=dict)
    """Keys of ``job`` that it has otherwise than by default."""

    @classmethod
    def simulate(cls, system: str, plain: Scenario, target: Target | None) -> Choice:
        """Return a scenario simulated, until a target is reached where there is one.

        Raises ScenarioError, PlacementError, DataError as `prepare`, which a target
        that is not reached does as well.
        """
        ready = prepare(plain if target is None else target.end(plain))
        schedule = with_deaths(ready, ready.simulate())
        return cls(system, plain, ready, schedule, target)

    @property
    def scenario(self) -> Scenario:
        """The scenario of which ``emu simulate`` finds the same makespan."""
        return self.ready.stated or self.ready.scenario

    @cached_property
    def epoch_seconds(self) -> float:
        """Seconds of a pass over the training set at its speed."""
        job = self.schedule.problem.job
        train = open_for(job.settings).train_count
        each, _ = speed_of(job, self.schedule.task_end, self.schedule.length)
        return each * train / (seeds_per_iteration(job.settings) or train)

    @property
    def seconds(self) -> float:
        """Seconds to the target; without one those of an epoch."""
        return self.schedule.makespan if self.target else self.epoch_seconds

    @cached_property
    def cost(self) -> float | None:
        """Dollars of as much; None where nothing has a price."""
        bill = cost_of(self.ready.scenario, self.schedule)
        share = self.seconds / (self.schedule.makespan or 1.0)
        return None if bill is None else bill.total * share

    @property
    def machines(self) -> tuple[str, ...]:
        """Machines on which it has tasks."""
        return tuple(self.ready.placing["machines"])

    @property
    def name(self) -> str:
        """System, machines and settings, in words."""
        where = f"{self.system} {machines_words(self.ready.placing)}"
        return ", ".join([where, *(f"{key} {v}" for key, v in self.keys.items())])

    @cached_property
    def limit(self) -> str:
        """The largest part of its critical path."""
        limits = limits_of(self.ready, self.schedule).items()
        return next((f"{name}, {share:.0%}" for name, share in limits), "nothing")

    def to_json(self) -> dict[str, Any]:
        """Return the documented form; seconds and dollars."""
        names = ("system", "machines", "keys", "seconds", "cost", "limit")
        makespan = {"makespan": self.schedule.makespan}
        return {name: getattr(self, name) for name in names} | makespan
