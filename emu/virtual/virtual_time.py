"""Clocks of ranks and the network between them: who may go on, and when it is.

Ranks run for real, a few at a time; their clocks are virtual. A rank that runs may post
at any time from its clock on, so the network goes on to the least clock of those that
run or could run, and no further: nothing that happened has to be taken back.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from emu.errors import RunError
from emu.virtual.gloo_transport import MessageNetwork


class Deadlock(RunError):
    """Ranks wait for each other, and nothing that is under way would end it."""


#: Share of a core that messages have at most beside a computation: gloo's worker and
#: the thread for its sockets, of three that the kernel serves alike.
_MOST_OF_CORE = 2 / 3
#: Seconds by which something may happen early: delays are followed no further.
_SHORTEST = 1e-6


class State(Enum):
    """Doings of a rank."""

    RUNS = "runs"
    READY = "is ready"
    """It could go on, and has no core."""
    WAITS = "waits"
    OVER = "is over"


@dataclass
class Rank:
    """A rank, by its own account."""

    number: int
    clock: float = 0.0
    """By its last word, without delays since its turn; while it waits, of no use."""
    began: float = 0.0
    """When its turn began."""
    message_cpu: float = 0.0
    """CPU seconds that messages had taken of it by then."""
    state: State = State.RUNS
    missing: set[int] = field(default_factory=set)
    """Names of its operations that it waits for."""
    needs_all: bool = True
    """False where the first end of them lets it go on."""
    wait_number: int = 0
    """Number of its waits so far: a deadline is of one of them."""
    reason: str = ""
    """Words for a wait that is for no operation."""
    news: dict[int, Any] = field(default_factory=dict)
    """Results of its operations that ended, by name, which it has not been told."""
    said: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    """Times that its clock showed, and actions of it then, in order."""


class Turn(NamedTuple):
    """A rank that goes on."""

    rank: int
    time: float
    """Seconds that its clock shows then."""
    news: dict[int, Any]
    """Results of its operations that have ended since its last turn, by name."""


class VirtualTime:
    """All clocks, at one instant.

    Parameters
    ----------
    network
        Of the cluster.
    ranks
        Number of ranks; all run at first.
    cores
        Number of ranks that may run at once.
    message_cpu
        Gives the CPU seconds that messages took of a rank so far: what they take while
        it computes delays what it does. None: they take none.
    """

    def __init__(
        self,
        network: MessageNetwork,
        ranks: int,
        cores: int,
        message_cpu: Callable[[int], float] | None = None,
    ) -> None:
        self.ranks = [Rank(number) for number in range(ranks)]
        self.cores = cores
        self.running = set(range(ranks))
        """Ranks that have a core."""
        self._ready: list[tuple[float, int]] = []
        """Heap of ranks that could go on: clock, rank."""
        self.left = ranks
        """Ranks that have not ended."""
        self._network = network
        self._due: list[tuple[float, int, int, Callable[[], None]]] = []
        """Heap of what is to happen: time, rank, order, action. Ties go by rank, so
        that the order in which messages came decides nothing."""
        self._order = 0
        self._message_cpu = message_cpu

    def say(self, rank: int, time: float, action: Callable[[], None]) -> None:
        """Have a rank do something at a time that its clock shows, no less than before.

        It does so when the network has come to that: whether its message came early or
        late decides nothing. Messages that take its core meanwhile delay it.
        """
        speaker = self.ranks[rank]
        speaker.clock = max(speaker.clock, time)
        speaker.said.append((time, action))
        if len(speaker.said) == 1:
            delayed = time + self.delay(rank)
            moment = max(delayed, self._network.now)
            act = partial(self._act, rank)
            self.schedule(rank, moment, act)

    def _act(self, rank: int) -> None:
        """Have a rank do what it has said to do by now; plan the next thing."""
        said = self.ranks[rank].said
        now = self._network.now
        latest = now + _SHORTEST
        while said:
            time, action = said[0]
            moment = time + self.delay(rank)
            if moment > latest:
                act = partial(self._act, rank)
                self.schedule(rank, moment, act)
                return
            said.popleft()
            action()
            latest = now

    def delay(self, rank: int) -> float:
        """Return the seconds by which messages have delayed a rank since its turn."""
        if self._message_cpu is None:
            return 0.0
        turn = self.ranks[rank]
        used = self._message_cpu(rank) - turn.message_cpu
        passed = self._network.now - turn.began
        return min(used, _MOST_OF_CORE * passed)

    def schedule(
        self,
        rank: int,
        time: float,
        action: Callable[[], None],
    ) -> None:
        """Have something happen at a time, for a rank whose clock shows no more."""
        self._order += 1
        due = (time, rank, self._order, action)
        heapq.heappush(self._due, due)

    def stop(self, rank: int) -> None:
        """Take in that a rank has said something and waits for an answer."""
        self.ranks[rank].state = State.WAITS
        self.running.discard(rank)

    def wait(
        self,
        rank: int,
        names: Collection[int],
        timeout: float,
        *,
        needs_all: bool,
    ) -> None:
        """Have a rank go on when operations are over, or so many seconds have passed.

        ``names``: of this rank's operations of which it has not been told the end.
        """
        waiter = self.ranks[rank]
        missing = set(names) - waiter.news.keys()
        has_one = len(missing) < len(names)
        self.begin_wait(rank, "")
        if not missing or (has_one and not needs_all):
            self.wake(rank)
            return

        waiter.missing = missing
        waiter.needs_all = needs_all
        if timeout < math.inf:
            self.wake_after(rank, timeout)

    def begin_wait(self, rank: int, reason: str) -> None:
        """Have a rank wait until it is woken, for a reason."""
        waiter = self.ranks[rank]
        waiter.reason = reason
        waiter.wait_number += 1

    def wake_after(self, rank: int, seconds: float) -> None:
        """Have a rank that waits go on after a time, if nothing wakes it before."""
        sleeper = self.ranks[rank]
        number = sleeper.wait_number

        def wake() -> None:
            waits_still = sleeper.state is State.WAITS
            if waits_still and sleeper.wait_number == number:
                self.wake(rank)

        moment = self._network.now + seconds
        self.schedule(rank, moment, wake)

    def wake(self, rank: int) -> None:
        """Have a rank that waits go on now."""
        now = self._network.now
        sleeper = self.ranks[rank]
        sleeper.missing = set()
        sleeper.clock = now
        sleeper.state = State.READY
        heapq.heappush(self._ready, (now, rank))

    def end(self, rank: int, name: int, result: Any) -> None:
        """Take in that an operation of a rank is over."""
        waiter = self.ranks[rank]
        waiter.news[name] = result
        if name not in waiter.missing:
            return
        waiter.missing.discard(name)
        if not waiter.missing or not waiter.needs_all:
            self.wake(rank)

    def leave(self, rank: int) -> None:
        """Take in that a rank has ended."""
        self.ranks[rank].state = State.OVER
        self.running.discard(rank)
        self.left -= 1

    def go_on(self, stalled: Collection[int] = ()) -> Iterator[Turn]:
        """Let the network go on as far as is certain; yield the ranks that may run.

        ``stalled``: ranks that run and use no core, whose cores others may have.

        Raises Deadlock where every rank waits and nothing is under way.
        """
        self._let_happen()
        yield from self._give_turns(stalled)
        if self.left and not self.running and not self._ready:
            raise Deadlock("nothing would ever go on")

    def _let_happen(self) -> None:
        """Let happen what is certain: arrivals, then what ranks did at that time."""
        while True:
            due = math.inf
            if self._due:
                due, *_ = self._due[0]
            horizon = self._horizon()
            limit = min(due, horizon)
            if self._network.go_on(limit):
                continue  # ranks may have been woken, and post
            if due > horizon or due == math.inf:
                return

            self._network.go_to(due)
            while self._due:
                moment, _, _, action = self._due[0]
                if moment > due:
                    break
                heapq.heappop(self._due)
                action()

    def _horizon(self) -> float:
        """Return the time before which no rank can post anything any more."""
        least = math.inf
        if self._ready:
            least, _ = self._ready[0]
        for number in self.running:
            rank = self.ranks[number]
            clock = rank.clock + self.delay(number)
            least = min(least, clock)
        return least

    def _give_turns(self, stalled: Collection[int]) -> Iterator[Turn]:
        """Yield the ranks that get a core, the least clock first."""
        busy = self.running.difference(stalled)
        free_cores = self.cores - len(busy)

        while self._ready and free_cores > 0:
            _, number = heapq.heappop(self._ready)
            free_cores -= 1
            rank = self.ranks[number]
            rank.state = State.RUNS
            rank.began = rank.clock
            if self._message_cpu is not None:
                rank.message_cpu = self._message_cpu(number)
            self.running.add(number)
            news = rank.news
            rank.news = {}
            yield Turn(rank=number, time=rank.clock, news=news)
