"""The state of a job between two iterations, from which it can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Cut:
    """State of all tasks that keep some, before an iteration."""

    iteration: int
    """The first that is not done, counted from the beginning of the whole job."""
    states: Mapping[str, Mapping[str, NDArray[Any]]]
    """Arrays of every task whose state is needed, by its name."""
