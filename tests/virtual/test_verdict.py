"""What may have moved a virtual run's makespan: each bound, a little on either side."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.virtual.run_virtual import _evidence
from emu.virtual.verdict import COPYING, MOST, SMALL, Evidence, judge

MAKESPAN = 8.0
#: A run of which a rank computes a quarter of the time; nothing of it is in doubt.
SOUND: dict[str, Any] = {
    "makespan": MAKESPAN,
    "steps": [0.4] * 20,
    "busiest": 0,
    "computed": MAKESPAN / 4,
    "small_calls": 0,
    "children_cpu": 0.0,
    "cpu": 5.0,
    "stalls": 0,
    "others": 0.0,
}


def judged(**changes: Any) -> list[str]:
    return judge(Evidence(**SOUND | changes))


def test_nothing_is_said_of_a_sound_run() -> None:
    assert judged() == []


@pytest.mark.parametrize(
    ("figure", "bound", "words"),
    [
        # While it waits, three quarters of the time, a rank's core copies for nothing.
        ("busiest", 4 * MOST * MAKESPAN / COPYING, "on cores that compute"),
        ("small_calls", MOST * MAKESPAN / 1e-3, "calls below 64 kB"),
        ("children_cpu", MOST * 5.0, "processes that ranks started"),
        ("others", 0.1, "other programs used"),
    ],
)
def test_a_cause_is_named_beyond_its_share(
    figure: str, bound: float, words: str
) -> None:
    assert judged(**{figure: 0.98 * bound}) == []
    (reason,) = judged(**{figure: 1.02 * bound})
    assert words in reason


def test_steps_spread_beyond_their_outer_tenths() -> None:
    """By twice the share of the median, which is none of the first or the last."""
    usual = [1.0] * 5 + [1.02] * 6 + [1.05] * 5
    outliers = [0.1, 0.2, 7.0, 9.0]
    assert judged(steps=outliers + usual) == []
    low = 1.0
    high = low + 1.1 * 2 * MOST * 1.02
    (reason,) = judged(steps=[*outliers, *usual[:-5], *[high] * 5])
    assert reason.startswith(f"steps took {low:.4g} to {high:.4g} s")


def test_stalls_and_messages_that_no_lab_has_seen_are_named() -> None:
    (stalled,) = judged(stalls=3)
    assert "outside of torch.distributed 3 times" in stalled
    (of_gloo,) = judged(nccl="gloo's")
    assert "--algorithm ring" in of_gloo
    (of_ring,) = judged(nccl="NCCL's ring")
    assert "no lab with GPUs" in of_ring


def event_of(size: int, *, nccl: bool = False, message: bool = False) -> Any:
    """Return the event of a call of so many bytes, which is half given to each peer."""
    call = SimpleNamespace(figures={"given": (size // 2, size - size // 2)})
    group = SimpleNamespace(transport=SimpleNamespace(is_nccl=nccl))
    form = SimpleNamespace(call=call, group=group, is_message=message)
    return SimpleNamespace(call=SimpleNamespace(form=form))


@pytest.mark.parametrize(("costs", "busiest"), [(None, 12), ({"per_byte": 1e-9}, 0)])
def test_evidence_is_of_the_rank_that_has_most_of_each(
    costs: Any, busiest: int
) -> None:
    """Rank 1 sends most and computes most, and others hold the largest of the rest."""
    of_form = SimpleNamespace(call=SimpleNamespace(figures={"size": SMALL - 1}))
    of_form.group = SimpleNamespace(transport=SimpleNamespace(is_nccl=False))
    of_form.is_message = False
    calls = [
        [event_of(SMALL - 1), *(event_of(8, nccl=True) for _ in range(2))],
        [SimpleNamespace(call=None), event_of(8, message=True)],
        [
            event_of(8),
            event_of(SMALL),
            SimpleNamespace(call=SimpleNamespace(form=of_form)),
        ],
    ]
    carried = {(0, 1): 5, (1, 2): 7, (2, 0): 1}
    server: Any = SimpleNamespace(
        records=[SimpleNamespace(events=events) for events in calls],
        count_bytes=lambda *, by_ranks_alone: carried if by_ranks_alone else {},
        stalls=4,
    )
    rows = [(1.0, 0.5, 3.0), (5.0, 0.25, 6.0), (2.0, 0.0, 4.0)]
    keys = ("computed", "children_cpu", "cpu")
    result = {
        "makespan": 9.0,
        "message_costs": costs,
        "messages": {"nccl": "NCCL's ring"},
        "ranks": [dict(zip(keys, row, strict=True)) for row in rows],
        "steps": {"seconds": [7.0, 1.0, 2.0]},
    }

    assert _evidence(server, result, 0.5) == Evidence(
        makespan=9.0,
        steps=[1.0, 2.0],
        busiest=busiest,
        computed=5.0,
        small_calls=2,
        children_cpu=0.75,
        cpu=13.0,
        stalls=4,
        others=0.5,
        nccl="NCCL's ring",
    )
