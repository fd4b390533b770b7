"""Cutting a flat vector into parts of equal size, as ``numpy.array_split`` does."""

from __future__ import annotations

from itertools import accumulate, pairwise


def shard_sizes(parameters: int, servers: int) -> tuple[int, ...]:
    """Return the parameters in each part: of a server, or a chunk of an all-reduce."""
    size, longer = divmod(parameters, servers)
    return tuple(size + (server < longer) for server in range(servers))


def shard_bounds(count: int, servers: int) -> list[tuple[int, int]]:
    """Return where each part begins, and where the next one does (A14)."""
    bounds = [0, *accumulate(shard_sizes(count, servers))]
    return list(pairwise(bounds))
