"""Programs that go wrong, each in its own way; run by node processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from emu_nodes.program import Payload
from emu_nodes.timed import Timed


class Raises(Timed):
    """Fails in iteration 1."""

    @override
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        if iteration == 1:
            raise ArithmeticError("the loss is NaN")
        return super().run(iteration, inputs)


class Forgets(Timed):
    """Sends nothing where something is due."""

    @override
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        return {}


class Overruns(Timed):
    """Takes 1.209 times the 0.2 s of wall time that its iterations are stated to."""

    @override
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        time.sleep(0.2 * 1.209)
        return super().run(iteration, inputs)


class Burns(Timed):
    """Takes 30 ms of CPU time per iteration, however long that is."""

    @override
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass
        return super().run(iteration, inputs)


class Hangs(Timed):
    """Does not come back from iteration 1."""

    @override
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        if iteration == 1:
            time.sleep(3600)
        return super().run(iteration, inputs)


class Loads(Timed):
    """Does not come back from loading."""

    def __init__(self, brief: Any, process: dict[str, Any]) -> None:
        super().__init__(brief, process)
        time.sleep(3600)


class Scribbles(Timed):
    """Goes on writing into what it has handed over to be sent."""

    @override
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        payloads = {
            edge: {name: array.copy() for name, array in payload.items()}
            for edge, payload in super().run(iteration, inputs).items()
        }
        threading.Thread(target=self._scribble, args=(payloads,), daemon=True).start()
        return payloads

    @staticmethod
    def _scribble(payloads: dict[int, Payload]) -> None:
        while True:
            for payload in payloads.values():
                for array in payload.values():
                    array[-1] += 1
            time.sleep(0.002)
