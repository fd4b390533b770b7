"""The verdict on a virtual run: bounds of what could be wrong unnoticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

#: CPU seconds per byte that a rank sends or takes, of gloo and TCP: measured in labs
#: (November 2026), where a machine has one core.
COPYING = 0.325e-9
#: Seconds by which a call below `SMALL` bytes was off in labs: 0.1 to 5 ms.
_SMALL_CALL = 1e-3
#: Bytes of a call below which wake-ups of processes count, and not the network.
SMALL = 1 << 16
#: Share of the makespan that any cause may have moved in a ``trusted`` run.
MOST = 0.03


@dataclass(frozen=True)
class Evidence:
    """Figures of a run beyond its times."""

    makespan: float
    """Seconds."""
    steps: Sequence[float]
    """Seconds of every step but the first, of the first rank."""
    busiest: int
    """Most bytes that a rank sent and took."""
    computed: float
    """Most seconds that a rank computed."""
    small_calls: int
    """Most calls below `SMALL` bytes that a rank waited for."""
    children_cpu: float
    """CPU seconds of processes that ranks started, which no clock shows."""
    cpu: float
    """CPU seconds of all ranks."""
    stalls: int
    """Times that a rank waited outside of any call."""
    others: float
    """Share of this computer's cores that other programs used."""
    nccl: str = ""
    """Whose messages groups of NCCL had, ``NCCL's ring``; empty without any."""


def judge(evidence: Evidence) -> list[str]:
    """Return what may have moved the makespan by too much, a sentence each."""
    length = max(evidence.makespan, 1e-12)
    reasons = []
    # While a rank waits its core is free: what is copied meanwhile delays nothing.
    busy = evidence.computed / length
    copying = evidence.busiest * COPYING / length * busy
    if copying > MOST:
        reasons.append(
            f"gloo and TCP would take {copying:.1%} of the time on cores that compute, "
            "which is not modelled"
        )
    small = evidence.small_calls * _SMALL_CALL / length
    if small > MOST:
        reasons.append(
            f"{evidence.small_calls} calls below 64 kB, which take 0.1 to 5 ms more "
            f"in labs: 1 ms each were {small:.1%}"
        )
    hidden = evidence.children_cpu / max(evidence.cpu, 1e-12)
    if hidden > MOST:
        reasons.append(
            f"processes that ranks started used {hidden:.1%} as much CPU as the ranks, "
            "and no clock shows it"
        )
    if evidence.stalls:
        reasons.append(
            f"ranks waited outside of torch.distributed {evidence.stalls} times, which "
            "took no virtual time"
        )
    if evidence.nccl == "gloo's":
        reasons.append(
            "groups of nccl had gloo's messages: --algorithm ring gives them NCCL's"
        )
    elif evidence.nccl:
        reasons.append(
            f"messages of nccl were {evidence.nccl} as its sources have it, which no "
            "lab with GPUs has been set beside"
        )
    reasons += _judge_computing(evidence)
    return reasons


def _judge_computing(evidence: Evidence) -> list[str]:
    reasons = []
    if evidence.others > 0.1:
        reasons.append(
            f"other programs used {evidence.others:.0%} of this computer: CPU times "
            "are longer beside them"
        )
    if len(evidence.steps) > 2:
        ordered = sorted(evidence.steps)
        tenth = len(ordered) // 10
        spread = ordered[-1 - tenth] - ordered[tenth]
        if spread > MOST * 2 * median(ordered):
            reasons.append(
                f"steps took {ordered[tenth]:.4g} to {ordered[-1 - tenth]:.4g} s, all "
                "but the outer tenths"
            )
    return reasons
