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
  source, never by the order of tasks or edges in the file. Under rules that order
  coflows so are the flows of one coflow that take what is left.
- Remaining paths (``oes_cp``, ``weighted_maxmin``) use expected times and volumes, as a
  scheduler does not have the ones to come: the means of a profile, at the capacities
  of time 0 for all that has not begun.
- Slack is the longest remaining path over all active flows less the flow's own, at
  least one hundredth of that longest path, so that weights differ by at most 100.
- ``sincronia`` orders coflows by the bytes that are left, anew with all rates, and of
  ports that are equally full takes the first of the cluster. ``aalo`` counts what a
  coflow has sent since it last had no active flow, and moves it to the next queue at
  the moment it has sent as much, which is an event.
- A rule of one's own (`register` of `emu.prediction.scheduling.policies`) is asked
  whenever rates are computed, and sees the active flows, what is left of each and the
  links; nothing else counts.
- A coflow is the active flows of one name that serve one iteration; without a name
  those to one task, as the DGTP paper has it (section VI-B). It
  describes OMCoflow in one sentence; ``omcoflow`` takes it literally, the
  variants repair what that leaves idle (``_wc``), replace the weights by those of a
  bottleneck (``_gamma``) or predict once, at arrival (``_frozen``). Where a finish is
  predicted, at least a hundredth of every volume counts as left: 1 / time has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from emu.problem import ActiveFlow

    Rates: TypeAlias = Callable[
        [Sequence[ActiveFlow], Mapping[str, float]], list[float]
    ]

#: Entry points of this group are classes of rules, which installed packages bring.
GROUP = "emu.policies"
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

    @cached_property
    def code(self) -> int:
        """Its number in the core (core.h), which has the rules by their names."""
        # The core comes with numpy: a list of policies needs neither.
        from emu.prediction.core import lib  # noqa: PLC0415 - 0.1 s

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
