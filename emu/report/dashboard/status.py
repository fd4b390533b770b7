"""The form of what viewers get: /api/status as documented, and rates over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from emu.runs.result import Result

#: A run is starting again after a death, too.
Phase = Literal["starting", "running", "ended", "failed"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunningTask(_Part):
    """A task that computes now."""

    task: str
    iteration: int = Field(description="From 0.")
    since: float = Field(description="Emulated seconds.")


class ActiveFlow(_Part):
    """A flow between two machines that moves now."""

    edge: str = Field(description="Name of its edge.")
    source: str
    destination: str
    iteration: int = Field(description="Of the source, from 0.")
    bytes: float = Field(description="Emulated bytes of the flow.")
    sent: float = Field(description="Emulated bytes that its rates amount to so far.")
    rate: float = Field(description="Assigned rate, emulated bytes per second.")


class Port(_Part):
    """One direction of one NIC, or another link."""

    port: str
    machine: str = Field(description="Whose NIC it is, empty where it is none.")
    direction: str = Field(description="out or in of a NIC, else empty.")
    capacity: float = Field(description="Emulated bytes per second.")
    rate: float = Field(description="Sum of assigned rates, bytes per second.")
    bytes: float = Field(description="Emulated bytes of the flows that have arrived.")


class Summary(_Part):
    """Results of the run."""

    makespan: float = Field(description="Emulated seconds.")
    predicted_makespan: float = Field(description="Before the run, emulated seconds.")
    makespan_error: float = Field(description="makespan / predicted_makespan - 1.")
    replayed_makespan: float = Field(
        description="Of the run's times and volumes, emulated seconds."
    )
    replay_error: float = Field(description="makespan / replayed_makespan - 1.")


class Status(_Part):
    """A run at one moment. Times are emulated seconds unless they say wall."""

    version: Literal[1] = 1
    scenario: str
    policy: str
    phase: Phase
    processes: int = Field(description="Node processes that are up.")
    run_time: float = Field(description="Emulated seconds since the start barrier.")
    iterations: int
    iterations_ended: int = Field(description="Iterations that every task has ended.")
    steps: int = Field(description="Tasks times iterations.")
    steps_ended: int
    left: float | None = Field(
        description="Wall seconds until the end: what the prediction has left, at the "
        "pace so far; null before the first step ended, and after the run."
    )
    share: float = Field(
        description="Share of the predicted time that has passed; of steps without one."
    )
    running: list[RunningTask]
    active_flows: int
    flows: list[ActiveFlow] = Field(description="The largest 40 active flows.")
    ports: list[Port]
    figures: dict[str, float] = Field(
        description="Means of what the tasks reported in their last iteration: loss."
    )
    delay: float = Field(
        description="Wall seconds by which the last event came after it happened, "
        "against the fastest one so far."
    )
    max_delay: float = Field(description="Largest such delay, wall seconds.")
    late_steps: int = Field(description="Steps that ended after their profiled time.")
    max_late: float = Field(description="Largest such lateness, emulated seconds.")
    verdict: str | None = Field(description="Whether the host kept up, once known.")
    outcome: Summary | None = Field(description="Numbers of the run, once it ended.")
    error: str | None = Field(description="Why the run failed, if it did.")


#: Samples kept; one more and neighbours are merged, so 4 a second last 10 minutes
#: before they become 2 a second. 2400 are two pixels each on a wide screen.
CAPACITY = 2400
#: Task iterations kept: 2 MB as JSON for a late viewer. The older half goes first.
SPANS = 50_000


class Seen(NamedTuple):
    """A viewer's position: merges, samples, reports of training, spans."""

    merged: int
    samples: int
    reports: int
    spans: int


#: Position of a viewer that has just come.
NOTHING = Seen(
    merged=-1,
    samples=0,
    reports=0,
    spans=0,
)


@dataclass
class History:
    """Mean rates per port and counts over consecutive spans of run time."""

    capacity: int = CAPACITY
    end: float = 0.0
    merged: int = 0
    time: list[float] = field(default_factory=list)
    """Start of each sample, run seconds; it lasts until the next one or ``end``."""
    rates: list[list[float]] = field(default_factory=list)
    """Per sample the mean assigned rate of every port, bytes per second."""
    flows: list[int] = field(default_factory=list)
    """Per sample the number of active flows at its end."""
    training: list[tuple[float, str, float]] = field(default_factory=list)
    """[run time, figure, value] as tasks reported them."""
    spans: list[tuple[int, int, float, float]] = field(default_factory=list)
    """[task, iteration, start, end] of the task iterations that ended last."""
    deaths: list[tuple[float, str]] = field(default_factory=list)
    """[run time, what died and where the job went on] of every restart: run time does
    not count what comes between."""

    def add(
        self,
        start: float,
        end: float,
        rates: list[float],
        flows: int,
    ) -> None:
        """Append the sample from ``start`` to ``end``."""
        self.time.append(start)
        self.rates.append(rates)
        self.flows.append(flows)
        self.end = end
        if len(self.time) > self.capacity:
            self._merge()

    def _merge(self) -> None:
        """Join every two neighbours; their mean is weighed by their lengths."""
        edges = [*self.time, self.end]
        # Of an odd number, as when the history is full, the last stays as it is.
        for first in range(0, len(self.time) - 1, 2):
            begin, middle, end = edges[first : first + 3]
            length = middle - begin
            next_length = end - middle
            sum_of_lengths = length + next_length
            share = 0.5
            if sum_of_lengths:
                share = length / sum_of_lengths
            rates = self.rates[first]
            next_rates = self.rates[first + 1]
            pairs = zip(rates, next_rates, strict=True)
            self.rates[first] = [
                share * rate + (1 - share) * next_rate for rate, next_rate in pairs
            ]

        # The larger one: a mean would hide how many flows moved at once.
        flows = []
        for first in range(0, len(self.time), 2):
            neighbours = self.flows[first : first + 2]
            flows.append(max(neighbours))
        self.flows = flows
        self.time = self.time[::2]
        self.rates = self.rates[::2]
        self.merged += 1

    def report(self, time: float, figure: str, value: float) -> None:
        """Append a figure of training, which is a number: JSON has no other."""
        row = (time, figure, value)
        self.training.append(row)
        if len(self.training) > 4 * self.capacity:
            self._thin_training()
            self.merged += 1

    def _thin_training(self) -> None:
        """Keep every second value of each figure."""
        rows = []
        # By figure: where two are reported by turns, every second row is of one alone.
        counts = Counter[str]()
        for row in self.training:
            figure = row[1]
            if counts[figure] % 2 == 0:
                rows.append(row)
            counts[figure] += 1
        self.training = rows

    def ran(
        self,
        task: int,
        iteration: int,
        start: float,
        end: float,
    ) -> None:
        """Append a task iteration that ended."""
        span = (task, iteration, start, end)
        self.spans.append(span)
        if len(self.spans) > SPANS:
            # Half of them in one go, since after each loss every viewer gets all anew.
            del self.spans[: SPANS // 2]
            self.merged += 1

    def to_json(self) -> Result:
        """Return everything, rates per port."""
        # A page draws a curve per port; samples that are added later come as rows.
        rates_of_ports = zip(*self.rates, strict=True)
        rates = [list(rates_of_port) for rates_of_port in rates_of_ports]
        content = self._after(NOTHING)
        content["rates"] = rates
        return content

    def _after(self, seen: Seen) -> Result:
        return {
            "time": self.time[seen.samples :],
            "end": self.end,
            "rates": self.rates[seen.samples :],
            "flows": self.flows[seen.samples :],
            "training": self.training[seen.reports :],
            "spans": self.spans[seen.spans :],
            # All of them, which are few. Slices are copies: they are written as JSON
            # when the lock is free again.
            "deaths": self.deaths[:],
        }

    def since(self, seen: Seen) -> tuple[Result, Seen]:
        """Return the news since ``seen``, and the position after them.

        ``{"samples": ...}`` are to be appended; ``{"history": ...}`` replaces all,
        where what had been seen was merged or dropped.
        """
        now = Seen(
            merged=self.merged,
            samples=len(self.time),
            reports=len(self.training),
            spans=len(self.spans),
        )
        if seen.merged != self.merged:
            history = self.to_json()
            return {"history": history}, now
        samples = self._after(seen)
        return {"samples": samples}, now
