"""Rates by a rule of one's own: what the core asks, put to Python and checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from emu.core import ffi
from emu.errors import DataError
from emu.problem import ActiveFlow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emu.problem import Cluster, Job
    from emu.scheduling.policies import Rates

#: Share of a link by which rates may exceed it: the rounding of their sum.
_ROUNDING = 1e-9


def checked_rates(
    name: str,
    flows: Sequence[ActiveFlow],
    capacity: Mapping[str, float],
    given: object,
) -> list[float]:
    """Return the rates that a rule gave, bytes per second, one per flow.

    Parameters
    ----------
    name
        The rule, for errors.
    capacity
        Bytes per second of every link.
    given
        What it returned.

    Raises
    ------
    DataError
        When these are no numbers, too few or too many, negative, not finite, or
        together more than a link has.
    """

    def refused(problem: str) -> DataError:
        return DataError(problem, path=name)

    try:
        rates = [float(rate) for rate in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        problem = f"returns {type(given).__name__}, a list of a rate per flow is needed"
        raise refused(f"{problem} ({error})") from error
    if len(rates) != len(flows):
        raise refused(f"returns {len(rates)} rates for {len(flows)} active flows")
    used = dict.fromkeys(capacity, 0.0)
    for flow, rate in zip(flows, rates, strict=True):
        if not 0.0 <= rate < math.inf:
            raise refused(f"gives {flow.name} {rate:g} B/s, a rate is 0 or more")
        for link in flow.links:
            used[link] += rate
    for link, rate in used.items():
        if rate > capacity[link] * (1.0 + _ROUNDING):
            most = f"{link} has {capacity[link]:.10g}"
            raise refused(f"gives the flows over {link} {rate:.10g} B/s, {most}")
    return rates


class OwnRates:
    """Answers what the core asks of a rule of one's own.

    Nothing can be raised through C: what happens is kept until `check`, and from then
    on no flow gets a rate, so that the core comes back.

    Parameters
    ----------
    job, cluster
        Whose flows and links are meant.
    rates
        The rule, see `Policy.rates`.
    """

    def __init__(self, job: Job, cluster: Cluster, rates: Rates) -> None:
        self._rates, self._job = rates, job
        self._links = [link.name for link in cluster.links]
        self._ranks = job.edge_ranks
        #: By edge what stays of its flow, and the iteration served: made once for all
        #: questions about a flow, of which there are hundreds in a dense job.
        self._known: dict[int, tuple[int, tuple[Any, ...]]] = {}
        self._failure: BaseException | None = None

    def check(self) -> None:
        """Raise what has happened since the last call, if anything."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def answer(self, question: Any) -> None:
        """Set the rates that a `Question` of core.h asks for."""
        if self._failure is not None:
            return
        try:
            self._answer(question)
        except BaseException as failure:  # noqa: BLE001 - check raises it
            self._failure = failure

    def _answer(self, question: Any) -> None:
        if question.before == 0:
            self._known.clear()
        edge, left = question.edge, question.left
        room = ffi.unpack(question.capacity, len(self._links))
        cut = {port for port, capacity in enumerate(room) if not capacity}
        asked = []
        for group in ffi.unpack(question.group, question.flows):
            if cut and not cut.isdisjoint(_hops(question, group)):
                continue  # its rate stays 0: a rule need not know
            position, turn = edge[group], question.turn[group]
            known = self._known.get(position)
            if known is None or known[0] != turn:
                known = self._known[position] = turn, self._constant(question, group)
            asked.append((turn, self._ranks[position], group, known[1]))
        asked.sort()
        flows = [ActiveFlow._make((*of, left[group])) for _, _, group, of in asked]
        capacity = dict(zip(self._links, room, strict=True))
        rates = self._rates(flows, capacity)
        for (_, _, group, _), rate in zip(asked, rates, strict=True):
            question.rate[group] = rate

    def _constant(self, question: Any, group: int) -> tuple[Any, ...]:
        """Return all of an `ActiveFlow` but what is left."""
        position, turn = question.edge[group], question.turn[group]
        edge = self._job.edges[position]
        source = self._job.tasks[edge.source]
        return (
            self._job.edge_names[position],
            source.name,
            self._job.tasks[edge.destination].name,
            turn - edge.lag,
            turn,
            question.volume[group],
            tuple(self._links[port] for port in _hops(question, group)),
            source.job_name,
        )


def _hops(question: Any, group: int) -> list[int]:
    """Return the ports that the flow of a group crosses."""
    first, end = question.hop_start[group], question.hop_start[group + 1]
    return [question.hop[hop] for hop in range(first, end)]


@ffi.def_extern()  # type: ignore[untyped-decorator]
def ask_rule(own: Any, question: Any) -> None:
    """Have the rule behind a handle answer; the core calls this."""
    ffi.from_handle(own).answer(question)
