"""Section ``failures``: faults of machines and links that are drawn by their rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from emu.fields.quantities import Count, Seed
from emu.fields.section import Section
from emu.problem import Fault
from emu.scenario.events_section import Factor, Length

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.fields.section import Trail
    from emu.problem import Cluster


class FailureSection(Section):
    """Faults of every machine, or of every link that is no NIC."""

    every: Length
    """Mean time between two, exponentially distributed."""
    length: Length | None = Field(None, alias="for")
    """Length of each, but of ``kill``."""
    what: Literal["pause", "slow", "cut", "kill"] = "pause"
    """As of ``events``; ``cut`` is of NICs."""
    by: Factor | None = None
    """Times slower."""
    most: Annotated[Count, Field(le=10_000)] = 100
    """Most faults of each."""

    def draw(self, name: str, seed: int) -> Iterator[tuple[float, float]]:
        """Yield the beginning and the end of every fault of a machine or link."""
        random = np.random.default_rng([seed, *name.encode()])
        time = 0.0
        for _ in range(self.most):
            waited = -math.log1p(-random.random()) * self.every
            since = time + max(waited, 1e-9 * self.every)
            time = since + (self.length or 0.0)
            yield since, time


class FailuresSection(Section):
    """Rates of faults, the same ones in simulation and runs."""

    machine: FailureSection | None = None
    """Every machine: ``{every: 2 h, for: 10 s, what: pause}``."""
    link: FailureSection | None = None
    """Every link but NICs, ``cut`` or ``slow``."""
    seed: Seed | None = None
    """Default is the scenario's."""

    @property
    def cuts(self) -> bool:
        """True where NICs of machines are cut."""
        return self.machine is not None and self.machine.what == "cut"

    @property
    def mortal(self) -> float:
        """Mean seconds between two deaths of a machine; 0 where none dies."""
        kills = self.machine is not None and self.machine.what == "kill"
        return self.machine.every if self.machine is not None and kills else 0.0

    def deaths(self, cluster: Cluster, seed: int) -> list[tuple[float, str]]:
        """Return the times at which machines are killed, with their names."""
        if self.machine is None or not self.mortal:
            return []
        seed = seed if self.seed is None else self.seed
        names = [machine.name for machine in cluster.machines]
        return [(t, n) for n in names for t, _ in self.machine.draw(n, seed)]

    def faults(self, cluster: Cluster, seed: int) -> list[Fault]:
        """Return all faults, subject by subject in the order of their times.

        Parameters
        ----------
        seed
            That of the scenario, where these have none of their own.
        """
        seed = seed if self.seed is None else self.seed
        found: list[Fault] = []
        for machine in cluster.machines if self.machine and not self.mortal else ():
            found += self._of(self.machine, machine.name, seed, nic=machine.has_nic)
        for link in cluster.shared_links if self.link else ():
            found += self._of(self.link, link.name, seed)
        return found

    def _of(
        self, kind: FailureSection | None, name: str, seed: int, *, nic: bool = False
    ) -> Iterator[Fault]:
        if kind is None or (kind is self.machine and kind.what == "cut" and not nic):
            return
        of_machine = kind is self.machine
        factor = 1.0 / kind.by if kind.by else 0.0
        for since, time in kind.draw(name, seed):
            if of_machine and kind.what == "cut":
                for way in ("out", "in"):
                    yield Fault(f"{name} {way}", since, time, factor)
            else:
                yield Fault(name, since, time, factor, of_machine=of_machine)


def failure_errors(failures: FailuresSection | None) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right) of drawn faults."""
    for key in ("machine", "link") if failures else ():
        kind: FailureSection | None = getattr(failures, key)
        if kind is None:
            continue
        trail: Trail = ("failures", key)
        if key == "link" and kind.what in {"pause", "kill"}:
            yield (*trail, "what"), "a link has no tasks: write cut, or slow and by"
        if (kind.length is None) is not (kind.what == "kill"):
            problem = "a machine is dead until it is restarted, see recovery: remove it"
            missing = "is missing, write how long it lasts"
            yield (*trail, "for"), missing if kind.length is None else problem
        if kind.what == "slow" and kind.by is None:
            yield (*trail, "by"), "is missing, write how many times slower, by: 3 say"
        if kind.what != "slow" and kind.by is not None:
            yield (*trail, "by"), f"is of what: slow, found {kind.what}: remove it"


def idle_faults(
    failures: FailuresSection, drawn: Sequence[Fault], makespan: float
) -> Iterator[str]:
    """Yield a sentence where drawn faults are over before a job is."""
    for key in ("machine", "link"):
        kind = getattr(failures, key)
        if kind is None:
            continue
        ends: dict[str, list[float]] = {}
        for fault in drawn:
            if fault.of_machine == (key == "machine") or kind.what == "cut":
                ends.setdefault(fault.subject, []).append(fault.until)
        over = {
            name: max(times)
            for name, times in ends.items()
            if max(times) < makespan and len(times) >= kind.most
        }
        if over:
            name = min(over, key=lambda subject: over[subject])
            yield (
                f"failures.{key}: the {kind.most} of {name} are over at "
                f"{over[name]:.6g} s, before the job: write a larger most"
            )
