"""Policies found by their names, and the answers of rules of one's own, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.prediction.core import ffi
from emu.prediction.rate_policies import PORTFOLIO, RATE_POLICIES, Policy
from emu.problem import ActiveFlow, Cluster, Job

if TYPE_CHECKING:
    from emu.prediction.rate_policies import Rates

#: Rules of one's own: name -> what loads it.
_own: dict[str, Callable[[], Policy]] = {}


def register(name: str, load: Callable[[], Policy]) -> None:
    """Have ``name`` stand for a rule of one's own, loaded when it is first needed."""
    _own[name] = load


def list_rules(excluded: str) -> list[str]:
    """Return the rules that are neither the one named nor another name of it."""
    # By code: `none` beside `maxmin` would be the same simulation twice.
    codes = {policy_named(excluded).code, PORTFOLIO}
    names = []
    for policy in RATE_POLICIES.values():
        if policy.code not in codes:
            codes.add(policy.code)
            names.append(policy.name)
    return names


def policy_named(name: str) -> Policy:
    """Return the policy called ``name``.

    Raises ValueError when there is none, and DataError when it is a rule of one's own
    that cannot be loaded.
    """
    if name in _own:
        return _own[name]()
    if name not in RATE_POLICIES:
        names = ", ".join(RATE_POLICIES)
        raise ValueError(f"no policy is called {name}; there are {names}")
    return RATE_POLICIES[name]


def rate_policy(name: str) -> Policy:
    """Return the policy called ``name``, which must be a rule for rates.

    Raises ValueError when there is none, or it is the portfolio, which has to be
    resolved first.
    """
    policy = policy_named(name)
    if policy.code == PORTFOLIO:
        raise ValueError(
            "portfolio is a choice among policies: "
            "resolve it with emu.prediction.simulation.best_policy first"
        )
    return policy


#: Share of a link by which rates may exceed it: the rounding of their sum.
_ROUNDING = 1e-9


def check_rates(
    name: str,
    flows: Sequence[ActiveFlow],
    capacity: Mapping[str, float],
    given: object,
) -> list[float]:
    """Return the rates that a rule gave, bytes per second, one per flow.

    Raises DataError when these are no numbers, too few or too many, negative, not
    finite, or together more than a link has.
    """

    def refuse(problem: str) -> DataError:
        return DataError(problem, path=name)

    try:
        rates = _read_rates(given)
    except (TypeError, ValueError) as error:
        problem = f"returns {type(given).__name__}, a list of a rate per flow is needed"
        raise refuse(f"{problem} ({error})") from error
    if len(rates) != len(flows):
        raise refuse(f"returns {len(rates)} rates for {len(flows)} active flows")
    use = dict.fromkeys(capacity, 0.0)
    for flow, rate in zip(flows, rates, strict=True):
        # Written so, it refuses NaN as well, which is in no order to anything.
        if not 0.0 <= rate < math.inf:
            raise refuse(f"gives {flow.name} {rate:g} B/s, a rate is 0 or more")
        for link in flow.links:
            use[link] += rate
    for link, rate in use.items():
        if rate > capacity[link] * (1.0 + _ROUNDING):
            most = f"{link} has {capacity[link]:.10g}"
            raise refuse(f"gives the flows over {link} {rate:.10g} B/s, {most}")
    return rates


#: Types of which Python would take each letter, or byte, for a number.
_TEXTS = (str, bytes, bytearray, memoryview)


def _read_rates(given: Any) -> list[float]:
    """Return the rates of a rule as floats.

    Raises TypeError or ValueError when it is no list of numbers.
    """
    if isinstance(given, (*_TEXTS, Mapping, AbstractSet)):
        raise TypeError(f"found {given!r:.40}")
    rates = []
    for rate in given:
        if isinstance(rate, (*_TEXTS, bool, np.bool_)):
            raise TypeError(f"found {rate!r:.40}")
        rates.append(float(rate))
    return rates


class OwnRates:
    """Answers what the core asks of a rule of one's own.

    Nothing can be raised through C: what happens is kept until `check`, and from then
    on no flow gets a rate, so that the core comes back.
    """

    def __init__(self, job: Job, cluster: Cluster, rates: Rates) -> None:
        self._rates = rates
        self._job = job
        self._links = [link.name for link in cluster.links]
        self._ranks = job.edge_ranks
        #: The flow of every edge, made once for all questions about it, of which there
        #: are hundreds in a dense job.
        self._known: dict[int, ActiveFlow] = {}
        self._failure: BaseException | None = None

    def check(self) -> None:
        """Raise what has happened since the last call, if anything."""
        failure = self._failure
        self._failure = None
        if failure is not None:
            raise failure

    def answer(self, question: Any) -> None:
        """Set the rates that a `Question` of core.h asks for."""
        if self._failure is not None:
            return
        # Also an interrupt: cffi prints what leaves a callback, and the core would go
        # on.
        try:
            self._answer(question)
        except BaseException as failure:  # noqa: BLE001 - check raises it
            self._failure = failure

    def _answer(self, question: Any) -> None:
        # A schedule begins: what is known has the links of another placement.
        if question.before == 0:
            self._known.clear()
        capacities = ffi.unpack(question.capacity, len(self._links))
        cut = {port for port, capacity in enumerate(capacities) if not capacity}
        asked = []
        for place in range(question.flows):
            flow = question.flow[place]
            if cut and not cut.isdisjoint(_hops(question, flow)):
                continue  # its rate stays 0: a rule need not know
            description = self._known.get(flow.edge)
            if description is None or description.serves != flow.turn:
                description = self._describe(question, flow)
                self._known[flow.edge] = description
            asked.append((flow.turn, self._ranks[flow.edge], place, description, flow))
        # The core asks in no order. Here stands the one in which ties are broken, so
        # that a rule which takes the first of equals does as ours do.
        asked.sort(key=itemgetter(0, 1, 2))

        flows = [
            description._replace(left=flow.left) for *_, description, flow in asked
        ]
        rates = self._rates(flows, dict(zip(self._links, capacities, strict=True)))
        for (*_, flow), rate in zip(asked, rates, strict=True):
            flow.rate = rate

    def _describe(self, question: Any, flow: Any) -> ActiveFlow:
        """Return what a rule is told of a flow; all but what is left of it stays."""
        edge = self._job.edges[flow.edge]
        source = self._job.tasks[edge.source]
        destination = self._job.tasks[edge.destination].name
        return ActiveFlow(
            edge=self._job.edge_names[flow.edge],
            source=source.name,
            destination=destination,
            iteration=flow.turn - edge.lag,
            serves=flow.turn,
            volume=flow.volume,
            links=tuple(self._links[port] for port in _hops(question, flow)),
            job=source.job_name,
            left=flow.left,
            coflow=edge.coflow or destination,
        )


def _hops(question: Any, flow: Any) -> list[int]:
    """Return the ports that a flow crosses."""
    first = question.hop_start[flow.group]
    end = question.hop_start[flow.group + 1]
    return [question.hop[hop] for hop in range(first, end)]


@ffi.def_extern()  # type: ignore[untyped-decorator]
def ask_rule(own: Any, question: Any) -> None:
    """Have the rule behind a handle answer; the core calls this."""
    ffi.from_handle(own).answer(question)
