"""Collectives as NCCL runs them: rings, chains and two trees, piece by piece.

A lane is what one block of a rank does in one operation, as a script: a lane goes on
whatever the others of its rank wait for. Lanes follow NCCL's sources (all_reduce.h,
all_gather.h, reduce_scatter.h, broadcast.h, reduce.h in device; graph/trees.cc): its
protocol "simple" over one channel per ring or tree. A receiver has room for 4 MiB of a
connection; it hands a piece on when that has come. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from emu.virtual.gloo_operations import Receive, Script, Send, Transfer, Wait

#: Bytes of a connection that may be under way: eight steps (``NCCL_BUFFSIZE``).
BUFFER = 1 << 22
#: Bytes of one step of a buffer, of which chains and trees send one at a time.
_STEP = BUFFER // 8
#: Bytes of the largest chunk of a ring, and of each of the slices that it is sent in.
_CHUNK = 4 * _STEP
_SLICE = 2 * _STEP
#: Slices have at least this share of the largest, and whole words of 16 bytes.
_LEAST_SLICE = _SLICE // 32
_WORD = 16
#: Pieces of a tree are halved down to so many bytes while they are too few to overlap:
#: the most pieces per level of the tree for that, and bytes that it stops at.
_HALVINGS = ((8, 1 << 17), (4, 1 << 16), (1, 1 << 15))
#: Algorithms by call: an empty one has messages of its own, whatever was asked for.
ALGORITHMS = {
    "allreduce": ("ring", "tree"),
    "barrier": ("ring", "tree"),
    "reduce": ("ring",),
    "broadcast": ("ring",),
    "allgather": ("ring",),
    "reduce_scatter": ("ring",),
    "reduce_scatter_list": ("ring",),
    "alltoall": (),
    "gather": (),
    "scatter": (),
}


@dataclass(frozen=True)
class Lane:
    """Doings of one block of a rank."""

    script: Script
    channel: int = 0
    """Messages of others are apart."""


@dataclass(frozen=True)
class Piece:
    """A part of a tensor that is handed on: bytes that come, and that go."""

    taken: int
    given: int


#: Pieces in the order in which a lane hands them on.
Pieces: TypeAlias = Sequence[Piece]
#: Posts, and gives the transfers that were posted.
_Posts: TypeAlias = Generator[Send | Receive, Transfer, list[Transfer]]


def _pieces_of(sizes: Sequence[int], *, is_taken: bool, is_given: bool) -> list[Piece]:
    """Return the pieces of a tensor: they come, or they go, or both."""
    pieces = []
    for size in sizes:
        taken = size if is_taken else 0
        given = size if is_given else 0
        piece = Piece(taken, given)
        pieces.append(piece)
    return pieces


def hand_on(
    sources: Sequence[int], targets: Sequence[int], pieces: Pieces, room: int
) -> Script:
    """Take each piece from all sources, and give it to all targets.

    ``room``: pieces that a source may send before the first is handed on.
    """
    sizes = [piece.taken for piece in pieces if piece.taken]
    receives: list[list[Transfer]] = []
    for size in sizes[:room]:
        row = yield from _receive_from_all(sources, size)
        receives.append(row)

    count = 0
    for piece in pieces:
        if piece.taken:
            row = receives[count]
            yield Wait((*row,))
            count += 1
        if piece.given:
            # A send is over when the buffer of its connection has it.
            yield from _send_to_all(targets, piece.given)
        next_receive = count + room - 1
        if piece.taken and next_receive < len(sizes):
            row = yield from _receive_from_all(sources, sizes[next_receive])
            receives.append(row)


def _receive_from_all(sources: Sequence[int], size: int) -> _Posts:
    """Post a receive of so many bytes from each source."""
    receives = [Receive(source, size) for source in sources]
    posted = yield from _post_all(receives)
    return posted


def _send_to_all(targets: Sequence[int], size: int) -> Script:
    """Send so many bytes to each target."""
    sends = [Send(target, size) for target in targets]
    posted = yield from _post_all(sends)
    yield Wait((*posted,))


def _post_all(steps: Sequence[Send | Receive]) -> _Posts:
    posted: list[Transfer] = []
    for step in steps:
        transfer = yield step
        posted.append(transfer)
    return posted


def _slices(chunk: int) -> list[int]:
    """Return the bytes of the slices of a chunk: two halves, one where it is small."""
    half = -(-chunk // (2 * _WORD)) * _WORD
    length = max(half, _LEAST_SLICE)
    starts = range(0, chunk, length)
    return [min(length, chunk - start) for start in starts]


@dataclass(frozen=True)
class _Loop:
    """A part of a tensor that goes round the ring at once: a chunk for each rank."""

    ranks: int
    size: int
    chunk: int
    """Bytes of a chunk that is not short."""

    def slices(self, owner: int) -> list[int]:
        """Return the bytes of the slices of a rank's chunk; the last may be empty."""
        place = owner % self.ranks
        left = self.size - place * self.chunk
        length = min(self.chunk, left)
        return _slices(max(0, length))


def _loops_of_whole(ranks: int, size: int) -> list[_Loop]:
    """Return the loops over a tensor of which each rank sums a part."""
    loops = []
    left = size
    while left > 0:
        part = -(-left // ranks)
        chunk = min(_CHUNK, -(-part // _WORD) * _WORD)
        loop = _Loop(ranks, left, chunk)
        loops.append(loop)
        left -= ranks * chunk
    return loops


def _loops_of_parts(ranks: int, size: int) -> list[_Loop]:
    """Return the loops over as many tensors as ranks, of one size."""
    loops = []
    for start in range(0, size, _CHUNK):
        chunk = min(_CHUNK, size - start)
        loop = _Loop(ranks, ranks * chunk, chunk)
        loops.append(loop)
    return loops


def _go_round(
    rank: int, ranks: int, loops: Sequence[_Loop], first: int, hops: int
) -> Script:
    """Send a chunk to the next rank, and each that comes as well, over so many hops.

    ``first``: ranks by which the chunk that is sent first is ahead of its own.
    """
    pieces: list[Piece] = []
    for loop in loops:
        for hop in range(hops + 1):
            owner = rank + first - hop
            sizes = loop.slices(owner)
            pieces += _pieces_of(
                sizes,
                is_taken=hop > 0,
                is_given=hop < hops,
            )

    source = (rank - 1) % ranks
    target = (rank + 1) % ranks
    room = BUFFER // _SLICE
    return hand_on([source], [target], pieces, room)


def ring_all_reduce(rank: int, ranks: int, size: int) -> Script:
    """Sum a tensor: chunks are added up on their way round, then handed round."""
    loops = _loops_of_whole(ranks, size)
    return _go_round(rank, ranks, loops, first=-1, hops=2 * (ranks - 1))


def ring_reduce_scatter(rank: int, ranks: int, size: int) -> Script:
    """Sum a tensor of so many bytes in all, of which each rank keeps its part."""
    loops = _loops_of_parts(ranks, size // ranks)
    return _go_round(rank, ranks, loops, first=-1, hops=ranks - 1)


def ring_all_gather(rank: int, ranks: int, size: int) -> Script:
    """Hand round what each rank brings, so many bytes."""
    loops = _loops_of_parts(ranks, size)
    return _go_round(rank, ranks, loops, first=0, hops=ranks - 1)


def _chain(place: int, ranks: Sequence[int], size: int) -> Script:
    """Hand a tensor along a chain of ranks, of which one has this place."""
    sizes = _cut(size, _STEP)
    is_first = place == 0
    is_last = place == len(ranks) - 1
    sources = [] if is_first else [ranks[place - 1]]
    targets = [] if is_last else [ranks[place + 1]]
    pieces = _pieces_of(
        sizes,
        is_taken=not is_first,
        is_given=not is_last,
    )
    return hand_on(sources, targets, pieces, room=BUFFER // _STEP)


def _cut(size: int, length: int) -> list[int]:
    return [min(length, size - start) for start in range(0, size, length)]


def ring_broadcast(rank: int, ranks: int, root: int, size: int) -> Script:
    """Hand a tensor from the root round the ring, to the rank before it."""
    order = [(root + place) % ranks for place in range(ranks)]
    return _chain((rank - root) % ranks, order, size)


def ring_reduce(rank: int, ranks: int, root: int, size: int) -> Script:
    """Add a tensor up round the ring, from the rank behind the root to the root."""
    order = [(root + 1 + place) % ranks for place in range(ranks)]
    return _chain((rank - root - 1) % ranks, order, size)


def parent_in_tree(rank: int, ranks: int) -> int | None:
    """Return the parent of a rank in NCCL's binary tree; None of the root, rank 0.

    Odd ranks are leaves. Who stands in the middle of 2k - 1 ranks is parent of those in
    the middle of its halves, where there are so many.
    """
    if rank == 0:
        return None
    lowest_bit = rank & -rank
    parent = (rank ^ lowest_bit) | (lowest_bit << 1)
    return parent if parent < ranks else rank ^ lowest_bit


def tree_all_reduce(rank: int, ranks: int, size: int) -> list[Lane]:
    """Sum two halves of a tensor up two trees, and hand each sum down.

    The second tree is the first one mirrored, or with an odd number of ranks shifted by
    one: who is a leaf in one is none in the other.
    """
    words = -(-size // (2 * _WORD))
    first_half = min(size, words * _WORD)
    second_half = size - first_half
    first_ranks = [*range(ranks)]
    second_ranks = [*first_ranks[1:], 0]
    if ranks % 2 == 0:
        second_ranks = first_ranks[::-1]

    first_lanes = _lanes_of_tree(rank, first_ranks, first_half, channel=0)
    second_lanes = _lanes_of_tree(rank, second_ranks, second_half, channel=1)
    return first_lanes + second_lanes


def _lanes_of_tree(
    rank: int, ranks: Sequence[int], size: int, channel: int
) -> list[Lane]:
    """Return the lanes of a rank in a tree whose places ranks have in this order."""
    count = len(ranks)
    place = ranks.index(rank)
    piece = _tree_piece(count, size)
    sizes = _cut(size, piece)
    parent_place = parent_in_tree(place, count)
    children = _children_in_tree(place, ranks)
    room = BUFFER // _STEP

    if parent_place is None:
        whole = _pieces_of(sizes, is_taken=True, is_given=True)
        script = hand_on(children, children, whole, room)
        return [Lane(script, channel)]

    parent = ranks[parent_place]
    is_leaf = not children
    upwards = _pieces_of(sizes, is_taken=not is_leaf, is_given=True)
    downwards = _pieces_of(sizes, is_taken=True, is_given=not is_leaf)
    up_script = hand_on(children, [parent], upwards, room)
    down_script = hand_on([parent], children, downwards, room)
    return [
        Lane(up_script, channel),
        Lane(down_script, channel),
    ]


def _children_in_tree(place: int, ranks: Sequence[int]) -> list[int]:
    """Return the ranks below a place."""
    count = len(ranks)
    children = []
    for child, rank in enumerate(ranks):
        if parent_in_tree(child, count) == place:
            children.append(rank)
    return children


def _tree_piece(ranks: int, size: int) -> int:
    """Return the bytes of a piece: small ones keep all levels of a tree busy."""
    levels = max(1, ranks.bit_length() - 1)
    piece = _STEP
    for per_level, least in _HALVINGS:
        while size / piece < levels * per_level and piece > least:
            piece //= 2
    return piece


def exchange(rank: int, given: Sequence[int], taken: Sequence[int]) -> Script:
    """Send to all and receive from all at once, as a group of sends and receives.

    ``given``, ``taken``: bytes to each rank and from each; its own are copied.
    """
    ranks = len(given)
    steps: list[Send | Receive] = []
    for distance in range(1, ranks):
        source = (rank - distance) % ranks
        target = (rank + distance) % ranks
        if taken[source]:
            receive = Receive(source, taken[source])
            steps.append(receive)
        if given[target]:
            send = Send(target, given[target])
            steps.append(send)
    posted = yield from _post_all(steps)
    yield Wait((*posted,))
