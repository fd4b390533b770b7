"""The node program of both kinds of task."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu_nodes.program import Payload, TaskSpec, sends


class Echo:
    """Send as many bytes as the settings of the task say."""

    def __init__(self, brief: TaskSpec, _process: dict[str, Any]) -> None:
        self._brief = brief

    def run(self, iteration: int, _inputs: object) -> dict[int, Payload]:
        """Return the bytes of every out-edge."""
        body = np.zeros(self._brief.settings["bytes"], dtype=np.uint8)
        outputs = self._brief.outputs
        return {one.edge: {"bytes": body} for one in outputs if sends(one, iteration)}

    def report(self) -> dict[str, float]:
        """Return no figures."""
        return {}

    def result(self) -> Payload:
        """Leave nothing behind."""
        return {}
