"""Crossovers along figures of a file, from which on another choice is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias

from emu.experiment.choice import Choice
from emu.graph_data import open_for
from emu.problem.fields.cluster_section import Latency
from emu.problem.fields.quantities import combine, write_times
from emu.scenario import Scenario
from emu.scenario.edits import write_nic
from emu.systems import Edit
from emu.units import DURATION, PRICE, RATE, format_duration

#: Returns what is least of the better choice, with other figures.
Judge: TypeAlias = Callable[[Choice, Edit], tuple[bool, float]]
#: Figures are tried from a sixteenth to sixteen times as much, until both sides of a
#: crossover differ by less than this factor; latencies from one where none is stated.
_WIDE, _NEAR, _LATENCY = 16.0, 1.05, 1e-6


@dataclass(frozen=True)
class Lever:
    """A figure that may be another one."""

    name: str
    edit: Callable[[float], Edit]
    write: Callable[[float], str]
    now: float = 1.0
    whole: bool = False
    """True where only whole numbers are meant."""

    def middle(self, one: float, other: float) -> float | None:
        """Return a value between two; None where they are as good as neighbours."""
        low, high = sorted((one, other))
        if self.whole:
            return max(round(sqrt(low * high)), low + 1) if high - low > 1 else None
        return sqrt(low * high) if high / low > _NEAR else None

    def find_changes(
        self, best: Choice, rivals: Sequence[Choice], judge: Judge
    ) -> Iterator[tuple[str, Choice]]:
        """Yield, on either side, the value from which a rival is better, and that.

        The choices stay on their machines. Raises EmulatorError when a value cannot be.
        """
        low, high = self.now / _WIDE, self.now * _WIDE
        for end in {max(round(low), 1) if self.whole else low, high} - {self.now}:
            edit = self.edit(end)
            ahead = min((best, *rivals), key=lambda one: judge(one, edit))
            near, far = self.now, end
            while ahead is not best and (middle := self.middle(near, far)) is not None:
                edit = self.edit(middle)
                wins = judge(ahead, edit) < judge(best, edit)
                near, far = (near, middle) if wins else (middle, far)
            if ahead is not best:
                beyond = "from" if end > self.now else "down to"
                yield f"{self.name} {beyond} {self.write(far)}", ahead


def list_levers(scenario: Scenario, *, priced: bool) -> Iterator[Lever]:
    """Yield the figures of a file that may change an advice.

    Latency and rates of its network, features, hidden width, what collecting takes;
    where ``priced``, the price of its dearest machines.
    """
    yield from _list_network(scenario)
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    hidden = getattr(getattr(scenario.job, "model", None), "hidden", None)
    length = open_for(settings).feature_length
    for name, key, now in (
        ("features", "job.dataset.feature_length", length),
        ("hidden width", "job.model.hidden", hidden),
    ):
        if now is not None:

            def count(value: float, key: str = key) -> Edit:
                return {key: int(value)}

            yield Lever(name, count, "{:.0f}".format, now, whole=True)
    if (rates := scenario.job.operation_rates) is not None:

        def collect(by: float) -> Edit:
            each = combine(lambda seconds: seconds / by, rates.collect)
            return {"job.rates.collect": write_times(each)}

        yield Lever("collecting", collect, "{:.2g} x as fast".format)
    if priced:
        prices = [m.price or 0.0 for m in scenario.stated_cluster.machines]
        at = prices.index(max(prices))

        def price(by: float) -> Edit:
            return {f"cluster.machines[{at}].price": PRICE.exact(prices[at] * by)}

        yield Lever("the dearest machines", price, "{:.2g} x their price".format)


def _list_network(scenario: Scenario) -> Iterator[Lever]:
    machines = enumerate(scenario.stated_cluster.machines)
    nics = {i: machine.nic for i, machine in machines if machine.nic.inward}

    def late(seconds: float) -> Edit:
        both = {way: DURATION.exact(seconds) for way in ("in", "out")}
        latency = Latency.model_validate(both)
        return {
            f"cluster.machines[{i}].nic": write_nic(nic.inward, nic.outward, latency)
            for i, nic in nics.items()
        }

    def faster(by: float) -> Edit:
        edit: Edit = {}
        for i, nic in nics.items():
            rates = nic.inward * by, nic.outward * by
            edit[f"cluster.machines[{i}].nic"] = write_nic(*rates, nic.latency)
        for i, link in enumerate(scenario.stated_cluster.links):
            edit[f"cluster.links[{i}].bandwidth"] = RATE.exact(link.bandwidth * by)
        return edit

    if nics:
        latest = max(nic.latency.outward for nic in nics.values())
        yield Lever("latency of NICs", late, format_duration, latest or _LATENCY)
    if nics or scenario.stated_cluster.links:
        yield Lever("network", faster, "{:.2g} x as fast".format)
