"""A record of the rates that were assigned in a run."""

from __future__ import annotations

import numpy as np
from isal import isal_zlib

from emu.prediction.core import Record
from emu.problem import RateHistory

#: Columns of the rates, by their names in the core.
_COLUMNS = {"since": "f8", "edge": "i8", "iteration": "i8", "rate": "f8"}
#: Rates that are packed together, in 0.06 ms: 7 bytes each of 32 (an hour of golden).
_TOGETHER = 1024


class RateRecord(Record):
    """The record ``RateRows`` of core.h, to which the core appends at every instant.

    The rates of an instant are 1 kB as arrays of its own: they wait until there are
    many. ``most`` are those of one call of the core.
    """

    def __init__(self, most: int) -> None:
        room = _TOGETHER + most
        columns = {name: np.zeros(room, kind) for name, kind in _COLUMNS.items()}
        super().__init__("RateRows", room=room, **columns)
        self._packed: dict[str, list[bytes]] = {name: [] for name in _COLUMNS}

    def keep_room(self) -> None:
        """Have room for the rates of one more call."""
        if self.core.count >= _TOGETHER:
            self._pack()

    def history(self) -> RateHistory:
        """Return every rate so far, in the order of time."""
        self._pack()
        columns = {}
        for name, kind in _COLUMNS.items():
            chunks = map(isal_zlib.decompress, self._packed[name])
            columns[name] = np.frombuffer(b"".join(chunks), kind)
        return RateHistory(
            time=columns["since"],
            edge=columns["edge"],
            iteration=columns["iteration"],
            rate=columns["rate"],
        )

    def _pack(self) -> None:
        for name in _COLUMNS:
            column = getattr(self, name)[: self.core.count]
            chunk = isal_zlib.compress(column.tobytes(), 1)
            self._packed[name].append(chunk)
        self.core.count = 0
