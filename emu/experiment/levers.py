"""What would change an advice: crossovers along figures of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from emu.errors import EmulatorError
from emu.experiment.choice import Choice
from emu.graph_data import open_for
from emu.problem.fields.cluster_section import Latency
from emu.problem.fields.quantities import combine
from emu.scenario import Scenario
from emu.scenario.edits import write_nic
from emu.systems import Edit
from emu.systems.whole_graph_section import write_time
from emu.units import DURATION, PRICE, RATE, format_duration

#: Figures are tried from a sixteenth to sixteen times as much, until both sides of a
#: crossover differ by less than this factor.
_WIDE, _NEAR = 16.0, 1.05
#: Latency from which one is tried where none is stated.
_LATENCY = 1e-6


@dataclass(frozen=True)
class Lever:
    """A figure that may be another one."""

    name: str
    now: float
    low: float
    high: float
    edit: Callable[[float], Edit]
    write: Callable[[float], str]
    whole: bool = False
    """True where only whole numbers are meant."""

    def middle(self, one: float, other: float) -> float | None:
        """Return a value between two; None where they are as good as neighbours."""
        low, high = sorted((one, other))
        middle = sqrt(low * high)
        if self.whole:
            return max(round(middle), low + 1) if high - low > 1 else None
        return middle if high / low > _NEAR else None


@dataclass(frozen=True)
class Change:
    """A value from which on another choice is the better one."""

    lever: Lever
    value: float
    choice: Choice

    def __str__(self) -> str:
        """Return both in words."""
        beyond = "from" if self.value > self.lever.now else "down to"
        value = self.lever.write(self.value)
        return f"{self.lever.name} {beyond} {value}: {self.choice.system}"

    def to_json(self) -> dict[str, Any]:
        """Return the documented form."""
        value, name = self.lever.write(self.value), self.lever.name
        return {"what": name, "value": value, **self.choice.place_json()}


def _scale(lever: str, edit: Callable[[float], Edit], verb: str = "as fast") -> Lever:
    return Lever(lever, 1, 1 / _WIDE, _WIDE, edit, lambda by: f"{by:.2g} x {verb}")


def _count(name: str, key: str, now: int) -> Lever:
    low, high = max(1.0, now // _WIDE), now * _WIDE
    return Lever(name, now, low, high, lambda n: {key: int(n)}, "{:.0f}".format, True)


def list_levers(scenario: Scenario, *, priced: bool) -> Iterator[Lever]:
    """Yield the figures of a file that may change an advice.

    Latency and rates of its network, features, hidden width, what collecting takes;
    where ``priced``, the price of its dearest machines.
    """
    cluster, job = scenario.stated_cluster, scenario.job
    nics = [(i, m.nic) for i, m in enumerate(cluster.machines) if m.nic.inward]

    def late(seconds: float) -> Edit:
        both = {way: DURATION.exact(seconds) for way in ("in", "out")}
        late_nic = Latency.model_validate(both)
        return {
            f"cluster.machines[{i}].nic": write_nic(nic.inward, nic.outward, late_nic)
            for i, nic in nics
        }

    def faster(by: float) -> Edit:
        rates = ((i, n.inward * by, n.outward * by, n.latency) for i, n in nics)
        links = enumerate(cluster.links)
        edit = {f"cluster.machines[{i}].nic": write_nic(*nic) for i, *nic in rates}
        return edit | {
            f"cluster.links[{i}].bandwidth": RATE.exact(link.bandwidth * by)
            for i, link in links
        }

    if nics:
        latest = max(nic.latency.outward + nic.latency.inward for _, nic in nics) / 2
        now = latest or _LATENCY
        low, high = (now / _WIDE if latest else now), max(now * _WIDE, 0.01)
        yield Lever("latency of NICs", now, low, high, late, format_duration)
    if nics or cluster.links:
        yield _scale("network", faster)
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    length = open_for(settings).feature_length
    yield _count("features", "job.dataset.feature_length", length)
    if hidden := getattr(job.model, "hidden", 0):  # type: ignore[attr-defined]
        yield _count("hidden width", "job.model.hidden", hidden)
    if (rates := job.operation_rates) is not None:

        def collect(by: float) -> Edit:
            each = combine(lambda seconds: seconds / by, rates.collect)
            return {"job.rates.collect": write_time(each)}

        yield _scale("collecting", collect)
    if priced:
        prices = [m.price or 0.0 for m in cluster.machines]
        dear = prices.index(max(prices))

        def price(by: float) -> Edit:
            key = f"cluster.machines[{dear}].price"
            return {key: PRICE.exact(prices[dear] * by)}

        yield _scale("the dearest machines", price, "their price")


def find_changes(
    lever: Lever,
    best: Choice,
    rivals: Sequence[Choice],
    judge: Callable[[Choice, Edit], tuple[bool, float]],
) -> list[Change]:
    """Return the nearest crossover on either side, where there is one in the range.

    ``judge`` returns what is least of the better choice; the choices stay what they
    are, on their machines. Raises EmulatorError when a value cannot be.
    """
    changes = []
    for end in {lever.low, lever.high} - {lever.now}:
        at_end = {one.name: judge(one, lever.edit(end)) for one in (best, *rivals)}
        ahead = min((best, *rivals), key=lambda one: at_end[one.name])
        if ahead is best:
            continue
        near, far = lever.now, end
        while (middle := lever.middle(near, far)) is not None:
            edit = lever.edit(middle)
            if judge(ahead, edit) < judge(best, edit):
                far = middle
            else:
                near = middle
        changes.append(Change(lever, far, ahead))
    return sorted(changes, key=lambda change: change.value)


def try_levers(
    levers: Iterator[Lever],
    best: Choice,
    rivals: Sequence[Choice],
    judge: Callable[[Choice, Edit], tuple[bool, float]],
) -> tuple[list[Change], list[str]]:
    """Return the crossovers of all levers, and lines on those that cannot be tried."""
    changes, untried = list[Change](), list[str]()
    for lever in levers:
        try:
            changes += find_changes(lever, best, rivals, judge)
        except EmulatorError as error:
            reason = getattr(error, "problem", str(error))
            untried.append(f"{lever.name}: {reason}")
    return changes, untried
