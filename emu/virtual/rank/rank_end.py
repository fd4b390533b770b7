"""A rank's end of the connection to who keeps the clocks, and its calls under way."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from emu.virtual.control import Connection
from emu.virtual.rank.deposits import Deposits
from emu.virtual.rank.rank_clock import RankClock

#: What is said of the end of a call.
Result: TypeAlias = Sequence[Any]
#: Forms of calls that are remembered as having been described.
_MOST_FORMS = 1 << 11
#: Seconds for which what needs no answer is kept, to be sent with more.
_KEPT = 5e-4
#: What somebody waits for.
_URGENT = {"leave", "line"}
#: Folders whose code makes calls for the program.
BETWEEN = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent),
)


class VirtualWork(dist.Work):
    """A call under way.

    Parameters
    ----------
    end
        Of this rank.
    kind
        Of the call: ``allreduce``.
    outputs
        Tensors that have values once it is over.
    take
        Fills them, by what is said of the end.
    """

    _names: ClassVar[Iterator[int]] = itertools.count()

    def __init__(
        self,
        end: RankEnd,
        kind: str,
        outputs: Sequence[Tensor],
        take: Callable[[Result], None],
    ) -> None:
        super().__init__()
        self.kind = kind
        self.name = next(self._names)
        """Number that no other call of this rank has."""
        self.is_over = False
        self.timeout: float | None = None
        """Seconds after which a wait fails, where the program states that."""
        self.source = -1
        """Member whose message came, of a receive."""
        self._end = end
        self._outputs = list(outputs)
        self._take = take
        self._future: torch.futures.Future[list[Tensor]] | None = None

    def fill_outputs(self, result: Result) -> None:
        """Take in that it is over: outputs have their values from now on."""
        self._take(result)
        self.is_over = True

    def complete_future(self) -> None:
        """Carry out what the program has follow."""
        if self._future is not None:
            self._future.set_result(self._outputs)

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is over, by the clock of this rank.

        Raises RuntimeError after the timeout of this wait, or of the group.
        """
        seconds = self.timeout
        if timeout is not None and timeout.total_seconds() > 0:
            seconds = timeout.total_seconds()
        if not self.is_over:
            self._end.wait([self.name], timeout=seconds)
        if not self.is_over:
            raise RuntimeError(
                f"{self.kind} passed its timeout of {seconds} s of virtual time"
            )
        return True

    @override
    def is_completed(self) -> bool:
        """Return True where it is over by now."""
        if not self.is_over:
            self._end.sleep(0.0)
        return self.is_over

    @override
    def is_success(self) -> bool:
        return self.is_over

    @override
    def exception(self) -> Any:
        return None

    @override
    def result(self) -> Any:
        return self._outputs

    @override
    def synchronize(self) -> None:
        self.wait()

    @override
    def _source_rank(self) -> int:
        return self.source

    @override
    def source_rank(self) -> int:
        return self.source

    @override
    def get_future(self) -> Any:
        """Return a future, whose waits in Python go by the clock of this rank.

        C++ waits for those of a backward pass, whose calls are over at its end.
        """
        if self._future is None:
            self._future = torch.futures.Future()
            if self.is_over:
                self._future.set_result(self._outputs)
        return self._future


class RankEnd:
    """The connection of this rank, its deposits, and its calls under way."""

    def __init__(
        self,
        connection: Connection,
        clock: RankClock,
        deposits: Deposits,
    ) -> None:
        self.clock = clock
        self.deposits = deposits
        self._connection = connection
        self._sent = 0.0
        """When something was sent last."""
        self._works: dict[int, VirtualWork] = {}
        """Calls that are not known to be over, by name."""
        self._forms: dict[Any, int] = {}
        """Numbers of the calls that were described, by all that is alike of them."""
        self._passes: set[int] = set()
        """Backward passes at whose end calls are waited for."""
        self._is_finishing = False
        self._requests = itertools.count(-1, -1)
        """Names of requests of the store."""

    def say(self, kind: str, *words: Any) -> None:
        """Say something that needs no answer."""
        with self.clock as clock:
            now = clock.now()
            self._connection.keep(kind, now, *words)
            if now - self._sent > _KEPT or kind in _URGENT:
                self._connection.flush()
                self._sent = now

    def post(
        self,
        work: VirtualWork,
        group: str,
        figures: Mapping[str, Any],
        slot: int,
        place: int | None,
    ) -> None:
        """Say that a call was made.

        Parameters
        ----------
        group
            Name of its group.
        figures
            As `Call` has them; what cannot change.
        slot
            Number in its group; of a message the tag.
        place
            Where this rank left its value.
        """
        self._works[work.name] = work
        form = self._number_of_form(group, work.kind, figures)
        self.say("post", work.name, form, slot, place)
        self._wait_at_end_of_backward()

    def _number_of_form(
        self,
        group: str,
        kind: str,
        figures: Mapping[str, Any],
    ) -> int:
        """Return the number of what is alike in calls; describes it when it is new."""
        caller = find_caller()
        key = (group, kind, *caller, *figures.values())
        number = self._forms.get(key)
        if number is None:
            if len(self._forms) == _MOST_FORMS:
                self._forms.clear()
            number = len(self._forms)
            self._forms[key] = number
            path, line = caller
            _, _, file = path.rpartition(os.sep)
            place = f"{file}:{line}"
            self._connection.keep("form", 0.0, number, group, kind, figures, place)
        return number

    def now(self) -> float:
        """Return the seconds that this rank's clock shows."""
        with self.clock as clock:
            return clock.now()

    def forget(self, work: VirtualWork) -> None:
        """Wait no more for a call: whatever comes of it is of no use."""
        self._works.pop(work.name, None)

    def wait(self, names: Collection[int], timeout: float | None = None) -> None:
        """Let others run until calls are over."""
        self._yield_turn("wait", names, timeout)

    def sleep(self, seconds: float) -> None:
        """Let the clock go on by so many seconds, and others run meanwhile."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self._yield_turn("sleep", float(seconds))

    def wait_for_any(self) -> bool:
        """Wait for the next end of a call under way; return False without any."""
        if not self._works:
            return False
        self._yield_turn("wait any", [*self._works])
        return True

    def ask_store(
        self,
        request: str,
        keys: Sequence[str],
        values: Sequence[Any],
        timeout: float,
    ) -> Any:
        """Return the answer of the store.

        Raises torch's DistStoreError after so many seconds.
        """
        name = next(self._requests)
        news = self._yield_turn("store", name, request, [*keys], values, timeout)
        if name not in news:
            missing = ", ".join(keys)
            raise dist.DistStoreError(
                f"wait timeout: {missing} did not come in {timeout:g} s of virtual time"
            )
        return news[name]

    def _yield_turn(self, kind: str, *words: Any) -> dict[int, Any]:
        """Say something, and let others run until there is an answer."""
        with self.clock as clock:
            self._connection.send(kind, clock.now(), *words)
            moment: float
            news: dict[int, Any]
            moment, news, free = self._connection.receive()

            clock.go_to(moment)
            self._sent = moment
            for place in free:
                self.deposits.free(place)
            over = [self._works.pop(name) for name in news if name in self._works]
            # All before anything is said again: values are removed then.
            for work in over:
                work.fill_outputs(news[work.name])
        for work in over:
            work.complete_future()
        return news

    def _wait_at_end_of_backward(self) -> None:
        """Have the calls of a backward pass be over when it is.

        DDP's reducer waits for their futures in C++, in a callback that it queues
        later than the first of its calls.
        """
        task = torch._C._current_graph_task_id()  # noqa: SLF001 - there is no other way
        if task == -1 or self._is_finishing:
            return
        # Without a node the pass is over, and DDP goes on without another word: so it
        # does with a static graph, the first time.
        if torch._C._current_autograd_node() is None:  # noqa: SLF001
            self._finish_all()
        elif task not in self._passes:
            self._passes.add(task)
            engine = torch.autograd.Variable._execution_engine  # noqa: SLF001
            engine.queue_callback(partial(self._finish_pass, task))

    def _finish_pass(self, task: int) -> None:
        self._passes.discard(task)
        self._finish_all()

    def _finish_all(self) -> None:
        """Wait for all calls, and those that follow from them."""
        self._is_finishing = True
        try:
            while self._works:
                self.wait([*self._works])
        finally:
            self._is_finishing = False


def find_caller() -> tuple[str, int]:
    """Return file and line of the program that makes a call, through torch."""
    frame = sys._getframe(1)  # noqa: SLF001 - traceback takes 100 times as long
    while frame.f_back is not None and frame.f_code.co_filename.startswith(BETWEEN):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
