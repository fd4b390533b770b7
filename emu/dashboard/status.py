"""The documented form of /api/status; /api/schema serves it as JSON Schema."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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
    running: list[RunningTask]
    active_flows: int
    flows: list[ActiveFlow] = Field(description="The largest 40 active flows.")
    ports: list[Port]
    figures: dict[str, float] = Field(
        description="Means of what the tasks reported in their last iteration: loss."
    )
    delay: float = Field(
        description="Wall seconds by which the last event was heard after it happened, "
        "against the fastest one so far."
    )
    max_delay: float = Field(description="Largest such delay, wall seconds.")
    late_steps: int = Field(description="Steps that ended after their profiled time.")
    max_late: float = Field(description="Largest such lateness, emulated seconds.")
    verdict: str | None = Field(description="Whether the host kept up, once known.")
    outcome: Summary | None = Field(description="Numbers of the run, once it ended.")
    error: str | None = Field(description="Why the run failed, if it did.")
