"""Waits of the processes of a lab for a core: the time that the host added."""

from __future__ import annotations

from pathlib import Path


class CoreWaits:
    """CPU time and waits of all processes below one, sampled while they live.

    The kernel counts both per thread; those of a thread that ended between two samples
    are missing since the last one.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}
        self.sample()
        self._before = dict(self._seen)  # who holds the machines ran and waited, too

    def sample(self) -> None:
        """Read the counts of every thread that lives now."""
        for process in processes_below(self._root):
            for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
                try:
                    ran, waited, _ = map(int, thread.read_text().split())
                except (OSError, ValueError):
                    continue
                self._seen[process, int(thread.parent.name)] = ran, waited

    def seconds(self) -> tuple[float, float]:
        """Return seconds that threads ran, and waited for a core though ready."""
        ran, waited = (
            sum(each[i] for each in self._seen.values())
            - sum(each[i] for each in self._before.values())
            for i in (0, 1)
        )
        return ran / 1e9, waited / 1e9


def processes_below(root: int) -> list[int]:
    """Return every process below one, as this process's ``/proc`` shows them."""
    found, left = [], [root]
    while left:
        process = left.pop()
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                below = [int(child) for child in children.read_text().split()]
            except OSError:
                continue
            found += below
            left += below
    return found
