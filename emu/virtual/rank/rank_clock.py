"""The clock of a rank: CPU seconds of its threads, and what the cluster adds.

What emu itself does in a call is taken off. Programs that ask for the time see this
clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from emu.virtual.rank.thread_cpu import ThreadCpu

#: Seconds that ``time.time`` shows at virtual time 0.
EPOCH = 1.7e9


class RankClock:
    """Virtual time of this process.

    Parameters
    ----------
    speed
        CPU seconds of this computer per second of the emulated machine.
    charge
        Seconds that every computation between two calls is said to take, in place of
        its CPU time; None where that is measured.
    cores
        Cores of the machine that this process has.
    """

    def __init__(
        self,
        speed: float,
        charge: float | None,
        cores: int = 1,
    ) -> None:
        self._speed = speed
        self._charge = charge
        self._shown = 0.0
        self._cpu = ThreadCpu(cores)
        self._depth = 0
        """Blocks under way for which it is stopped."""
        self.own_cpu = 0.0
        """CPU seconds of emu itself, which the clock does not show."""
        if cores > 1:
            self._cpu.note_ends()

    def now(self) -> float:
        """Return the virtual time, seconds."""
        if self._depth or self._charge is not None:
            return self._shown
        cpu = self._cpu.passed()
        return self._shown + cpu / self._speed

    def go_to(self, moment: float) -> None:
        """Show a later time."""
        self._shown = max(self._shown, moment)

    def __enter__(self) -> Self:
        """Stop for the time of a block, which costs the program nothing."""
        self._depth += 1
        if self._depth > 1:
            return self
        # CPU is looked at for every stop, also where a charge takes its place.
        computed = self._cpu.passed() / self._speed
        if self._charge is not None:
            computed = self._charge
        self._shown += computed
        return self

    def __exit__(self, *_: object) -> None:
        """Go on after a block."""
        self._depth -= 1
        if self._depth == 0:
            self.own_cpu += self._cpu.mark()

    def take_over(self, sleep: Callable[[float], None]) -> Callable[[], None]:
        """Have module ``time`` show it; return what undoes that."""

        def show_date() -> float:
            return EPOCH + self.now()

        def show_nanoseconds() -> int:
            return int(self.now() * 1e9)

        functions: dict[str, Any] = {
            "time": show_date,
            "time_ns": lambda: int(show_date() * 1e9),
            "monotonic": self.now,
            "monotonic_ns": show_nanoseconds,
            "perf_counter": self.now,
            "perf_counter_ns": show_nanoseconds,
            "sleep": sleep,
        }
        module = vars(time)
        real = {name: module[name] for name in functions}
        module.update(functions)
        return partial(module.update, real)
