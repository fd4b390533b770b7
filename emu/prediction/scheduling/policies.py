"""The rate policies by name: rates, origin and guarantee of each.

A policy keeps the paper's Theorem 1, T <= Delta * (optimum), if every flow always has
at least its ``oes`` rate: Appendix B of the paper uses nothing else. Strict priorities
and weights lose it, since they may starve a flow of the longest chain.

Where sources state nothing, this is our reading:

- Rates are computed anew whenever a flow begins or ends, or a capacity changes that an
  active one crosses, and at no other time. A change counts after the ends of its
  instant, and no rule uses it before.
- ``none`` leaves the flows to TCP, which shares the emulated NICs: max-min fair in the
  long run.
- ``fifo``: whatever leaves a machine queues at its NIC in the order in which tasks
  produced it (ties as below), and only the first flow of each queue is sent. Where the
  first flows of several queues meet at an in port they share it max-min fairly.
- By job: a job has an equal part of a port where it has an active flow. Under
  ``maxmin_by_job`` it takes what others leave of theirs, and what one of its flows
  cannot use goes to its other flows there first. With one job these are ``oes`` and
  ``maxmin``.
- "Remaining" is of the flow in question. Remaining times are those of the flow alone on
  its hops.
- Ties are broken by the iteration served, then by the names of the destination and the
  source, never by the order in the file. Under rules that order coflows so are the
  flows of one coflow that take what is left.
- Remaining paths (``oes_cp``, ``weighted_maxmin``) use expected times and volumes, as a
  scheduler does not have the ones to come: the means of a profile, at the capacities
  of time 0 for all that has not begun.
- Slack is the longest remaining path over all active flows less the flow's own, at
  least one hundredth of that longest path, so that weights differ by at most 100.
- ``sincronia`` orders coflows by the bytes that are left, anew with all rates, and of
  ports that are equally full takes the first of the cluster. ``aalo`` counts what a
  coflow has sent since it last had no active flow, and moves it to the next queue at
  the moment it has sent as much, which is an event.
- A rule of one's own (`register`) is asked whenever rates are computed, and sees the
  active flows, what is left of each and the links; nothing else counts.
- A coflow is the active flows of one name that serve one iteration; without a name
  those to one task, as the DGTP paper has it (section VI-B). It
  describes OMCoflow in one sentence; ``omcoflow`` takes it literally, the
  variants repair what that leaves idle (``_wc``), replace the weights by those of a
  bottleneck (``_gamma``) or predict once, at arrival (``_frozen``). Where a finish is
  predicted, at least a hundredth of every volume counts as left: 1 / time has no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from emu.errors import DataError
from emu.prediction.core import ffi, lib
from emu.problem import ActiveFlow, Cluster, Job

if TYPE_CHECKING:
    Rates: TypeAlias = Callable[
        [Sequence[ActiveFlow], Mapping[str, float]], list[float]
    ]

#: `Policy.code` of the portfolio, which is no rule for rates but a choice of one.
PORTFOLIO = -1


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One rate policy."""

    name: str
    """As in scenario files."""
    summary: str
    """Rate that it gives a flow, in one line."""
    source: str
    """Its publication or other origin."""
    keeps_theorem: bool = False
    """True where every flow always gets at least its ``oes`` rate."""
    by_flow: bool = True
    """True where flows over the same hops may have different rates."""
    by_job: bool = False
    """True where ports are divided among jobs, then among the flows of each."""
    knows: str = "nothing"
    """Its input about the flows, besides which are active and where they go."""
    looks_ahead: bool = False
    """True where it needs expected times and volumes."""
    rates: Rates | None = None
    """Function of a rule of one's own: returns the rates of flows on links of these
    capacities, checked."""

    @property
    def code(self) -> int:
        """Its number in the core (core.h), which has the rules by their names."""
        if self.rates is not None:
            return int(lib.OWN)
        if self.name == "portfolio":
            return PORTFOLIO
        # `none` has no rule of its own in the core: TCP's shares are max-min in the
        # long run.
        return int(getattr(lib, "MAXMIN" if self.name == "none" else self.name.upper()))


_OMCOFLOW = "OMCoflow (ToN 2019) as DGTP section VI-B describes it"
_OURS = "this project"
_LEFT = "bytes left"
_EXPECTED = "expected times and volumes of the run"

RATE_POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            name="oes",
            summary="least of its equal shares of the ports it crosses",
            source="DGTP (INFOCOM 2022), Algorithm 1",
            keeps_theorem=True,
            by_flow=False,
        ),
        Policy(
            name="maxmin",
            summary="max-min fair share",
            source="Bertsekas and Gallager, Data Networks, section 6.5",
            keeps_theorem=True,
            by_flow=False,
        ),
        Policy(
            name="none",
            summary="no application schedule: TCP shares the NICs (as maxmin)",
            source=_OURS,
            keeps_theorem=True,
            by_flow=False,
        ),
        Policy(
            name="oes_by_job",
            summary="as oes; ports are divided among jobs, then among their flows",
            source=_OURS,
            by_flow=False,
            by_job=True,
        ),
        Policy(
            name="maxmin_by_job",
            summary="as maxmin; ports are divided among jobs, then among their flows",
            source=_OURS,
            by_flow=False,
            by_job=True,
        ),
        Policy(
            name="fifo",
            summary="out ports send one flow at a time, first come first served",
            source="DistDGL (IA3 2020) as DGTP section VI-A runs it",
            knows="when each was produced",
        ),
        Policy(
            name="oes_cp",
            summary="its oes rate, the rest by longest remaining path",
            source=_OURS,
            knows=_EXPECTED,
            keeps_theorem=True,
            looks_ahead=True,
        ),
        Policy(
            name="weighted_maxmin",
            summary="max-min share weighted by 1 / slack",
            source=_OURS,
            knows=_EXPECTED,
            looks_ahead=True,
        ),
        Policy(
            name="mrtf",
            summary="least remaining time first, the others take what is left",
            source="SRPT as in DGTP section VI-B",
            knows=_LEFT,
        ),
        Policy(
            name="mrtf_exclusive",
            summary="least remaining time first, one flow per port at a time",
            source="pFabric (SIGCOMM 2013), ideal schedule",
            knows=_LEFT,
        ),
        Policy(
            name="omcoflow",
            summary="ports divided by 1 / predicted finish time within the coflow",
            source=_OMCOFLOW,
            knows=_LEFT,
        ),
        Policy(
            name="omcoflow_wc",
            summary="max-min weighted as omcoflow",
            source=f"{_OMCOFLOW}, made work-conserving here",
            knows=_LEFT,
        ),
        Policy(
            name="omcoflow_gamma",
            summary="max-min; coflows weigh 1 / bottleneck time, flows end together",
            source=f"{_OMCOFLOW}, finish time read as Varys' bottleneck",
            knows=_LEFT,
        ),
        Policy(
            name="omcoflow_frozen",
            summary="as omcoflow, finish times predicted from whole volumes",
            source=f"{_OMCOFLOW}, predicting at arrival",
            knows="their volumes",
        ),
        Policy(
            name="sebf_madd",
            summary="coflow with the smallest bottleneck first, its flows end together",
            source="Varys (SIGCOMM 2014)",
            knows=_LEFT,
        ),
        Policy(
            name="sincronia",
            summary="coflows by bottleneck-select-scale-iterate, flow by flow",
            source="Sincronia (SIGCOMM 2018), Algorithm 1",
            knows=_LEFT,
        ),
        Policy(
            name="aalo",
            summary="coflows queued by bytes sent so far, equal shares within one",
            source="Aalo (SIGCOMM 2015)",
            knows="bytes sent",
        ),
        Policy(
            name="portfolio",
            summary="whichever other policy simulates best on the expected run",
            source=_OURS,
            knows=_EXPECTED,
        ),
    )
}


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
        rates = [float(rate) for rate in given]  # type: ignore[attr-defined]
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
