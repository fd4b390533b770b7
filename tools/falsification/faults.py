"""Faults to plant: one piece of text of one file, and what stands there instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """One change of the product that makes runs false.

    Parameters
    ----------
    file
        Path in the repository.
    text, instead
        What occurs there once, and what replaces it.
    """

    file: str
    text: str
    instead: str

    def plant(self, root: Path) -> None:
        """Change the file under ``root``.

        Raises
        ------
        ValueError
            When the text does not occur there exactly once: the product has moved on.
        """
        path = root / self.file
        source = path.read_text(encoding="utf-8")
        if source.count(self.text) != 1:
            raise ValueError(f"{self.text!r} is {source.count(self.text)} x in {path}")
        path.write_text(source.replace(self.text, self.instead), encoding="utf-8")


_PACER = "emu/network/pacer.py"
_RATE = "line.rate * scale / clock.time_scale"
_SERVED = "line.served * scale"
_SERVER = "emu/network/data_server.py"
_CLOCK = "emu/network/clock.py"
_TIMED = "nodes/emu_nodes/timed.py"
_TASK = "nodes/emu_nodes/task_runner.py"
_WINDOW = "self._bytes[start : start + row[iteration]]"
_NOW = "return (wall + self.offset - self.start_wall) / self.time_scale"
_SOON = "soon = now + depth.lead_time"
_ARRIVED = "return count, self._last"
_TIME = "FlowEnded(edge, n, time, size / byte_scale)"
_ANNOUNCED = "payload_bytes(payloads[e]) / self._around.byte_scale"
_DURATION = "else self._times[n]"

FAULTS: dict[str, Fault] = {
    "capacities times 1.5": Fault(
        "emu/problem/links.py", "[link.capacity for", "[1.5 * link.capacity for"
    ),
    "senders at 1.5 times their rate": Fault(_PACER, _RATE, f"1.5 * {_RATE}"),
    "senders one flow ahead": Fault(_PACER, _SERVED, f"1e9 + {_SERVED}"),
    "senders half a second ahead": Fault(
        "emu/shaping/pacing.py", _SOON, f"{_SOON} + 0.5"
    ),
    "arrivals noted 5 ms early": Fault(
        "emu/network/rx_timestamps.py", _ARRIVED, f"{_ARRIVED} - 0.005"
    ),
    "arrivals told 50 ms early": Fault(
        "nodes/emu_nodes/runtime.py", _TIME, _TIME.replace("time,", "time - 0.5,")
    ),
    "a clock 1 % fast": Fault(_CLOCK, _NOW, f"{_NOW} * 1.01"),
    "volumes halved": Fault(_TIMED, _WINDOW, _WINDOW.replace("]]", "] // 2]")),
    "half the bytes, announced whole": Fault(_TASK, _ANNOUNCED, f"2 * {_ANNOUNCED}"),
    "wrong content": Fault(_TIMED, _WINDOW, f"255 - {_WINDOW}"),
    "tasks take half their time": Fault(_TASK, _DURATION, f"{_DURATION} / 2"),
    "one task ends early": Fault(
        _TASK, _DURATION, f'{_DURATION} / (2 if self.name == "w0" else 1)'
    ),
}
