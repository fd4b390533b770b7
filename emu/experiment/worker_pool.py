"""Processes that share the work of a comparison, one per core."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Self, TypeVar

from emu.emulation.launch.signals import die_with_parent

R = TypeVar("R")


class WorkerPool:
    """Does things in processes of its own while it is entered; a context manager.

    Parameters
    ----------
    cores
        Processes; with 1 everything is done in this one.
    watch
        Called with what is done, and how much of it.
    """

    def __init__(self, cores: int, watch: Callable[[str], None]) -> None:
        self._cores, self._watch = cores, watch
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self._pool is not None:
            if error:  # what is under way may take minutes
                for child in multiprocessing.active_children():
                    child.terminate()
            self._pool.shutdown(cancel_futures=True)

    def work(
        self,
        what: str,
        function: Callable[..., R],
        items: Sequence[tuple[Any, ...]],
    ) -> Iterator[R]:
        """Yield what a function returns of every item, in their order."""
        self._watch(f"{what}: 0 of {len(items)}")
        if self._cores == 1 or len(items) < 2:
            for number, item in enumerate(items, 1):
                yield function(*item)
                self._watch(f"{what}: {number} of {len(items)}")
            return
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._cores, context, _begin)
        futures = [self._pool.submit(function, *item) for item in items]
        for number, _ in enumerate(as_completed(futures), 1):
            self._watch(f"{what}: {number} of {len(items)}")
        yield from (future.result() for future in futures)


def _begin() -> None:
    """Leave Ctrl-C to the process that asked, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
