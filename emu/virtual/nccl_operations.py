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


def _pieces_of(
    sizes: Sequence[int],
    *,
    is_taken: bool,
    is_given: bool,
) -> list[Piece]:
    """Return the pieces of a tensor: they come, or they go, or both."""
    pieces = []
    for size in sizes:
        taken = size if is_taken else 0
        given = size if is_given else 0
        piece = Piece(taken, given)
        pieces.append(piece)
    return pieces


def hand_on(
    sources: Sequence[int],
    targets: Sequence[int],
    pieces: Pieces,
    room: int,
) -> Script:
    """Take each piece from all sources, and give it to all targets.

    ``room``: pieces that a source may send before the first is handed on.
    """
    sizes = [piece.taken for piece in pieces if piece.taken]
    posted_receives: list[list[Transfer]] = []
    for size in sizes[:room]:
        posted = yield from _receive_from_all(sources, size)
        posted_receives.append(posted)

    count = 0
    for piece in pieces:
        if piece.taken:
            posted = posted_receives[count]
            yield Wait((*posted,))
            count += 1

        if piece.given:
            sends = [Send(target, piece.given) for target in targets]
            posted = yield from _post_all(sends)
            # A send is over when the buffer of its connection has it.
            yield Wait((*posted,))

        next_receive = count + room - 1
        if piece.taken and next_receive < len(sizes):
            size = sizes[next_receive]
            posted = yield from _receive_from_all(sources, size)
            posted_receives.append(posted)


def _receive_from_all(sources: Sequence[int], size: int) -> _Posts:
    """Post a receive of so many bytes from each source."""
    receives = [Receive(source, size) for source in sources]
    posted = yield from _post_all(receives)
    return posted


def _post_all(steps: Sequence[Send | Receive]) -> _Posts:
    posted: list[Transfer] = []
    for step in steps:
        transfer = yield step
        posted.append(transfer)
    return posted


def _slices(chunk: int) -> list[int]:
    """Return the bytes of the slices of a chunk: two halves, one where it is small."""
    half = _whole_words(-(-chunk // 2))
    length = max(half, _LEAST_SLICE)
    return _cut(chunk, length)


def _whole_words(size: int) -> int:
    """Return the bytes of as many words as hold so many bytes."""
    words = -(-size // _WORD)
    return words * _WORD


def _cut(size: int, length: int) -> list[int]:
    """Return the bytes of the parts of a length; the last may be short."""
    starts = range(0, size, length)
    return [min(length, size - start) for start in starts]


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
        start = place * self.chunk
        left = max(0, self.size - start)
        length = min(self.chunk, left)
        return _slices(length)


def _loops_of_whole(ranks: int, size: int) -> list[_Loop]:
    """Return the loops over a tensor of which each rank sums a part."""
    loops = []
    rest = size
    while rest > 0:
        part = -(-rest // ranks)
        words = _whole_words(part)
        chunk = min(_CHUNK, words)
        loop = _Loop(ranks, rest, chunk)
        loops.append(loop)
        rest -= ranks * chunk
    return loops


def _loops_of_parts(ranks: int, size: int) -> list[_Loop]:
    """Return the loops over as many tensors as ranks, of one size."""
    loops = []
    for start in range(0, size, _CHUNK):
        chunk = min(_CHUNK, size - start)
        size_of_all = ranks * chunk
        loop = _Loop(ranks, size_of_all, chunk)
        loops.append(loop)
    return loops


def _go_round(
    rank: int,
    loops: Sequence[_Loop],
    ranks: int,
    *,
    first: int,
    hops: int,
) -> Script:
    """Send a chunk to the next rank, and each that comes as well, over so many hops.

    ``first``: ranks by which the chunk that is sent first is ahead of its own.
    """
    pieces: list[Piece] = []
    for loop in loops:
        for hop in range(hops + 1):
            owner = rank + first - hop
            sizes = loop.slices(owner)
            is_first = hop == 0
            is_last = hop == hops
            pieces += _pieces_of(
                sizes,
                is_taken=not is_first,
                is_given=not is_last,
            )

    source = (rank - 1) % ranks
    target = (rank + 1) % ranks
    room = BUFFER // _SLICE
    return hand_on([source], [target], pieces, room)


def ring_all_reduce(rank: int, ranks: int, size: int) -> Script:
    """Sum a tensor: chunks are added up on their way round, then handed round."""
    loops = _loops_of_whole(ranks, size)
    hops = 2 * (ranks - 1)
    return _go_round(rank, loops, ranks, first=-1, hops=hops)


def ring_reduce_scatter(rank: int, ranks: int, size: int) -> Script:
    """Sum a tensor of so many bytes in all, of which each rank keeps its part."""
    part = size // ranks
    loops = _loops_of_parts(ranks, part)
    hops = ranks - 1
    return _go_round(rank, loops, ranks, first=-1, hops=hops)


def ring_all_gather(rank: int, ranks: int, size: int) -> Script:
    """Hand round what each rank brings, so many bytes."""
    loops = _loops_of_parts(ranks, size)
    hops = ranks - 1
    return _go_round(rank, loops, ranks, first=0, hops=hops)


def ring_broadcast(
    rank: int,
    ranks: int,
    root: int,
    size: int,
) -> Script:
    """Hand a tensor from the root round the ring, to the rank before it."""
    return _chain(rank, ranks, size, first=root)


def ring_reduce(
    rank: int,
    ranks: int,
    root: int,
    size: int,
) -> Script:
    """Add a tensor up round the ring, from the rank behind the root to the root."""
    first = root + 1
    return _chain(rank, ranks, size, first=first)


def _chain(
    rank: int,
    ranks: int,
    size: int,
    *,
    first: int,
) -> Script:
    """Hand a tensor round the ring from the first rank to the one before it."""
    former_rank = (rank - 1) % ranks
    next_rank = (rank + 1) % ranks
    place = (rank - first) % ranks
    is_first = place == 0
    is_last = place == ranks - 1
    sizes = _cut(size, _STEP)
    pieces = _pieces_of(
        sizes,
        is_taken=not is_first,
        is_given=not is_last,
    )
    room = BUFFER // _STEP
    return hand_on([former_rank], [next_rank], pieces, room)


def parent_in_tree(rank: int, ranks: int) -> int | None:
    """Return the parent of a rank in NCCL's binary tree; None of the root, rank 0.

    Odd ranks are leaves. Who stands in the middle of 2k - 1 ranks is parent of those in
    the middle of its halves, where there are so many.
    """
    if rank == 0:
        return None
    lowest_bit = rank & -rank
    higher_bits = rank ^ lowest_bit
    next_bit = lowest_bit << 1
    parent = higher_bits | next_bit
    return parent if parent < ranks else higher_bits


def tree_all_reduce(rank: int, ranks: int, size: int) -> list[Lane]:
    """Sum two halves of a tensor up two trees, and hand each sum down.

    The second tree is the first one mirrored, or with an odd number of ranks shifted by
    one: who is a leaf in one is none in the other.
    """
    half = _whole_words(-(-size // 2))
    first_half = min(size, half)
    second_half = size - first_half
    first_ranks = [*range(ranks)]
    second_ranks = [*first_ranks[1:], 0]
    if ranks % 2 == 0:
        second_ranks = first_ranks[::-1]

    first_scripts = _scripts_of_tree(rank, first_ranks, first_half)
    second_scripts = _scripts_of_tree(rank, second_ranks, second_half)
    first_lanes = [Lane(script, channel=0) for script in first_scripts]
    second_lanes = [Lane(script, channel=1) for script in second_scripts]
    return first_lanes + second_lanes


def _scripts_of_tree(rank: int, ranks: Sequence[int], size: int) -> list[Script]:
    """Return what a rank does in a tree whose places ranks have in this order."""
    count = len(ranks)
    place = ranks.index(rank)
    piece = _tree_piece(count, size)
    sizes = _cut(size, piece)
    parent_place = parent_in_tree(place, count)
    children = _children_in_tree(place, ranks)
    room = BUFFER // _STEP

    if parent_place is None:
        pieces = _pieces_of(sizes, is_taken=True, is_given=True)
        turn = hand_on(children, children, pieces, room)
        return [turn]

    parent = ranks[parent_place]
    is_leaf = not children
    upwards = _pieces_of(sizes, is_taken=not is_leaf, is_given=True)
    downwards = _pieces_of(sizes, is_taken=True, is_given=not is_leaf)
    way_up = hand_on(children, [parent], upwards, room)
    way_down = hand_on([parent], children, downwards, room)
    return [way_up, way_down]


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
        wanted = levels * per_level
        while size / piece < wanted and piece > least:
            piece //= 2
    return piece


def exchange(
    rank: int,
    given: Sequence[int],
    taken: Sequence[int],
) -> Script:
    """Send to all and receive from all at once, as a group of sends and receives.

    ``given``, ``taken``: bytes to each rank and from each; its own are copied.
    """
    ranks = len(given)
    steps: list[Send | Receive] = []
    for distance in range(1, ranks):
        source = (rank - distance) % ranks
        target = (rank + distance) % ranks
        taken_size = taken[source]
        given_size = given[target]
        if taken_size:
            receive = Receive(source, taken_size)
            steps.append(receive)
        if given_size:
            send = Send(target, given_size)
            steps.append(send)

    posted = yield from _post_all(steps)
    yield Wait((*posted,))
