"""The clock of a rank: CPU seconds of its threads, and what the cluster adds.

What emu itself does in a call is taken off. Programs that ask for the time see this
clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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

    def __init__(self, speed: float, charge: float | None, cores: int = 1) -> None:
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
        return self._shown + self._cpu.passed() / self._speed

    def go_to(self, moment: float) -> None:
        """Show a later time."""
        self._shown = max(self._shown, moment)

    def __enter__(self) -> Self:
        """Stop for the time of a block, which costs the program nothing."""
        self._depth += 1
        if self._depth > 1:
            return self
        computed = self._cpu.passed() / self._speed
        self._shown += computed if self._charge is None else self._charge
        return self

    def __exit__(self, *_: object) -> None:
        """Go on after a block."""
        self._depth -= 1
        if self._depth == 0:
            self.own_cpu += self._cpu.mark()

    def take_over(self, sleep: Callable[[float], None]) -> Callable[[], None]:
        """Have module ``time`` show it; return what undoes that."""
        functions: dict[str, Any] = {
            "time": lambda: EPOCH + self.now(),
            "time_ns": lambda: int((EPOCH + self.now()) * 1e9),
            "monotonic": self.now,
            "monotonic_ns": lambda: int(self.now() * 1e9),
            "perf_counter": self.now,
            "perf_counter_ns": lambda: int(self.now() * 1e9),
            "sleep": sleep,
        }
        real = {name: getattr(time, name) for name in functions}

        def give_back() -> None:
            for name, function in real.items():
                setattr(time, name, function)

        for name, function in functions.items():
            setattr(time, name, function)
        return give_back
