"""Draws of one seed: numbers, options, lists and keys of scenario files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

Section: TypeAlias = dict[str, Any]
T = TypeVar("T")


class Draw:
    """Draws of one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 0xD1CE])

    def chance(self, share: float) -> bool:
        """Return True so often."""
        return bool(self._rng.random() < share)

    def one(self, *options: T) -> T:
        """Return one of the options."""
        return options[int(self._rng.integers(len(options)))]

    def some(self, options: Sequence[T], least: int = 0) -> list[T]:
        """Return some of the options, at least so many, in any order."""
        count = int(self._rng.integers(least, len(options) + 1))
        return [options[i] for i in self._rng.permutation(len(options))[:count]]

    def count(self, least: int, most: int) -> int:
        """Return a whole number between two, both included."""
        return int(self._rng.integers(least, most + 1))

    def seconds(self, scale: float = 1.0) -> str:
        """Return a time, often zero or that of another."""
        if self.chance(0.2):
            return f"{float(self._rng.uniform(0.01, 3)) * scale!r} s"
        return f"{self.one(0, 0.5, 1, 1, 2, 3) * scale!r} s"

    def maybe(self, share: float = 0.3, /, **keys: Any) -> Section:
        """Return each key so often; a tuple stands for one of its items."""
        return {
            key: self.one(*value) if isinstance(value, tuple) else value
            for key, value in keys.items()
            if self.chance(share)
        }

    def add_latencies(self, cluster: Section) -> None:
        """Give some NICs and racks of a section ``cluster`` latencies."""

        def latency() -> Any:
            return self.one("20 us", "3 ms", "0.25 s", {"in": "40 ms"}, {"out": "1 s"})

        for machine in cluster.get("machines", ()):
            nic = machine["nic"]
            if nic != "none" and self.chance(0.7):
                both = nic if isinstance(nic, dict) else {"in": nic, "out": nic}
                machine["nic"] = both | {"latency": latency()}
        for rack in cluster.get("racks", ()):
            if self.chance(0.5):
                rack["latency"] = latency()
