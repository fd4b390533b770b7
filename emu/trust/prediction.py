"""Judge a prediction: did the run do what the model said, and if not, where and why.

The verdict on the measurement (`emu.trust.verdict`) says whether a number stands. This
one compares the number with the model: a run may be trusted and differ. With packets
there are three witnesses of a makespan: rates, packets and a run; who agrees with whom.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.prediction.analysis.critical_path import divergences
from emu.prediction.simulation import makespan
from emu.problem import Realization, Schedule
from emu.trust.rate_audit import shares_of_max_min
from emu.units import format_size

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

if TYPE_CHECKING:
    #: Edge and iteration.
    _Flow = tuple[int, int]
    #: Bytes that a flow carried, and those that max-min rates give it.
    _Shares = Mapping[_Flow, tuple[float, float]]

#: Share of what moved the end that a link or a reason has at least, to be named.
SHARE = 0.2
#: Wall seconds below which a flow at its links' rate is over before TCP has grown to
#: that rate: five rounds through a queue of 20 ms.
_SMALL = 0.1
#: Share of its rate that a flow alone on all its links has at least, on a sound NIC,
#: and of max-min rates that flows beside others carry together, on a full link.
_SOUND = 0.97
#: Late flows whose shares are computed, those that lost the most.
_MOST = 8
_OTHER_TIMES = "tasks took other times than predicted, or flows other volumes"
#: Causes of a budget that are of the network, or of no part of the run.
_OF_OTHERS = ("kernel network", "rates of others", "other paths")
#: Share of a difference that a cause must explain to be named.
LEAST = 0.5
#: Reasons where none does.
NO_REASON = ("cause not found",)


class Outcome(StrEnum):
    """Outcome of a prediction."""

    AGREES = "agrees"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    """A lab in which no iterations were found."""


@dataclass(frozen=True)
class Prediction:
    """A prediction beside the run that followed it."""

    outcome: Outcome
    error: float | None
    """Makespan of the run over the predicted one, minus 1; over the one of a simulation
    of its own times and volumes where no times were predicted, or if that is more. Of a
    lab likewise of seconds per iteration; None where they are not known."""
    threshold: float
    """Share by which the two may differ."""
    since: float | None = None
    """Seconds at which the first task ended so far off; None where they agree."""
    links: tuple[str, ...] = ()
    """Links of the flows that moved the end, the most first."""
    reasons: tuple[str, ...] = ()
    """The cause that explains most of it, a sentence; of witnesses what stands beside
    it."""

    def to_json(self) -> dict[str, Any]:
        """Return the form of result.json."""
        return {
            **vars(self),
            "outcome": str(self.outcome),
            "links": list(self.links),
            "reasons": list(self.reasons),
        }


def judge_prediction(
    emulated: Schedule,
    predicted: Schedule,
    replayed: Schedule,
    *,
    threshold: float,
    time_scale: float,
    timed: bool = True,
    budget: Mapping[str, float],
    policy: str = "maxmin",
    nics: Mapping[str, float] = MappingProxyType({}),
) -> Prediction:
    """Return the verdict on a prediction.

    Parameters
    ----------
    predicted, replayed
        Simulations of what was expected, and of the run's own times and volumes.
    threshold
        Share of the makespan.
    timed
        Whether times were predicted; else ``replayed`` alone counts.
    budget
        Of `emu.prediction.analysis.critical_path`.
    policy
        Rule by which causes are simulated.
    nics
        Shares of their stated rates that links were measured at before the run.
    """
    simulations = [replayed, predicted] if timed else [replayed]
    errors = [emulated.error_over(simulation) for simulation in simulations]
    place = _place_of_headline(errors, threshold)
    error = errors[place]
    simulation = simulations[place]
    if abs(error) <= threshold:
        # The headline, though the other simulation may be farther off.
        return Prediction(outcome=Outcome.AGREES, error=errors[-1], threshold=threshold)

    difference = emulated.makespan - simulation.makespan
    # The replay has the run's own times and volumes: what is left between them is of
    # the network.
    by_network = emulated.length - replayed.length
    is_by_network = abs(by_network) > SHARE * abs(difference)
    late = _late_flows(emulated, replayed, by_network) if is_by_network else []
    drifts = [(edge, seconds) for (edge, _), seconds in late]
    links = links_to_blame(emulated, drifts, SHARE * abs(by_network))

    own_causes = _list_own_causes(budget)
    by_times = replayed.makespan - simulation.makespan
    causes = [Cause(_OTHER_TIMES, by_times), *own_causes]
    if is_by_network and by_network > 0:
        late.sort(key=lambda drift: -abs(drift[1]))
        flows = [flow for flow, _ in late]
        suspects = of_network(emulated, links, flows, time_scale, nics)
        # The causes of the run's own parts are measured, those of the network tried.
        # Gains of one part do not give the network more to explain.
        losses = [cause.seconds for cause in own_causes if cause.seconds > 0]
        most = by_network - math.fsum(losses)
        causes += simulate_suspects(emulated, replayed, policy, suspects, most)
    # Since the first task that ended so far off, whatever came later.
    off = np.abs(emulated.task_end - simulation.task_end)
    is_off = off > threshold * simulation.length
    since = np.min(emulated.task_end, initial=emulated.length, where=is_off)
    return Prediction(
        outcome=Outcome.DIFFERS,
        error=error,
        threshold=threshold,
        since=float(since),
        links=tuple(links),
        reasons=largest_cause(causes, difference),
    )


def _place_of_headline(errors: list[float], threshold: float) -> int:
    """Return which error counts: that of what was said before the run, the last.

    Unless it hides that another is larger.
    """
    worst = max(range(len(errors)), key=lambda place: (abs(errors[place]), place))
    is_headline = abs(errors[-1]) > threshold
    return len(errors) - 1 if is_headline else worst


def _late_flows(
    emulated: Schedule, replayed: Schedule, by_network: float
) -> list[tuple[_Flow, float]]:
    """Return the flows that moved the end as it moved, and seconds of each."""
    return [
        ((drift.link.edge, drift.link.iteration), drift.seconds)
        for drift in divergences(emulated, replayed)
        if drift.link.edge >= 0 and drift.seconds * by_network > 0
    ]


class Cause(NamedTuple):
    """A cause that may be, and the seconds by which it moves the end."""

    sentence: str
    seconds: float


def _list_own_causes(budget: Mapping[str, float]) -> list[Cause]:
    """Return the causes that are neither of the network nor of no part of the run."""
    return [
        Cause(name, seconds)
        for name, seconds in budget.items()
        if name not in _OF_OTHERS
    ]


class Suspect(NamedTuple):
    """A cause that may have made some flows late."""

    sentence: str
    flows: Ints
    """(edge, iteration) of each, shape (flows, 2)."""


def largest_cause(causes: Iterable[Cause], off: float) -> tuple[str, ...]:
    """Return the cause that explains most of a difference, and `LEAST` of it, in words.

    One that moves the end the other way explains nothing of it.
    """
    most = max(causes, key=lambda cause: cause.seconds / off)
    if most.seconds / off < LEAST:
        return NO_REASON
    return (f"{most.sentence}: {100 * most.seconds / off:.0f} % of the difference",)


def simulate_suspects(
    emulated: Schedule,
    replayed: Schedule,
    policy: str,
    suspects: Iterable[Suspect],
    most: float,
) -> Iterator[Cause]:
    """Yield what each suspect moves the end by: its late flows have as many more bytes.

    So they take as long as in the run, and those behind them on their edges wait. At
    most ``most``: what is measured to be of others is not the network's.
    """
    # The quotas of the replay: a tuner that chose anew would move the end, too.
    problem = replayed.problem.following(replayed)
    # What was never sent brings no bytes to the simulation.
    volumes = np.nan_to_num(replayed.flow_bytes)
    end = makespan(problem, Realization(replayed.work, volumes), policy)
    length = emulated.flow_end - emulated.flow_start
    ideal = replayed.flow_end - replayed.flow_start
    slowness = np.divide(length, ideal, out=np.ones_like(ideal), where=ideal > 0)

    for sentence, flows in suspects:
        late = tuple(flows.T)
        longer = volumes.copy()
        # Flows that were faster than simulated stay: only losses are to be explained.
        longer[late] *= np.maximum(slowness[late], 1.0)
        late_end = makespan(problem, Realization(replayed.work, longer), policy)
        yield Cause(sentence, min(late_end - end, most))


def links_to_blame(
    emulated: Schedule, late: list[tuple[int, float]], least: float
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
    size = emulated.flow_bytes[tuple(flows.T)]
    for port, rows in _rows_by_port(emulated, flows).items():
        busy[port] = size[rows].sum() / problem.links[port].capacity

    most = sorted(losses, key=lambda port: (-losses[port], -busy[port]))
    return [problem.links[port].name for port in most if losses[port] >= least]


def of_network(
    emulated: Schedule,
    links: list[str],
    late: list[tuple[int, int]],
    time_scale: float,
    nics: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Suspect]:
    """Yield what the network may have done to flows over ``links``, by what they did.

    ``late``: (edge, iteration) of the flows that moved the end, those that did most
    first. ``nics``: of `judge_prediction`: a link that was measured to be sound is not
    below its rate, whatever flows did there.
    """
    problem = emulated.problem
    flows = emulated.flows()
    rows_by_port = _rows_by_port(emulated, flows)
    ports = {link.name: port for port, link in enumerate(problem.links)}
    lone = lone_rates(emulated)
    # Rates that were assigned are others than max-min's.
    by_capture = emulated.rates is None and bool(late)
    shares = shares_of_max_min(emulated, {*late[:_MOST]}) if by_capture else {}

    # By the rows of flows, as bytes.
    slow: defaultdict[bytes, list[str]] = defaultdict(list)
    for name in links:
        port = ports[name]
        crossing = rows_by_port[port]
        # The median: one lone flow may be late for a reason of its own.
        is_slow = median(lone.get(port, [1.0])) < _SOUND
        # A link below its rate explains whatever else is to be seen there.
        if is_slow and nics.get(name, 0.0) < _SOUND:
            slow[crossing.tobytes()].append(name)
        elif senders := _incast(emulated, port, flows[crossing], shares):
            text = f"incast on {name}: up to {senders} machines sent to it at once"
            yield Suspect(text, flows[crossing])
    for names in slow.values():  # of the same flows: none says which it is
        port = ports[names[0]]
        share = median(lone[port])
        text = (
            f"{' or '.join(names)} is below its stated rate: flows alone on their way "
            f"had {100 * share:.3g} % of it"
        )
        yield Suspect(text, flows[rows_by_port[port]])
    yield from _of_shares(emulated, links, late[:_MOST], shares)
    yield from _of_slow_start(emulated, flows, late, time_scale)


def _incast(emulated: Schedule, port: int, flows: Ints, shares: _Shares) -> int:
    """Return how many machines sent at once to a link that was not full, or 0.

    ``flows``: (edge, iteration) of those over the link.
    """
    problem = emulated.problem
    # Many senders meet at the NIC of their receiver.
    if problem.links[port].direction != "in":
        return 0
    senders = most_senders(emulated, flows)
    volume = 0.0
    fair = 0.0
    for (edge, _), (got, share) in shares.items():
        if port in problem.hops[edge]:
            volume += got
            fair += share
    # Without shares the link counts as not full: nothing says that it was.
    is_full = volume / (fair or math.inf) >= _SOUND
    return senders if senders > 1 and not is_full else 0


def _of_slow_start(
    emulated: Schedule, flows: Ints, late: list[_Flow], time_scale: float
) -> Iterator[Suspect]:
    """Yield the small flows, where most of the late ones are small."""
    sizes = emulated.flow_bytes[tuple(flows.T)]
    is_small = sizes / _narrowest(emulated, flows) * time_scale < _SMALL
    small = flows[is_small]
    small_and_late = len({*map(tuple, small.tolist())} & {*late})
    if 2 * small_and_late > len(late):
        size = float(sizes[is_small].max())
        share = f"{small_and_late} of {len(late)} on the critical path"
        have = f"have {format_size(size)} or less"
        yield Suspect(f"slow start of small flows: {share} {have}", small)


def _of_shares(
    emulated: Schedule, links: list[str], late: list[_Flow], shares: _Shares
) -> Iterator[Suspect]:
    """Yield the late flows that lost to one beside them on one of the links."""
    hops = emulated.problem.hops
    start = emulated.flow_start
    end = emulated.flow_end
    ports = {link.name: port for port, link in enumerate(emulated.problem.links)}
    pairs = []
    for flow in late:
        got, fair = shares.get(flow, (0.0, 0.0))
        for neighbour, (other_got, other_fair) in shares.items():
            met = set(hops[flow[0]]).intersection(hops[neighbour[0]])
            common = [name for name in links if ports[name] in met]
            begins_before = start[flow] < end[neighbour]
            ends_after = start[neighbour] < end[flow]
            if common and begins_before and ends_after:
                # What one lost is laid to the other only as far as that one won.
                loss = min(fair - got, other_got - other_fair)
                pairs.append((loss, flow, neighbour, common[0]))
    if not pairs:
        return

    _, loser, winner, link = max(pairs)
    got, fair = shares[loser]
    loser_part = got / fair
    got, fair = shares[winner]
    winner_part = got / fair
    if loser_part < _SOUND and winner_part > 1 / _SOUND:
        names = emulated.problem.job.edge_names
        text = (
            f"unequal shares of {link}: {names[loser[0]]} had {100 * loser_part:.3g} % "
            f"of its max-min share in iteration {loser[1]}, {names[winner[0]]} beside "
            f"it {100 * winner_part:.3g} %"
        )
        flows = emulated.flows()
        yield Suspect(text, flows[_rows_by_port(emulated, flows)[ports[link]]])


def _rows_by_port(emulated: Schedule, flows: Ints) -> dict[int, Ints]:
    """Return which of ``flows``, (edge, iteration) each, cross every port."""
    hops = emulated.problem.hops
    edge_of = flows[:, 0]
    counts = np.array([len(ports) for ports in hops], np.int64)
    hop_count = counts[edge_of]
    first_hop = (np.cumsum(counts) - counts)[edge_of]
    port_of_hop = np.fromiter(chain.from_iterable(hops), np.int64)

    # Every crossing of a flow: its row, and the place of its hop among all.
    rows = np.repeat(np.arange(len(flows)), hop_count)
    rows_before = np.repeat(np.cumsum(hop_count) - hop_count, hop_count)
    place = np.repeat(first_hop, hop_count) + np.arange(len(rows)) - rows_before
    port = port_of_hop[place]

    # Stable: rows of a port rise.
    order = np.argsort(port, kind="stable")
    ports, starts = np.unique(port[order], return_index=True)
    parts = np.split(rows[order], starts[1:])
    return dict(zip(ports.tolist(), parts, strict=False))


def _narrowest(emulated: Schedule, flows: Ints) -> Floats:
    """Return mean bytes/s that the narrowest link on each flow's way had meanwhile."""
    start = emulated.flow_start[tuple(flows.T)]
    end = emulated.flow_end[tuple(flows.T)]
    narrowest = np.full(len(flows), np.inf)
    for port, rows in _rows_by_port(emulated, flows).items():
        means = _means_of(emulated, port, start[rows], end[rows])
        narrowest[rows] = np.minimum(narrowest[rows], means)
    return narrowest


def _means_of(emulated: Schedule, port: int, start: Floats, end: Floats) -> Floats:
    """Return the mean capacity of a link from each start to its end; its most if 0."""
    steps = emulated.problem.links.steps
    _, capacities = steps.of(port)
    means = np.full(len(start), capacities.max())
    if len(capacities) == 1:
        return means
    carried = steps.carry(port, end) - steps.carry(port, start)
    # A link that was cut all the while carried nothing, and 0 is no rate to divide by.
    is_known = (end > start) & (carried > 0)
    np.divide(carried, end - start, out=means, where=is_known)
    return means


def lone_rates(emulated: Schedule) -> dict[int, list[float]]:
    """Return shares of the narrowest rate that lone flows had, by link."""
    flows = emulated.flows()
    start = emulated.flow_start[tuple(flows.T)]
    end = emulated.flow_end[tuple(flows.T)]
    size = emulated.flow_bytes[tuple(flows.T)]

    # A flow of no length or of no bytes has no rate.
    is_alone = (end > start) & (size > 0)
    for rows in _rows_by_port(emulated, flows).values():
        # Those that begin before it ends, less those of them that end before it begins.
        starts = start[rows]
        ends = end[rows]
        start_counts = np.searchsorted(np.sort(starts), ends, "left")
        over = np.searchsorted(np.sort(ends), starts, "right")
        is_alone[rows] &= start_counts - over == 1  # itself

    flows = flows[is_alone]
    start = start[is_alone]
    end = end[is_alone]
    narrowest = _narrowest(emulated, flows)
    shares = size[is_alone] / (end - start) / narrowest
    rates = {}
    for port, rows in _rows_by_port(emulated, flows).items():
        # A link that is wider than another on the way was not tried.
        means = _means_of(emulated, port, start[rows], end[rows])
        tried = rows[means <= narrowest[rows]]
        if tried.size:
            rates[port] = shares[tried].tolist()
    return rates


def most_senders(emulated: Schedule, flows: Ints) -> int:
    """Return the most machines that sent at once, of those that send ``flows``.

    ``flows``: (edge, iteration) of each, those over one link.
    """
    problem = emulated.problem
    # Flows without bytes hold no sender's NIC.
    flows = flows[emulated.flow_bytes[tuple(flows.T)] > 0]
    if not len(flows):
        return 0
    start = emulated.flow_start[tuple(flows.T)]
    end = emulated.flow_end[tuple(flows.T)]
    source = np.array([edge.source for edge in problem.job.edges])[flows[:, 0]]
    machine = np.array(problem.placement.machine_of)[source]

    # A machine sends from where its first flow begins to where its last one ends: of
    # its flows in the order of their starts, from one that none before it reaches.
    order = np.lexsort((start, machine))
    changes = []
    for rows in np.split(order, np.flatnonzero(np.diff(machine[order])) + 1):
        last_end = np.maximum.accumulate(end[rows])
        is_first = np.append(True, start[rows][1:] > last_end[:-1])
        is_last = np.append(is_first[1:], True)
        changes += [(start[rows][is_first], 1), (last_end[is_last], -1)]
    times = np.concatenate([moments for moments, _ in changes])
    steps = np.repeat([step for _, step in changes], [len(m) for m, _ in changes])
    # Ends sort before starts of the same instant.
    sending = np.cumsum(steps[np.lexsort((steps, times))])
    return int(sending.max())
