"""Compute a run's verdict: how far its end may be off, reasons and remedies.

The decision rests on evidence, not on symptoms: by how much what came late moved the
end of the run, and how far it is off for no reason found (`emu.trust.lateness`). A host
can be busy and keep up, or idle and stall for one second. The critical path shows where
the time was lost; the host's own figures show *why*, and what to do. They decide alone
only where time was lost that no schedule shows, and on kernel NICs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

if TYPE_CHECKING:
    from emu.trust.guards import Finding
    from emu.trust.lateness import HostEffect, Lateness
    from emu.trust.violation import FindingKeys

    Statistics = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class HostFigures:
    """Lags, delays and CPU use of the hosts in a run; wall seconds, and shares of 1."""

    loop_lag_mean: float = 0.0
    loop_lag_max: float = 0.0
    """Lag of the event loops' timers; mean over all, and the worst."""
    pacer_lag_mean: float = 0.0
    pacer_lag_max: float = 0.0
    """Lag of the pacers' alarms, likewise."""
    late_sends: int = 0
    max_behind: float = 0.0
    """Shaped frames that left over 1 ms after their fluid, and the worst."""
    max_stale: float = 0.0
    """The longest that a sender did not know of a new rate."""
    cpu_busy: float = 0.0
    cpu_steal: float = 0.0
    """Shares of the busiest host's cores during the run."""
    cpu_wait: float = 0.0
    """Share of the run for which the worst event loop was ready and had no core."""

    @property
    def stall(self) -> float:
        """The longest that anything may have stood still and caught up, wall seconds.

        What is notified late, is sent late, and is read late adds up.
        """
        late = max(self.pacer_lag_max, self.max_behind)
        return self.max_stale + late + self.loop_lag_max


def host_figures(statistics: Statistics) -> HostFigures:
    """Return the figures of a run.

    ``statistics``: of every node process, as `emu_nodes.runtime` counts them.
    """
    loops = []
    pacers = []
    edges: list[Mapping[str, Any]] = []
    for figures in statistics.values():
        loops.append(figures["host_metrics"])
        pacers.append(figures["pacer"])
        edges += figures["sent"]

    lags = []
    waits = []
    busy = []
    stolen = []
    for loop in loops:
        lags.append(loop["loop_lag_mean"])
        seconds = max(loop["seconds"], 1e-9)
        waits.append(loop["waited"] / seconds)
        busy.append(_share(loop["host"], "busy"))
        stolen.append(_share(loop["host"], "steal"))

    # Means are weighed by wakes: a pacer that hardly woke says little.
    wakes = sum(_column(pacers, "wakes"))
    pacer_lags = sum(pacer["mean_lag"] * pacer["wakes"] for pacer in pacers)
    return HostFigures(
        loop_lag_mean=float(np.mean(lags)),
        loop_lag_max=max(_column(loops, "loop_lag_max")),
        pacer_lag_mean=pacer_lags / max(wakes, 1),
        pacer_lag_max=max(_column(pacers, "max_lag")),
        late_sends=sum(_column(edges, "late_sends")),
        max_behind=max(_column(edges, "max_behind"), default=0.0),
        max_stale=max(_column(edges, "max_stale"), default=0.0),
        cpu_busy=max(busy),
        cpu_steal=max(stolen),
        cpu_wait=max(waits),
    )


def _column(rows: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    return [row[key] for row in rows]


def _share(host: Mapping[str, float], use: str) -> float:
    total = sum(host[key] for key in ("busy", "idle", "steal"))
    return host[use] / total if total > 0 else 0.0


#: A run whose error may be this many times what was asked for is of no use.
_BEYOND = 3.0
#: Limits above which a figure of the host is a reason.
_BUSY = 0.95
_STEAL = 0.03
_WAIT = 0.10
_LAG = 0.010  # wall seconds
#: Reason where the slightest delays move the makespan by more than was asked for.
_CHANCE = "chance decides: the slightest delays move the makespan by {:.2g} %"
#: Reason where emu itself takes too long from the end of a task to the first byte.
_OWN = "{:.2g} % of the makespan: emu's own delay before first bytes"
#: Reason where processes had no core when flows of the critical path were young.
_HELD = "{:.2g} % of the makespan may be of waits for a core while flows began"
#: Reason for a late task, by ``compute``.
_OVERRUN = {
    "timed": "tasks took longer than their stated times",
    "padded": "the work of tasks took longer than their stated times",
    "real": "the work of tasks did not fit: at this time scale it took longer here "
    "than on the emulated machines",
}
_BY_CHANCE = "judge this rate policy by several seeds: no time scale settles its order"
#: Room that a remedy leaves, so that the next run does not miss by a hair.
_ROOM = 1.25


class Trust(StrEnum):
    """Degree of trust in a run."""

    TRUSTED = "trusted"
    DEGRADED = "degraded"
    UNTRUSTED = "untrusted"


class Cause(StrEnum):
    """Cause of a run's loss of trust."""

    GUARDS = "guards"
    """Something that the cluster cannot have done; no other host mends it."""
    HOST = "host"
    """Lateness, or waits for a core: the next run may be better."""
    CHANCE = "chance"
    """The slightest delays decide, on a host whose figures are in order."""
    UNEXPLAINED = "unexplained"
    """Time was lost, and neither lateness nor a figure of the host shows it."""


class VerdictKeys(TypedDict):
    """A verdict as result.json has it, see `Verdict`."""

    trust: str
    cause: str | None
    shift: float
    error: float
    max_error: float
    reasons: list[str]
    remedies: list[str]
    on_time_makespan: float
    unexplained: float
    sensitivity: float
    clock_uncertainty: float
    guards: list[FindingKeys]
    lateness: dict[str, float]
    host: dict[str, float]


@dataclass(frozen=True)
class Verdict:
    """A run's trust and error, with reasons and remedies."""

    trust: Trust
    error: float
    """Share of the makespan by which the host's lateness has moved it."""
    max_error: float
    """Limit on ``effect.shift`` that was asked for."""
    reasons: tuple[str, ...]
    remedies: tuple[str, ...]
    """One sentence each; without reasons when trusted."""
    effect: HostEffect
    """Makespans that ``error`` and the shift of the end follow from."""
    lateness: Lateness
    """Time lost on the critical path, by place, emulated seconds. Slack and the flows
    beside it take some of that up, so the sum can be more than the effect."""
    figures: HostFigures
    """Figures of the host."""
    sensitivity: float = 0.0
    """Share of the makespan by which the slightest delays move it."""
    findings: tuple[Finding, ...] = ()
    """Findings of the guards: with any, the run is untrusted."""
    cause: Cause | None = None
    """None when trusted."""

    @property
    def is_by_chance(self) -> bool:
        """True where the slightest delays move the end by more than may be."""
        return self.sensitivity > self.max_error

    @property
    def chance(self) -> str:
        """Sentence that the slightest delays decide; empty where they do not."""
        return _CHANCE.format(100 * self.sensitivity) if self.is_by_chance else ""

    def to_json(self) -> VerdictKeys:
        """Return the form of result.json."""
        return {
            "trust": str(self.trust),
            "cause": None if self.cause is None else str(self.cause),
            "shift": self.effect.shift,
            "error": self.error,
            "max_error": self.max_error,
            "reasons": list(self.reasons),
            "remedies": list(self.remedies),
            "on_time_makespan": self.effect.punctual,
            "unexplained": self.effect.unexplained,
            "sensitivity": self.sensitivity,
            "clock_uncertainty": self.effect.unsure,
            "guards": [finding.to_json() for finding in self.findings],
            "lateness": asdict(self.lateness),
            "host": asdict(self.figures),
        }


def decide(
    effect: HostEffect,
    lateness: Lateness,
    figures: HostFigures,
    *,
    time_scale: float,
    max_error: float,
    processes: int,
    compute: str = "timed",
    sensitivity: float = 0.0,
    findings: tuple[Finding, ...] = (),
    by_kernel: bool = False,
    own_delay: float = 0.0,
    held_up: float = 0.0,
) -> Verdict:
    """Return the verdict of a run.

    Parameters
    ----------
    time_scale
        Wall seconds per emulated second.
    max_error
        Share of the makespan by which the end may be off.
    compute
        ``timed``, ``padded`` or ``real``: what tasks take.
    sensitivity
        Share by which the slightest delays move the makespan.
    by_kernel
        Whether the kernel shared the NICs. How long a flow took is the finding there,
        and no lateness shows that a receiver had no core: waits for one decide too. 40
        runs ahead of all other work waited up to 6 %; beside four busy programs runs
        were 37 to 141 % too long, and late by nothing.
    own_delay
        Share of the makespan that passes on the critical path before first bytes: on
        kernel NICs the measurement's own error.
    held_up
        Share of it by which waits for a core may have moved the end there.
    """
    loss = max(own_delay, held_up)
    # As multiples of what is allowed: 1 degrades a run, _BEYOND makes it of no use.
    starvation = max(figures.cpu_wait / _WAIT if by_kernel else 0.0, loss / max_error)
    shift = effect.shift  # explained or not
    trust = Trust.TRUSTED
    # Three times what was asked for is of no use; between, the figures are a hint.
    if shift > _BEYOND * max_error or starvation > _BEYOND or findings:
        trust = Trust.UNTRUSTED
    elif shift > max_error or starvation > 1.0:
        trust = Trust.DEGRADED
    verdict = Verdict(
        trust=trust,
        error=effect.error,
        max_error=max_error,
        reasons=(),
        remedies=(),
        effect=effect,
        lateness=lateness,
        figures=figures,
        sensitivity=sensitivity,
        findings=findings,
    )
    if trust is Trust.TRUSTED:
        return verdict

    own_losses = {_OWN: own_delay, _HELD: held_up}
    # No time scale mends what chance decides.
    excess = 0.0 if verdict.is_by_chance else max(shift, loss) / max_error
    advice = [finding.remedy for finding in findings if finding.remedy]
    if verdict.is_by_chance:
        advice.append(_BY_CHANCE)
    advice += _list_remedies(
        verdict,
        excess,
        time_scale=time_scale,
        compute=compute,
        processes=processes,
    )
    return replace(
        verdict,
        reasons=tuple(_list_reasons(verdict, own_losses, compute)),
        # A guard and the host may ask for the same: each once, in this order.
        remedies=tuple(dict.fromkeys(advice)),
        cause=_cause_of(verdict, loss),
    )


def _cause_of(verdict: Verdict, loss: float) -> Cause:
    """Return why a run is not trusted: what a guard finds is no fault of the host."""
    if verdict.findings:
        return Cause.GUARDS
    is_late = max(verdict.error, loss) > verdict.max_error
    is_late = is_late or verdict.error > verdict.effect.uncertainty
    if _list_excesses(verdict.figures) or (is_late and not verdict.is_by_chance):
        return Cause.HOST
    return Cause.CHANCE if verdict.is_by_chance else Cause.UNEXPLAINED


def _list_reasons(
    verdict: Verdict,
    own_losses: Mapping[str, float],
    compute: str,
) -> Iterator[str]:
    """Yield the reasons, what is surest first.

    ``own_losses``: shares of the makespan by the sentence that names them.
    """
    if verdict.is_by_chance:
        yield verdict.chance
    for finding in verdict.findings:
        yield f"guard: {finding}"
    for sentence, share in own_losses.items():
        if share > verdict.max_error:
            yield sentence.format(100 * share)
    yield from _name_shifts(verdict.effect, verdict.lateness, compute)
    yield from _list_excesses(verdict.figures)


def _name_shifts(
    effect: HostEffect,
    lateness: Lateness,
    compute: str,
) -> list[str]:
    """Return the shift of the end, and the late parts of the chain, the most first.

    A run of no length is never late, and no share is of one that takes no time when
    nothing is late.
    """
    makespan = effect.emulated
    if makespan <= 0 or effect.up <= 0:
        return []
    drifts = [
        (effect.explained, "what came late moved the end by {:+.2g} %"),
        (effect.unexplained, "{:+.2g} % of the makespan: for no reason found"),
        (effect.clocks, "{:.2g} % may be of the clocks of hosts: known no better"),
    ]
    parts = [
        (lateness.flows, "last bytes came after their fluid"),
        (lateness.tasks, _OVERRUN[compute]),
        (lateness.gaps, "parts began after what they had waited for"),
    ]

    # What is a tenth of the shift is worth a sentence.
    least = 0.1 * effect.shift * effect.up
    shifts = [
        text.format(100 * seconds / effect.up)
        for seconds, text in drifts
        if abs(seconds) > least
    ]
    shifts += [
        f"{100 * seconds / makespan:.2g} % of the makespan: {words}"
        for seconds, words in sorted(parts, reverse=True)
        if seconds > 0.1 * lateness.seconds
    ]
    return shifts


def _list_excesses(figures: HostFigures) -> list[str]:
    """Return which figures of the host are out of order."""
    lag = figures.loop_lag_max
    late = figures.pacer_lag_max
    payload = "payload" if figures.late_sends == 1 else "payloads"

    excesses = {
        f"the cores were {100 * figures.cpu_busy:.0f} % busy": figures.cpu_busy > _BUSY,
        f"the hypervisor kept {100 * figures.cpu_steal:.0f} % of the cores' time": (
            figures.cpu_steal > _STEAL
        ),
        f"an event loop waited for a core {100 * figures.cpu_wait:.0f} % of the run": (
            figures.cpu_wait > _WAIT
        ),
        f"an event loop stood still for {1e3 * lag:.0f} ms of wall time "
        f"({1e3 * figures.loop_lag_mean:.2f} ms on average)": lag > _LAG,
        f"a pacer woke {1e3 * late:.0f} ms late "
        f"({1e3 * figures.pacer_lag_mean:.2f} ms on average)": late > _LAG,
        f"{figures.late_sends} {payload} left over 1 ms late, the worst by "
        f"{1e3 * figures.max_behind:.0f} ms of wall time": figures.late_sends > 0,
    }
    return [text for text, is_beyond in excesses.items() if is_beyond]


def _list_remedies(
    verdict: Verdict,
    excess: float,
    *,
    time_scale: float,
    compute: str,
    processes: int,
) -> Iterator[str]:
    """Yield what gives the host more time, the surest first, then more of the host."""
    # What is late is late in wall time, so its share falls as the time scale rises.
    if excess > 1:
        remedy = f"raise time_scale to {round_up(_ROOM * excess * time_scale):g}"
        # 1 is the default: who has stated another one knows of the key.
        if time_scale == 1.0:
            remedy += ", or state time_scale: auto"
        yield remedy

    lateness = verdict.lateness
    figures = verdict.figures
    # Real work has no stated time that could be longer.
    if lateness.tasks > 0.5 * lateness.seconds and compute != "real":
        or_no_work = ", or compute: timed" if compute == "padded" else ""
        yield f"state longer task times{or_no_work}"
    if figures.cpu_busy > _BUSY or figures.cpu_wait > _WAIT:
        yield f"use fewer than {processes} processes, or more hosts"
        yield "end what else runs on this host"
    if figures.cpu_steal > _STEAL:
        yield "use a host that is not shared"


def round_up(value: float) -> float:
    """Return the next number of two digits, as people write scales."""
    power = math.floor(math.log10(value))
    step = 10.0 ** (power - 1)
    # Less a trifle, so that two digits stay what they are; binary fractions are rounded
    # off.
    steps = math.ceil(value / step - 1e-9)
    return round(steps * step, 12)
