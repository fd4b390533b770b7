"""A program whose result tells, to the bit, what it has read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from emu_nodes.program import Payload
from emu_nodes.timed import Timed


def drifted(value: float, inputs: list[float]) -> float:
    """Return the value after an iteration: no order of inputs or of reads is alike."""
    for place, read in enumerate(inputs):
        value = 0.5 * value + read / (place + 3)
    return value + 1.0


class Drifts(Timed):
    """Sends its value and moves it by those that it reads."""

    def __init__(self, brief: Any, process: dict[str, Any]) -> None:
        super().__init__(brief, process)
        self._value = 0.0

    @override
    def sinks(self) -> dict[int, Any]:
        return {}  # it reads all

    @override
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        came = [float(inputs[e]["bytes"][0]) for e in sorted(inputs)]
        self._value = drifted(self._value, came)
        return {
            edge: {"bytes": np.full(row[iteration] // 8, self._value)}
            for edge, row in self.rows.items()
        }

    @override
    def result(self) -> Payload:
        return {"value": np.array([self._value])}
