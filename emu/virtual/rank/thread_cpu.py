"""CPU of the threads of a rank, as a machine of several cores would spend it.

Threads of this computer may share cores, but the kernel counts the CPU of each. Between
two calls the machine takes as long as its busiest thread: of a parallel operation that
is the one with the largest part, and the thread that made it has what is serial, too.
No machine is faster than all its cores together.

A thread that has ended has no clock any more. One that Python started notes its CPU as
it ends; the kernel's sum for the process has what other ended threads used, who are
counted as one.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

#: Of a thread's number and this the kernel makes the clock of its CPU (CPUCLOCK_SCHED).
_CPU_OF_THREAD = 6


class ThreadCpu:
    """CPU seconds of this process since a mark.

    Parameters
    ----------
    cores
        Cores of the machine. Of one core all threads take their turns.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._marked = 0.0
        self._looked = 0.0
        """CPU seconds of all threads when they were last looked at."""
        self._threads: dict[int, float] = {}
        """CPU seconds of every thread at the mark."""
        self._ended: dict[int, float] = {}
        """CPU seconds of the threads that ended since the mark."""
        self.mark()

    def note_ends(self) -> None:
        """Have every thread that is started from now on note its CPU as it ends."""
        start = threading.Thread.start

        def start_noting(thread: threading.Thread) -> None:
            run = thread.run

            def run_and_note() -> None:
                try:
                    run()
                finally:
                    self._ended[threading.get_native_id()] = time.thread_time()

            thread.run = run_and_note  # type: ignore[method-assign]
            start(thread)

        setattr(threading.Thread, "start", start_noting)  # noqa: B010

    def mark(self) -> float:
        """Count from now on; return the CPU seconds of all since `passed`."""
        if self._cores > 1:
            self._threads = _cpu_of_threads()
            self._ended = {}
        self._marked = time.process_time()
        return self._marked - self._looked

    def passed(self) -> float:
        """Return the seconds that the machine took since the mark.

        Threads that wait for each other in turn are counted as if side by side.
        """
        self._looked = time.process_time()
        total = self._looked - self._marked
        if self._cores == 1:
            return total
        used = self._used()
        unseen = total - sum(used)
        return max(total / self._cores, unseen, *used)

    def _used(self) -> list[float]:
        """Return the CPU seconds of each thread since the mark, ended ones too."""
        now = self._ended | _cpu_of_threads()
        used = []
        for thread, cpu in now.items():
            marked = self._threads.get(thread, 0.0)
            used.append(cpu - marked)
        return used


def _cpu_of_threads() -> dict[int, float]:
    """Return the CPU seconds of every thread of this process, by its number."""
    seconds = {}
    for task in Path("/proc/self/task").iterdir():
        thread = int(task.name)
        try:
            seconds[thread] = time.clock_gettime(~thread << 3 | _CPU_OF_THREAD)
        except OSError:
            continue  # it has ended since
    return seconds
