"""Figures of a file from which on another system would be the better one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf

from emu.experiment.bisection import WIDE, bisect
from emu.graph_data import open_for
from emu.problem.fields.cluster_section import ClusterSection, Latency
from emu.problem.fields.quantities import combine, write_times
from emu.scenario import Scenario
from emu.scenario.scaled_values import write_nic
from emu.systems import Edit
from emu.units import DURATION, PRICE, RATE, format_duration

#: Latency around which others are tried where the file states none, seconds.
_LATENCY = 1e-6
#: Columns that a file may state, see `DatasetSection.feature_length`.
_MOST_COLUMNS = 10_000


@dataclass(frozen=True)
class Lever:
    """A figure that may be another one."""

    name: str
    edit: Callable[[float], Edit]
    write: Callable[[float], str]
    now: float = 1.0
    most: float = inf
    """Value up to which others are tried."""
    whole: bool = False
    """True where only whole numbers are meant."""

    @property
    def ends(self) -> list[float]:
        """Values at which the search begins, on either side of the present one."""
        low = self.now / WIDE
        high = min(self.now * WIDE, self.most)
        if self.whole:
            low = max(round(low), 1)
            high = int(high)
        # A whole number may have no room on one side, as a width of 1.
        return [end for end in (low, high) if end != self.now]

    def find_value(self, end: float, wins: Callable[[Edit], bool]) -> float:
        """Return the value nearest to the present one with which a condition holds.

        ``wins``: holds with the edit of ``end``, on one side, and not as it is.
        """
        grows = end > self.now

        def is_low(value: float) -> bool:
            # `bisect` wants what holds at the lower end,
            # which is the present value or `end`.
            holds = wins(self.edit(value))
            return holds != grows

        low, high = bisect(
            min(self.now, end),
            high=max(self.now, end),
            is_low=is_low,
            whole=self.whole,
        )
        return high if grows else low

    def words(self, value: float) -> str:
        """Return what is so from a value on, in words."""
        side = "from" if value > self.now else "down to"
        return f"{self.name} {side} {self.write(value)}"


def _round_away(value: float, now: float, digits: int) -> float:
    """Return a value rounded away from the present one: it holds from there on."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    units = round(value / unit, 6)  # of 1.22 they are 122, and not a little more
    units = math.ceil(units) if value > now else math.floor(units)
    return units * unit


def _write_factor(factor: float) -> str:
    bound = _round_away(factor, now=1.0, digits=3)
    return f"{bound:.3g}"


def _write_latency(seconds: float, now: float) -> str:
    bound = _round_away(seconds, now, digits=4)
    return format_duration(bound)


def _write_speed(factor: float) -> str:
    return f"{_write_factor(factor)} x as fast"


def list_levers(scenario: Scenario, *, priced: bool) -> Iterator[Lever]:
    """Yield the figures of a file that may change an advice.

    Latency and rates of its network, features, hidden width, what collecting takes;
    where ``priced``, the price of its dearest machines.
    """
    cluster = scenario.stated_cluster
    yield from _list_network(cluster)
    yield from _list_widths(scenario)
    rates = scenario.job.operation_rates
    if rates is not None:

        def collect(factor: float) -> Edit:
            edit = {}
            for name in ("collect", "collect_device"):
                if name in rates.stated:  # collect_device may follow collect
                    rate = rates.stated[name]
                    # A rate of the file is the time of an operation.
                    seconds = combine(lambda value: value / factor, rate)
                    edit[f"job.rates.{name}"] = write_times(seconds)
            return edit

        yield Lever("collecting", collect, _write_speed)
    if priced:
        prices = [machine.price or 0.0 for machine in cluster.machines]
        dearest = max(prices)
        place = prices.index(dearest)
        key = f"cluster.machines[{place}].price"

        def price(factor: float) -> Edit:
            return {key: PRICE.exact(dearest * factor)}

        def write_price(factor: float) -> str:
            return f"{_write_factor(factor)} x their price"

        yield Lever("the dearest machines", price, write_price)


def _list_widths(scenario: Scenario) -> Iterator[Lever]:
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    length = open_for(settings).feature_length
    yield Lever(
        name="features",
        edit=lambda value: {"job.dataset.feature_length": int(value)},
        write="{:.0f}".format,
        now=length,
        most=max(length, _MOST_COLUMNS),
        whole=True,
    )

    model = getattr(scenario.job, "model", None)
    hidden = getattr(model, "hidden", None)
    if hidden is not None:
        yield Lever(
            name="hidden width",
            edit=lambda value: {"job.model.hidden": int(value)},
            write="{:.0f}".format,
            now=hidden,
            whole=True,
        )


def _list_network(cluster: ClusterSection) -> Iterator[Lever]:
    # Machines without a NIC are joined by links alone.
    nics = {
        place: machine.nic
        for place, machine in enumerate(cluster.machines)
        if machine.nic.inward
    }

    def delay(seconds: float) -> Edit:
        text = DURATION.exact(seconds)
        latency = Latency.model_validate({"in": text, "out": text})
        edit = {}
        for place, nic in nics.items():
            entry = write_nic(nic.inward, nic.outward, latency)
            edit[f"cluster.machines[{place}].nic"] = entry
        return edit

    def speed_up(factor: float) -> Edit:
        edit = {}
        for place, nic in nics.items():
            entry = write_nic(nic.inward * factor, nic.outward * factor, nic.latency)
            edit[f"cluster.machines[{place}].nic"] = entry
        for place, link in enumerate(cluster.links):
            rate = RATE.exact(link.bandwidth * factor)
            edit[f"cluster.links[{place}].bandwidth"] = rate
        for place, rack in enumerate(cluster.racks):
            inward = rack.uplink.inward * factor
            entry = write_nic(inward, rack.uplink.outward * factor, Latency())
            edit[f"cluster.racks[{place}].uplink"] = entry
        return edit

    if nics:
        latencies = [nic.latency for nic in nics.values()]
        longest = max(max(pair.inward, pair.outward) for pair in latencies)
        now = longest or _LATENCY
        yield Lever(
            name="latency of NICs",
            edit=delay,
            write=partial(_write_latency, now=now),
            now=now,
        )
    if nics or cluster.links:
        yield Lever("network", speed_up, _write_speed)
