"""Parts of the stated rates that links, and the flows over them, had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from statistics import median
from typing import NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints
from emu.problem import Schedule
from emu.trust.fair_shares import shares_of_max_min

#: Edge and iteration.
Flow: TypeAlias = tuple[int, int]

#: Share of its rate that a flow alone on all its links has at least, on a sound NIC,
#: and of max-min rates that flows beside others carry together, on a full link.
SOUND = 0.97
#: Share of its length in which a flow counts as moving at least.
_LEAST_MOVING = 0.1
#: Late flows whose shares are computed, those that lost the most.
_MOST = 64


class Share(NamedTuple):
    """Bytes that a flow carried, and those that max-min rates give it meanwhile."""

    carried: float
    fair: float

    @property
    def lost(self) -> float:
        """Bytes that it carried less; below 0 for more."""
        return self.fair - self.carried

    @property
    def part(self) -> float:
        """Part of its share that it carried."""
        return self.carried / self.fair


Shares: TypeAlias = Mapping[Flow, Share]


class SlowLinks(NamedTuple):
    """Links that the same flows cross, and which carry less than is stated, or more."""

    sentence: str
    flows: Ints
    """(edge, iteration) of each, shape (flows, 2)."""
    ports: list[int]
    share: float
    """Part of the stated rate."""


class UnequalShares(NamedTuple):
    """Flows that lost bytes to others on a link, while both were under way."""

    sentence: str
    flows: Ints
    """All that cross the link."""
    lost: dict[Flow, float]
    """Bytes that a flow carried less than its max-min share; below 0 for more."""


def links_to_blame(
    emulated: Schedule,
    late: list[tuple[int, float]],
    least: float,
) -> list[str]:
    """Return the links whose flows lost so many seconds, the most first.

    Of links that lost the same, the one that has more to carry comes first.

    ``late``: edge of each flow, and seconds that it lost, or won.
    """
    problem = emulated.problem
    losses: defaultdict[int, float] = defaultdict(float)
    for edge, seconds in late:
        for port in problem.hops[edge]:
            losses[port] += abs(seconds)
    # Seconds at full rate, which compare links of unequal widths.
    busy = np.zeros(len(problem.links))
    flows = emulated.flows()
    edge, iteration = flows.T
    size = emulated.flow_bytes[edge, iteration]
    rows_by_port = _rows_by_port(emulated, flows)
    for port, rows in rows_by_port.items():
        total = size[rows].sum()
        busy[port] = total / problem.links[port].capacity

    def rank(port: int) -> tuple[float, float]:
        return losses[port], busy[port]

    ports = sorted(losses, key=rank, reverse=True)
    return [problem.links[port].name for port in ports if losses[port] >= least]


def max_min_shares(
    emulated: Schedule,
    late: list[Flow],
    stalls: Floats,
) -> Shares:
    """Return what flows carried, and their max-min share, without their stalls.

    ``late``: flows that moved the end, those that did most first; ``stalls``: seconds
    of (edge, iteration) in which a flow was held up by something else. Nothing where
    rates were assigned, which are others.
    """
    if emulated.rates is not None or not late:
        return {}
    length = emulated.flow_end - emulated.flow_start
    lost_most = set(late[:_MOST])
    fair_shares = shares_of_max_min(emulated, lost_most)
    shares = {}
    for flow, (carried, fair) in fair_shares.items():
        stalled = stalls[flow] / length[flow]
        moving = max(1.0 - stalled, 0.0)
        if moving > 0:
            shares[flow] = Share(carried, fair * moving)
    return shares


def slow_links(
    emulated: Schedule,
    links: list[str],
    shares: Shares,
    stalls: Floats,
    nics: Mapping[str, float],
) -> Iterator[SlowLinks]:
    """Yield those of ``links`` that flows found below their stated rate.

    By flows alone on their way; where none was, by what those beside each other carried
    together. ``nics``: shares of their stated rates that links were measured at before
    the run: one that was sound then is not below its rate.
    """
    problem = emulated.problem
    flows = emulated.flows()
    rows_by_port = _rows_by_port(emulated, flows)
    lone = lone_rates(emulated, stalls)

    # By the rows of flows, as bytes: of the same flows none says which link it is.
    slow: defaultdict[bytes, list[int]] = defaultdict(list)
    found: dict[int, tuple[float, str]] = {}
    for name in links:
        port = _port_of(emulated, name)
        if port in lone:
            # The median: one lone flow may be late for a reason of its own.
            share = median(lone[port])
            which = "flows alone on their way"
        else:
            share = _share_together(emulated, port, shares)
            which = "flows together"
        found[port] = share, which
        if share < SOUND and nics.get(name, 0.0) < SOUND:
            crossing_rows = rows_by_port[port].tobytes()
            slow[crossing_rows].append(port)

    for alike in slow.values():
        first_port = alike[0]
        share, which = found[first_port]
        names = " or ".join(problem.links[port].name for port in alike)
        text = (
            f"{names} is below its stated rate: {which} had {100 * share:.3g} % of it"
        )
        yield SlowLinks(
            sentence=text,
            flows=flows[rows_by_port[first_port]],
            ports=alike,
            share=share,
        )


def _share_together(emulated: Schedule, port: int, shares: Shares) -> float:
    """Return what flows over a link carried of what max-min rates give them all."""
    hops = emulated.problem.hops
    crossing = []
    for (edge, _), share in shares.items():
        if port in hops[edge]:
            crossing.append(share)
    fair = sum(share.fair for share in crossing)
    carried = sum(share.carried for share in crossing)
    if not fair:
        return 1.0
    return carried / fair


class _Pair(NamedTuple):
    """Flows that met on a link, and the bytes that one lost and the other won."""

    loss: float
    loser: Flow
    winner: Flow
    link: str


def unequal_shares(
    emulated: Schedule,
    links: list[str],
    late: list[Flow],
    shares: Shares,
) -> Iterator[UnequalShares]:
    """Yield the flows over one of the links, where a late one lost to one beside it."""
    pairs = _list_pairs(emulated, links, late, shares)
    if not pairs:
        return

    worst = max(pairs)
    of_loser = shares[worst.loser]
    of_winner = shares[worst.winner]
    if of_loser.part >= SOUND or of_winner.part <= 1 / SOUND:
        return

    names = emulated.problem.job.edge_names
    edge, iteration = worst.loser
    winner_edge, _ = worst.winner
    text = (
        f"unequal shares of {worst.link}: {names[edge]} had "
        f"{100 * of_loser.part:.3g} % of its max-min share in iteration {iteration}, "
        f"{names[winner_edge]} beside it {100 * of_winner.part:.3g} %"
    )
    port = _port_of(emulated, worst.link)
    hops = emulated.problem.hops
    lost = {}
    for flow, share in shares.items():
        if port in hops[flow[0]]:
            lost[flow] = share.lost

    flows = emulated.flows()
    rows = _rows_by_port(emulated, flows)[port]
    yield UnequalShares(text, flows[rows], lost)


def _list_pairs(
    emulated: Schedule,
    links: list[str],
    late: list[Flow],
    shares: Shares,
) -> list[_Pair]:
    """Return late flows with those that they met on one of the links."""
    pairs = []
    for loser in late[:_MOST]:
        if loser not in shares:
            continue

        lost = shares[loser].lost
        for winner, share in shares.items():
            link = _common_link(emulated, links, loser, winner)
            if link:
                # What one lost is laid to the other only as far as that one won.
                loss = min(lost, -share.lost)
                pair = _Pair(
                    loss=loss,
                    loser=loser,
                    winner=winner,
                    link=link,
                )
                pairs.append(pair)
    return pairs


def _common_link(
    emulated: Schedule,
    links: list[str],
    flow: Flow,
    neighbour: Flow,
) -> str:
    """Return the first of ``links`` on which two flows met, or nothing."""
    start = emulated.flow_start
    end = emulated.flow_end
    begins_before = start[flow] < end[neighbour]
    ends_after = start[neighbour] < end[flow]
    if not (begins_before and ends_after):
        return ""

    hops = emulated.problem.hops
    edge, _ = flow
    edge_of_neighbour, _ = neighbour
    met = set(hops[edge]).intersection(hops[edge_of_neighbour])
    for name in links:
        if _port_of(emulated, name) in met:
            return name
    return ""


def _port_of(emulated: Schedule, name: str) -> int:
    names = [link.name for link in emulated.problem.links]
    return names.index(name)


def _rows_by_port(emulated: Schedule, flows: Ints) -> dict[int, Ints]:
    """Return which of ``flows``, (edge, iteration) each, cross every port."""
    hops = emulated.problem.hops
    edge_of = flows[:, 0]
    counts = np.array([len(ports) for ports in hops], np.int64)
    hops_before = np.cumsum(counts) - counts
    hop_count = counts[edge_of]
    first_hop = hops_before[edge_of]
    port_of_hop = np.fromiter(chain.from_iterable(hops), np.int64)

    # Every crossing of a flow: its row, and the place of its hop among all.
    rows = np.repeat(np.arange(len(flows)), hop_count)
    rows_before = np.cumsum(hop_count) - hop_count
    first_row = np.repeat(rows_before, hop_count)
    number_of_hop = np.arange(len(rows)) - first_row
    place = np.repeat(first_hop, hop_count) + number_of_hop
    port = port_of_hop[place]

    # Stable: rows of a port rise.
    order = np.argsort(port, kind="stable")
    ports, starts = np.unique(port[order], return_index=True)
    parts = np.split(rows[order], starts[1:])
    return dict(zip(ports.tolist(), parts, strict=False))


def _narrowest(emulated: Schedule, flows: Ints) -> Floats:
    """Return mean bytes/s that the narrowest link on each flow's way had meanwhile."""
    edge, iteration = flows.T
    start = emulated.flow_start[edge, iteration]
    end = emulated.flow_end[edge, iteration]
    narrowest = np.full(len(flows), np.inf)
    rows_by_port = _rows_by_port(emulated, flows)
    for port, rows in rows_by_port.items():
        means = _means_of(
            emulated,
            port,
            start=start[rows],
            end=end[rows],
        )
        narrowest[rows] = np.minimum(narrowest[rows], means)
    return narrowest


def _means_of(
    emulated: Schedule,
    port: int,
    start: Floats,
    end: Floats,
) -> Floats:
    """Return the mean capacity of a link from each start to its end; its most if 0."""
    steps = emulated.problem.links.steps
    _, capacities = steps.of(port)
    means = np.full(len(start), capacities.max())
    if len(capacities) == 1:
        return means

    carried = steps.carry(port, end) - steps.carry(port, start)
    # Nothing is carried in no time. A link that was cut all the while carried nothing,
    # either, and 0 is no rate to divide by.
    is_known = carried > 0
    seconds = end - start
    np.divide(carried, seconds, out=means, where=is_known)
    return means


def lone_rates(
    emulated: Schedule, stalls: Floats | None = None
) -> dict[int, list[float]]:
    """Return shares of the narrowest rate that lone flows had, by link.

    ``stalls``: seconds of (edge, iteration) that do not count.
    """
    flows = emulated.flows()
    edge, iteration = flows.T
    start = emulated.flow_start[edge, iteration]
    end = emulated.flow_end[edge, iteration]
    size = emulated.flow_bytes[edge, iteration]

    # A flow of no length or of no bytes has no rate.
    takes_time = end > start
    is_alone = takes_time & (size > 0)
    for rows in _rows_by_port(emulated, flows).values():
        # Those that begin before it ends, less those of them that end before it begins.
        starts = start[rows]
        ends = end[rows]
        sorted_starts = np.sort(starts)
        start_counts = np.searchsorted(sorted_starts, ends, "left")
        over = np.searchsorted(np.sort(ends), starts, "right")
        is_alone[rows] &= start_counts - over == 1  # itself

    flows = flows[is_alone]
    start = start[is_alone]
    end = end[is_alone]
    narrowest = _narrowest(emulated, flows)
    seconds = end - start
    if stalls is not None:
        stalled = stalls[edge[is_alone], iteration[is_alone]]
        # All of it held up says nothing of a rate.
        seconds = np.maximum(seconds - stalled, _LEAST_MOVING * seconds)
    rate = size[is_alone] / seconds
    shares = rate / narrowest
    rates = {}
    rows_by_port = _rows_by_port(emulated, flows)
    for port, rows in rows_by_port.items():
        # A link that is wider than another on the way was not tried.
        means = _means_of(
            emulated,
            port,
            start=start[rows],
            end=end[rows],
        )
        tried = rows[means <= narrowest[rows]]
        if tried.size:
            rates[port] = shares[tried].tolist()
    return rates
