"""Judge a prediction: did the run do what the model said, and if not, where and why.

The verdict on the measurement (`emu.trust.verdict`) says whether a number stands. This
one compares the number with the model: a run may be trusted and differ. With packets
there are three witnesses of a makespan: rates, packets and a run; who agrees with whom.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.prediction.analysis.critical_path import critical_path, divergences
from emu.prediction.simulation import makespan
from emu.problem import Realization, Schedule
from emu.trust.rate_audit import shares_of_max_min
from emu.units import format_size

if TYPE_CHECKING:
    from emu.trust.verdict import Verdict

    Shares = Mapping[tuple[int, int], tuple[float, float]]

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
        lists = {"links": list(self.links), "reasons": list(self.reasons)}
        return {**vars(self), "outcome": str(self.outcome), **lists}


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
    beside = [replayed, *([predicted] if timed else [])]
    errors = [emulated.error_over(other) for other in beside]
    worst = max(range(len(errors)), key=lambda i: (abs(errors[i]), i))
    # What was said before the run is the headline, unless it hides a difference.
    place = len(errors) - 1 if abs(errors[-1]) > threshold else worst
    error = errors[place]
    other = beside[place]
    if abs(error) <= threshold:
        return Prediction(Outcome.AGREES, errors[-1], threshold)
    apart = emulated.length - replayed.length
    off = emulated.makespan - other.makespan
    by_network = abs(apart) > SHARE * abs(off)
    late = [
        drift
        for drift in divergences(emulated, replayed)
        if by_network and drift.link.edge >= 0 and drift.seconds * apart > 0
    ]
    drifts = [(drift.link.edge, drift.seconds) for drift in late]
    links = links_to_blame(emulated, drifts, SHARE * abs(apart))
    causes = [Cause(_OTHER_TIMES, replayed.makespan - other.makespan)]
    causes += [Cause(name, of) for name, of in budget.items() if name not in _OF_OTHERS]
    if by_network and apart > 0:
        late.sort(key=lambda drift: -abs(drift.seconds))
        flows = [(drift.link.edge, drift.link.iteration) for drift in late]
        own = math.fsum(one.seconds for one in causes[1:] if one.seconds > 0)
        suspects = of_network(emulated, links, flows, time_scale, nics)
        causes += simulate_suspects(emulated, replayed, policy, suspects, apart - own)
    # Since the first task that ended so far off, whatever came later.
    wrong = np.abs(emulated.task_end - other.task_end) > threshold * other.length
    return Prediction(
        Outcome.DIFFERS,
        error,
        threshold,
        float(np.min(emulated.task_end, initial=emulated.length, where=wrong)),
        tuple(links),
        largest_cause(causes, off),
    )


class Cause(NamedTuple):
    """A cause that may be, and the seconds by which it moves the end."""

    sentence: str
    seconds: float


class Suspect(NamedTuple):
    """A cause that may have made some flows late, (edge, iteration) each."""

    sentence: str
    flows: Collection[tuple[int, int]]


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
    problem = replayed.problem.following(replayed)
    volumes = np.nan_to_num(replayed.flow_bytes)
    base = makespan(problem, Realization(replayed.work, volumes), policy)
    length, ideal = (one.flow_end - one.flow_start for one in (emulated, replayed))
    took = np.divide(length, ideal, out=np.ones_like(ideal), where=ideal > 0)
    for sentence, flows in suspects:
        at = tuple(np.array([*flows]).reshape(-1, 2).T)
        slow = volumes.copy()
        slow[at] *= np.maximum(took[at], 1.0)
        end = makespan(problem, Realization(replayed.work, slow), policy)
        yield Cause(sentence, min(end - base, most))


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
    busy = np.zeros(len(problem.links))
    for edge, n in emulated.flows().tolist():
        for port in problem.hops[edge]:
            busy[port] += emulated.flow_bytes[edge, n] / problem.links[port].capacity
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
    every = [(e, n) for e, n in emulated.flows().tolist()]
    ports = {link.name: port for port, link in enumerate(problem.links)}
    slow = lone_rates(emulated)
    # Rates that were assigned are others than max-min's.
    by_capture = emulated.rates is None and bool(late)
    shares = shares_of_max_min(emulated, {*late[:_MOST]}) if by_capture else {}
    lone: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for name in links:
        port = ports[name]
        of = problem.links[ports[name]]
        there = tuple(flow for flow in every if port in problem.hops[flow[0]])
        if np.median(slow.get(port, 1.0)) < _SOUND and nics.get(name, 0.0) < _SOUND:
            lone.setdefault(there, []).append(name)
            continue  # which explains whatever else is to be seen there
        senders = most_senders(emulated, port)
        both = [shares[flow] for flow in shares if port in problem.hops[flow[0]]]
        fair = sum(share for _, share in both) or math.inf
        full = sum(got for got, _ in both) / fair >= _SOUND
        if of.direction == "in" and senders > 1 and not full:
            text = f"incast on {name}: up to {senders} machines sent to it at once"
            yield Suspect(text, there)
    for there, names in lone.items():  # of the same flows: none says which it is
        share = float(np.median(slow[ports[names[0]]]))
        yield Suspect(
            f"{' or '.join(names)} is below its stated rate: flows alone on their way "
            f"had {100 * share:.3g} % of it",
            there,
        )
    yield from _of_shares(emulated, links, late[:_MOST], shares)
    sizes = emulated.flow_bytes
    took = {flow: sizes[flow] / _narrowest(emulated, *flow) for flow in every}
    small = [flow for flow in every if took[flow] * time_scale < _SMALL]
    if 2 * len({*small} & {*late}) > len(late):
        size = max(float(sizes[flow]) for flow in small)
        them = f"{len({*small} & {*late})} of {len(late)} on the critical path"
        text = f"slow start of small flows: {them} have {format_size(size)} or less"
        yield Suspect(text, small)


def _of_shares(
    emulated: Schedule, links: list[str], late: list[tuple[int, int]], shares: Shares
) -> Iterator[Suspect]:
    """Yield the late flows that lost to one beside them on one of the links."""
    problem = emulated.problem
    names = emulated.problem.job.edge_names
    start = emulated.flow_start
    end = emulated.flow_end
    ports = {link.name: port for port, link in enumerate(problem.links)}
    pairs = []
    for flow in late:
        for other, (got, fair) in shares.items():
            loss = shares[flow][1] - shares[flow][0] if flow in shares else 0.0
            at = [x for x in links if ports[x] in problem.hops[flow[0]]]
            at = [x for x in at if ports[x] in problem.hops[other[0]]]
            if at and start[flow] < end[other] and start[other] < end[flow]:
                pairs.append((min(loss, got - fair), flow, other, at[0]))
    if not pairs:
        return
    _, flow, other, link = max(pairs)
    one, two = (shares[each][0] / shares[each][1] for each in (flow, other))
    if one < _SOUND and two > 1 / _SOUND:
        text = (
            f"unequal shares of {link}: {names[flow[0]]} had {100 * one:.3g} % of its "
            f"max-min share in iteration {flow[1]}, {names[other[0]]} beside it "
            f"{100 * two:.3g} %"
        )
        over = emulated.flows().tolist()
        yield Suspect(text, [(e, n) for e, n in over if ports[link] in problem.hops[e]])


def _narrowest(emulated: Schedule, edge: int, iteration: int) -> float:
    """Return mean bytes/s that the narrowest link on a flow's way had meanwhile."""
    at = emulated.flow_start[edge, iteration], emulated.flow_end[edge, iteration]
    return min(_mean_of(emulated, port, *at) for port in emulated.problem.hops[edge])


def _mean_of(emulated: Schedule, port: int, start: float, end: float) -> float:
    """Return the mean capacity of a link from ``start`` to ``end``; its most if 0."""
    steps = emulated.problem.links.steps
    if len(steps.of(port)[0]) == 1 or not end > start:
        return float(steps.most[port])
    could = steps.carry(port, np.array([start, end]))
    return float(could[1] - could[0]) / (end - start) or float(steps.most[port])


def lone_rates(emulated: Schedule) -> dict[int, list[float]]:
    """Return shares of the narrowest rate that lone flows had, by link."""
    flows = emulated.flows()
    at = tuple(flows.T)
    start, end, size = (
        array[at]
        for array in (emulated.flow_start, emulated.flow_end, emulated.flow_bytes)
    )
    hops = emulated.problem.hops
    order = np.argsort(flows[:, 0], kind="stable")
    first = np.searchsorted(flows[order, 0], np.arange(len(hops) + 1))
    crossing: defaultdict[int, list[NDArray[np.int64]]] = defaultdict(list)
    for edge, ports in enumerate(hops):
        for port in ports:
            crossing[port].append(order[first[edge] : first[edge + 1]])
    alone = (end > start) & (size > 0)
    for rows in map(np.concatenate, crossing.values()):
        # Those that begin before it ends, less those of them that end before it begins.
        starts = np.searchsorted(np.sort(start[rows]), end[rows], "left")
        over = np.searchsorted(np.sort(end[rows]), start[rows], "right")
        alone[rows] &= starts - over == 1  # itself
    rates: defaultdict[int, list[float]] = defaultdict(list)
    for number in np.flatnonzero(alone).tolist():
        edge, n = flows[number].tolist()
        narrowest = _narrowest(emulated, edge, n)
        share = size[number] / (end[number] - start[number]) / narrowest
        for port in hops[edge]:
            # A link that is wider than another on the way was not tried.
            if _mean_of(emulated, port, start[number], end[number]) <= narrowest:
                rates[port].append(share)
    return rates


def most_senders(emulated: Schedule, port: int) -> int:
    """Return the most machines that sent over a link at once."""
    problem = emulated.problem
    events: list[tuple[float, int, int]] = []
    crosses = np.array([port in hops for hops in problem.hops], dtype=bool)
    flows = emulated.flows()
    for edge, n in flows[crosses[flows[:, 0]]].tolist():
        if emulated.flow_bytes[edge, n] > 0:
            machine = problem.placement.machine_of[problem.job.edges[edge].source]
            events.append((emulated.flow_start[edge, n], 1, machine))
            events.append((emulated.flow_end[edge, n], -1, machine))
    # Ends sort before starts of the same instant: a machine that goes on counts once.
    under_way: defaultdict[int, int] = defaultdict(int)
    sending = most = 0
    for _, change, machine in sorted(events):
        before = under_way[machine]
        under_way[machine] += change
        sending += (under_way[machine] > 0) - (before > 0)
        most = max(most, sending)
    return most


class Pair(NamedTuple):
    """Two witnesses, and how far the first is off the second."""

    of: str
    over: str
    verdict: Prediction

    def to_json(self) -> dict[str, Any]:
        """Return the form of result.json."""
        return {"of": self.of, "over": self.over, **self.verdict.to_json()}


@dataclass(frozen=True, eq=False)
class Witnesses:
    """Schedules of one job, by what carried its bytes."""

    fluid: Schedule
    """Rates of the policy."""
    maxmin: Schedule
    """Max-min fair rates, those that TCP comes nearest to."""
    packets: Schedule
    dropped: int
    """Packets that queues dropped."""
    measured: Schedule
    policy: str
    """Rule of the fluid's rates."""
    gift: tuple[float, float] = (0.0, 0.0)
    """Seconds of its rate, or bytes if that is more, that a link let go at once after a
    pause, where kernel NICs were measured."""

    @property
    def makespans(self) -> dict[str, float]:
        """Return the makespan of each witness."""
        names = "fluid", "packets", "measured"
        return {name: getattr(self, name).makespan for name in names}

    def pairs(
        self,
        prediction: Prediction,
        verdict: Verdict,
        budget: Mapping[str, float],
        *,
        time_scale: float,
    ) -> tuple[Pair, ...]:
        """Return who agrees with whom, within the threshold of the prediction.

        ``prediction``: of the run over its fluid. ``verdict`` and ``budget``: of the
        measurement. ``time_scale``: of the packets.
        """
        judge = partial(
            judge_prediction, threshold=prediction.threshold, time_scale=time_scale
        )
        by_packets = judge(self.packets, self.fluid, self.fluid, budget={})
        run = judge(self.measured, self.packets, self.packets, budget=budget)
        maxmin = self.maxmin.makespan
        fluid = self.fluid.makespan
        of_packets = [*self._of_rule(maxmin, fluid, by_packets)]
        if self.dropped:
            drops = f"queues dropped {self.dropped:,} packets, which were sent again"
            of_packets.append(drops)
        of_run = [*self._of_rule(fluid, maxmin, run), *self._of_gifts()]
        if verdict.reasons:
            sentence = f"the measurement is {verdict.trust}: {verdict.reasons[0]}"
            of_run.append(sentence)
        return (
            Pair("packets", "fluid", _lead_with(of_packets, by_packets)),
            Pair("measured", "fluid", prediction),
            Pair("measured", "packets", _lead_with(of_run, run)),
        )

    def _of_rule(
        self, found: float, expected: float, verdict: Prediction
    ) -> Iterator[str]:
        """Yield the rule of rates where its own effect on the end is a good part."""
        shift = found / expected - 1 if expected else 0.0
        error = verdict.error or 0.0
        if shift * error > 0 and abs(shift) > SHARE * abs(error):
            yield (
                f"rates by {self.policy}, while TCP shares about max-min: that alone "
                f"is {100 * shift:+.2g} %"
            )

    def _of_gifts(self) -> Iterator[str]:
        """Yield what kernel NICs let go at once, where that makes a run shorter."""
        problem = self.measured.problem
        (seconds, nbytes) = self.gift
        chain = {(p.edge, p.iteration) for p in critical_path(self.measured).links}
        gifts = [
            min(
                float(self.measured.flow_end[at] - self.measured.flow_start[at]),
                max(seconds, nbytes / min(problem.capacities[p] for p in hops)),
            )
            for at in chain
            if at[0] >= 0 and (hops := problem.hops[at[0]])
        ]
        shorter = self.packets.makespan - self.measured.makespan
        if 0 < SHARE * shorter < math.fsum(gifts):
            yield (
                f"kernel NICs let a flow's first bytes go at once after a pause: up to "
                f"{math.fsum(gifts):.3g} s of the {len(gifts)} on the critical path"
            )


def _lead_with(reasons: list[str], verdict: Prediction) -> Prediction:
    """Return a verdict with further reasons before its own, unless both agree."""
    if verdict.outcome is Outcome.AGREES or not reasons:
        return verdict
    own = () if verdict.reasons == NO_REASON else verdict.reasons
    return replace(verdict, reasons=(*reasons, *own))
