"""Bytes of a run, by the kinds of tensors that the receivers counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.problem import Problem


def received_kinds(
    statistics: Mapping[str, Mapping[str, Any]],
) -> Counter[tuple[int, str]]:
    """Return (edge, kind of payload) -> real bytes over connections.

    Parameters
    ----------
    statistics
        Of every process, as in processes.json; those of an earlier emu have no kinds.
    """
    found: Counter[tuple[int, str]] = Counter()
    for counted in statistics.values():
        for row in counted.get("received", {}).get("payloads", ()):
            found[int(row["edge"]), str(row["kind"])] += int(row["bytes"])
    return found


def kinds_between_machines(
    problem: Problem, statistics: Mapping[str, Mapping[str, Any]], byte_scale: float
) -> dict[str, float]:
    """Return kind of payload -> emulated bytes between machines, most first."""
    sums: Counter[str] = Counter()
    for (edge, kind), count in received_kinds(statistics).items():
        if edge < len(problem.hops) and problem.hops[edge]:
            sums[kind] += count
    return {kind: count / byte_scale for kind, count in sums.most_common() if count}
