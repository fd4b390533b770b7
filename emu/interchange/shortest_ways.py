"""Ways of the least cost through a graph of named places (Dijkstra)."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass
class Way:
    """A way of the least cost."""

    cost: int
    places: list[str]
    """From the start to the end, both included."""
    is_tie: bool = False
    """True where another way costs as much."""


def shortest_ways(
    start: str, costs: Mapping[tuple[str, str], int], last: Collection[str] = ()
) -> dict[str, Way]:
    """Return a way from a place to each that it reaches.

    Of several ways of one cost the one found first is taken: places are looked at in
    the order of their cost, edges in the order in which they are stated.

    Parameters
    ----------
    costs
        Of edges, from one place to another, from 0 on.
    last
        Places that ways end at and do not run through.
    """
    neighbours = defaultdict[str, list[str]](list)
    for source, destination in costs:
        neighbours[source].append(destination)

    ways = {start: Way(0, [start])}
    queue = [(0, 0, start)]
    finished_places = set[str]()
    while queue:
        cost, _, place = heapq.heappop(queue)
        # A cheaper way to it was pushed later and has come up first.
        if place in finished_places:
            continue
        finished_places.add(place)
        # It is reached, and nothing is reached through it.
        if place != start and place in last:
            continue
        way_to_place = ways[place]
        for neighbour in neighbours[place]:
            total = cost + costs[place, neighbour]
            way = ways.get(neighbour)
            if way is None or total < way.cost:
                places = [*way_to_place.places, neighbour]
                # A way that runs through a tie is one of several, too.
                ways[neighbour] = Way(total, places, is_tie=way_to_place.is_tie)
                # The number between keeps ways of one cost in the order of finding.
                found_number = len(queue) + len(finished_places)
                entry = (total, found_number, neighbour)
                heapq.heappush(queue, entry)
            # Back over an edge of no cost is no other way.
            elif total == way.cost and neighbour not in finished_places:
                way.is_tie = True
    return ways
