"""Times of kinds of task, and rates of operations, from which times follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from pydantic import Field

from emu.problem.fields.quantities import (
    Duration,
    RatePerDevice,
    default_time,
    time_on,
)
from emu.problem.fields.section import Section, Trail
from emu.systems import PerDevice, Times

#: Kind of task, or operation -> a time, or one per device.
TimesByName: TypeAlias = dict[str, PerDevice]
Seconds: TypeAlias = dict[str, float]
#: (Where, kind of task or operation, device -> seconds).
DeviceTimes: TypeAlias = Iterator[tuple[Trail, str, Times]]
#: Rates of what is computed before time 0 -> what that is, in words.
PLANNED = {"partition": "partitioning", "plan": "planning"}


class KindTimesSection(Section):
    """Times of one task of each kind, by keys that are called as the kinds."""

    def by_kind(self) -> TimesByName:
        """Return kind -> time, of those that are stated or follow from others."""
        return {kind: time for kind, time in self if time is not None}

    def default_times(self) -> Seconds:
        """Return kind -> seconds on the default device, as of `by_kind`."""
        times = self.by_kind()
        return {kind: default_time(time) for kind, time in times.items()}

    def device_times(self) -> DeviceTimes:
        """Yield as `JobSection.device_times`: what follows is where it might stand."""
        for kind, time in self.by_kind().items():
            if isinstance(time, dict):
                trail = ("job", "times", kind)
                yield trail, kind, time


class RatesSection(Section):
    """Seconds of one operation, from which times follow; one rate, or one per device.

    Operations are counted in the data set, a machine's device has the rates of its
    name. Gradients come as on paper: of weights and of inputs a product as large as the
    forward pass each, of features none.
    """

    aggregate: RatePerDevice = Field(examples=["20 ps"])
    """Add one number of one edge: edges times columns, of the shorter rows."""
    multiply: RatePerDevice = Field(examples=["0.4 ps"])
    """Multiply and add, in products with weights."""
    sample: RatePerDevice = Field(examples=["30 ns"])
    """Draw one edge of a mini-batch."""
    collect: RatePerDevice = Field(examples=["200 ps"])
    """Collect one byte of rows that lie apart in memory of the host."""
    step: RatePerDevice = Field(examples=["0.5 ns"])
    """Step one parameter, or add one gradient to a sum."""
    launch: RatePerDevice = Field(examples=["50 us"])
    """Begin the pass of one layer."""
    collect_device: RatePerDevice | None = None
    """Collect one byte of rows that lie in memory of a device (``features: device``);
    default is ``collect``."""
    pcie: RatePerDevice | None = None
    """Bring one byte of rows or columns from memory of the host to that of a device,
    which waits for it (``features: host``, systems of mini-batches): what a task that
    trains collects. By default the way takes no time."""
    partition: Duration = Field(default=0.0, examples=["1 us"])
    """Cut the graph by METIS, per edge in either direction, before time 0 (setup)."""
    plan: Duration = Field(default=0.0, examples=["1 us"])
    """Plan what travels along which links (SPST of dgcl), per edge: likewise."""

    @property
    def stated(self) -> TimesByName:
        """Operation -> rate, or a rate per device, of those that the file states."""
        rates = {name: rate for name, rate in self if rate is not None}
        for name in PLANNED:
            # Planning has a time on this computer alone, and is counted apart.
            del rates[name]
        return rates

    def on(self, device: str) -> Seconds:
        """Return operation -> seconds on a device."""
        rates = {}
        for name, rate in self.stated.items():
            rates[name] = time_on(rate, device)
        return {
            "collect_device": rates["collect"],
            "pcie": 0.0,
            **rates,
        }

    def device_rates(self) -> DeviceTimes:
        """Yield (where, operation, device -> seconds) of those that differ."""
        for name, rate in self.stated.items():
            if isinstance(rate, dict):
                trail = ("job", "rates", name)
                yield trail, name, rate
