"""What job it was, in the words that every command uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.workloads import window_of

if TYPE_CHECKING:
    from emu.problem import Job


def job_line(job: Job, policy: str = "") -> str:
    """Return iterations, credit window, and how many tasks are pinned.

    Parameters
    ----------
    policy
        Rate policy, where one alone is meant.
    """
    window = window_of(job) or "unlimited"
    parts = [f"{job.iterations} iterations", f"credit window {window}"]
    pins = sum(task.pinned is not None for task in job.tasks)
    if pins:
        parts.append(f"{pins} of {len(job.tasks)} tasks pinned")
    return ", ".join([*parts, *([f"rates by {policy}"] if policy else [])])
