"""Gloo's transport and collectives once more: slowly, and by the notes on gloo alone.

Nothing of `emu.virtual` is used. A program is what one rank does: it posts sends and
receives, and waits for them. A stream is a list of frames; all rates are found anew
after every event, by filling all streams at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, TypeAlias

HEADER = 48
BUFFER = 2.5e6
SEGMENT = 1 << 20


@dataclass(eq=False)
class Post:
    """A send or receive."""

    kind: str
    peer: int
    size: int
    is_over: bool = False


Program: TypeAlias = Generator[Post | list[Post], None, None]
#: Sender and receiver.
Pair: TypeAlias = tuple[int, int]


def two_in_flight(steps: Sequence[Sequence[Post]]) -> Program:
    """Post the steps one by one, each when that two before it is over."""
    for place, step in enumerate(steps):
        if place >= 2:
            yield [*steps[place - 2]]
        yield from step
    for step in steps[-2:]:
        yield [*step]


def segments_of(ranks: int, size: int, element: int) -> list[int]:
    """S = roundup(max(ceil(B / 1 MiB), 2n), n), each roundup(B / S, element)."""
    count = ceil(max(ceil(size / SEGMENT), 2 * ranks) / ranks) * ranks
    length = ceil(ceil(size / count) / element) * element
    return [max(0, min(length, size - place * length)) for place in range(count)]


def ring(
    rank: int, ranks: int, sizes: Sequence[int], piece: int, steps: int
) -> Program:
    """Send segments to r - 1, from a piece on; r + 1 sends those of the next piece.

    Receives are posted first; empty segments are not sent.
    """
    per_piece = len(sizes) // ranks
    first = piece * per_piece
    posts = []
    for step in range(steps):
        taken = sizes[(first + per_piece + step) % len(sizes)]
        given = sizes[(first + step) % len(sizes)]
        row = [
            Post("receive", (rank + 1) % ranks, taken),
            Post("send", (rank - 1) % ranks, given),
        ]
        posts.append([post for post in row if post.size])
    yield from two_in_flight(posts)


def all_reduce(rank: int, ranks: int, size: int, element: int) -> Program:
    """S - S/n segments of sums, which begin with the piece of r + 1; as many again."""
    sizes = segments_of(ranks, size, element)
    steps = len(sizes) - len(sizes) // ranks
    yield from ring(rank, ranks, sizes, rank + 1, steps)
    yield from ring(rank, ranks, sizes, rank, steps)


def reduce(rank: int, ranks: int, size: int, element: int, root: int) -> Program:
    """S - 2 segments of sums, then all send their piece to the root."""
    sizes = segments_of(ranks, size, element)
    yield from ring(rank, ranks, sizes, rank + 1, len(sizes) - 2)

    count = len(sizes) // ranks
    pieces = [sum(sizes[peer * count : (peer + 1) * count]) for peer in range(ranks)]
    others = [peer for peer in range(ranks) if peer != root]
    posts = [Post("receive", peer, pieces[peer]) for peer in others]
    if rank != root:
        posts = [Post("send", root, pieces[rank])]
    yield from all_at_once(posts)


def all_at_once(posts: Sequence[Post]) -> Program:
    yield from posts
    yield [*posts]


def all_gather(rank: int, ranks: int, size: int) -> Program:
    """2 (n - 1) halves of blocks to r + 1; sends are posted first."""
    steps = []
    for step in range(2 * (ranks - 1)):
        half = size - size // 2 if step % 2 == 0 else size // 2
        send = Post("send", (rank + 1) % ranks, half)
        steps.append([send, Post("receive", (rank - 1) % ranks, half)])
    yield from two_in_flight(steps)


def broadcast(rank: int, ranks: int, size: int, root: int) -> Program:
    """Round i: who has v < 2^i sends to v + 2^i, v = (r - root) mod n."""
    place = (rank - root) % ranks
    sends = []
    for number in range(ranks.bit_length()):
        distance = 2**number
        if place < distance and place + distance < ranks:
            sends.append(Post("send", (rank + distance) % ranks, size))
        elif distance <= place < 2 * distance:
            receive = Post("receive", (rank - distance) % ranks, size)
            yield receive
            yield [receive]
    yield from all_at_once(sends)


def gather(rank: int, ranks: int, size: int, root: int) -> Program:
    """All send to the root at once."""
    others = [peer for peer in range(ranks) if peer != root]
    posts = [Post("receive", peer, size) for peer in others]
    yield from all_at_once(posts if rank == root else [Post("send", root, size)])


def scatter(rank: int, ranks: int, size: int, root: int) -> Program:
    """Send from the root to all at once."""
    others = [peer for peer in range(ranks) if peer != root]
    posts = [Post("send", peer, size) for peer in others]
    yield from all_at_once(posts if rank == root else [Post("receive", root, size)])


def all_to_all(rank: int, matrix: Sequence[Sequence[int]]) -> Program:
    """For i from 1: send to r + i, then receive from r - i; wait after all posts."""
    ranks = len(matrix)
    posts = []
    for distance in range(1, ranks):
        receiver = (rank + distance) % ranks
        sender = (rank - distance) % ranks
        posts.append(Post("send", receiver, matrix[rank][receiver]))
        posts.append(Post("receive", sender, matrix[sender][rank]))
    yield from all_at_once(posts)


def barrier(rank: int, ranks: int) -> Program:
    """Exchange empty messages over distances 1, 2, 4 and so on, one at a time."""
    distance = 1
    while distance < ranks:
        receive = Post("receive", (rank - distance) % ranks, 0)
        yield from all_at_once([receive, Post("send", (rank + distance) % ranks, 0)])
        distance *= 2


@dataclass(eq=False)
class Frame:
    """A frame in a stream, or on its way behind it."""

    kind: str
    left: float
    post: Post | None = None
    there: float = inf


@dataclass
class SlowGloo:
    """Ranks with a NIC each, and what they have to do."""

    rates: Sequence[float]
    """Bytes per second of every NIC, each way."""
    latency: float
    programs: Sequence[Program]
    starts: Sequence[float]
    now: float = 0.0
    written: Counter[Pair] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.ends: list[float | None] = [None for _ in self.programs]
        self._awaited: list[list[Post]] = [[] for _ in self.programs]
        self._streams: dict[Pair, list[Frame]] = defaultdict(list)
        self._flying: dict[Pair, list[Frame]] = defaultdict(list)
        self._ready: Counter[Pair] = Counter()
        self._held: dict[Pair, list[Post]] = defaultdict(list)
        self._open: dict[Pair, list[Post]] = defaultdict(list)

    def run(self) -> list[Any]:
        """Run all programs; return when each has ended, and count what was written."""
        while True:
            self._let_ranks_go_on()
            if None not in self.ends:
                return self.ends
            self._go_to_next_event()

    def _let_ranks_go_on(self) -> None:
        for rank, program in enumerate(self.programs):
            while (
                self.ends[rank] is None
                and self.starts[rank] <= self.now
                and all(post.is_over for post in self._awaited[rank])
            ):
                action = next(program, None)
                if action is None:
                    self.ends[rank] = self.now
                elif isinstance(action, Post):
                    self._post(rank, action)
                else:
                    self._awaited[rank] = action

    def _post(self, rank: int, post: Post) -> None:
        if post.kind == "receive":
            self._open[post.peer, rank].append(post)
            self._write((rank, post.peer), Frame("ready", HEADER))
            return
        pair = (rank, post.peer)
        self._write(pair, Frame("announced", HEADER))
        if self._ready[pair]:
            self._ready[pair] -= 1
            self._write(pair, Frame("data", HEADER + post.size, post))
        else:
            self._held[pair].append(post)

    def _write(self, pair: Pair, frame: Frame) -> None:
        self.written[pair] += int(frame.left)
        self._streams[pair].append(frame)

    def _go_to_next_event(self) -> None:
        rates = self._find_rates()
        moments = [start for start in self.starts if start > self.now]
        moments += [frame.there for row in self._flying.values() for frame in row]
        for pair, rate in rates.items():
            queued = 0.0
            for frame in self._streams[pair]:
                queued += frame.left
                moments.append(self.now + queued / rate)
                if frame.post and not frame.post.is_over and queued > BUFFER:
                    moments.append(self.now + (queued - BUFFER) / rate)
        passed = min(moments) - self.now
        self.now = min(moments)
        for pair, rate in rates.items():
            self._carry(pair, rate * passed)
        self._mark_what_the_kernel_has()
        self._land()

    def _find_rates(self) -> dict[Pair, float]:
        """Raise all rates together; those over a full NIC stay."""
        rates: dict[Pair, float] = {}
        rising = {pair for pair, frames in self._streams.items() if frames}
        left = {
            (rank, side): rate
            for rank, rate in enumerate(self.rates)
            for side in (0, 1)
        }
        level = 0.0
        while rising:
            users = Counter(
                (rank, side) for pair in rising for side, rank in enumerate(pair)
            )
            rise = min(left[nic] / count for nic, count in users.items())
            level += rise
            for nic, count in users.items():
                left[nic] -= rise * count
            for pair in [*rising]:
                if any(
                    left[rank, side] <= 1e-9 * self.rates[rank]
                    for side, rank in enumerate(pair)
                ):
                    rates[pair] = level
                    rising.remove(pair)
        return rates

    def _carry(self, pair: Pair, size: float) -> None:
        frames = self._streams[pair]
        rounding = 1e-6
        while frames and frames[0].left <= size + rounding:
            frame = frames.pop(0)
            size = max(0.0, size - frame.left)
            frame.left = 0.0
            frame.there = self.now + self.latency
            self._flying[pair].append(frame)
        if frames:
            frames[0].left -= size

    def _mark_what_the_kernel_has(self) -> None:
        for frames in self._flying.values():
            for frame in frames:
                if frame.kind == "data" and frame.post:
                    frame.post.is_over = True
        for frames in self._streams.values():
            queued = 0.0
            for frame in frames:
                queued += frame.left
                if frame.post and queued <= BUFFER + 1e-6:
                    frame.post.is_over = True

    def _land(self) -> None:
        """Take in the frames that are there."""
        for pair in sorted(self._flying):
            while self._flying[pair] and self._flying[pair][0].there <= self.now:
                frame = self._flying[pair].pop(0)
                sender, receiver = pair
                if frame.kind == "data":
                    self._open[pair].pop(0).is_over = True
                elif frame.kind == "ready":
                    back = (receiver, sender)
                    if self._held[back]:
                        post = self._held[back].pop(0)
                        self._write(back, Frame("data", HEADER + post.size, post))
                    else:
                        self._ready[back] += 1
        self._mark_what_the_kernel_has()
