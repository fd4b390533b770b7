"""What may have moved a virtual run's makespan: each bound, a little on either side."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest

from emu.problem.cluster import Cluster
from emu.problem.machine import Machine
from emu.virtual.run_virtual import _describe, _evidence, _share_of_others
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


class CpuTimes(NamedTuple):
    """Core seconds of all programs, as psutil returns them."""

    user: float
    nice: float
    system: float
    idle: float
    iowait: float
    irq: float
    softirq: float
    steal: float
    guest: float


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


def test_a_result_has_each_rank_on_its_machine_and_bytes_by_direction() -> None:
    """Two ranks on m1, and one on m0, which has not ended."""
    cluster = Cluster((Machine("m0", 1.0, 2.0), Machine("m1", 3.0, 4.0)))
    plans: Any = [SimpleNamespace(machine=machine) for machine in (1, 0, 1)]
    ends = [8.0, None, 5.0]
    posts = [SimpleNamespace(kind="post"), SimpleNamespace(kind="go")]
    records = [
        SimpleNamespace(
            end=end, waited=0.5, delayed=rank, events=posts * rank, marks=[1.0, 4.0]
        )
        for rank, end in enumerate(ends)
    ]
    for record in records:
        record.figures = {"cpu": 0.25}
    sizes = {(0, 1): 10, (2, 1): 20, (1, 0): 3, (0, 2): 7}
    server: Any = SimpleNamespace(records=records, count_bytes=lambda: sizes, cpu=6.0)

    found = _describe(server, cluster, plans)

    keys = ("rank", "machine", "end", "computed", "delayed", "calls", "cpu")
    assert [tuple(row[key] for key in keys) for row in found["ranks"]] == [
        (0, "m1", 8.0, 7.5, 0, 0, 0.25),
        (1, "m0", None, -0.5, 1, 1, 0.25),
        (2, "m1", 5.0, 4.5, 2, 2, 0.25),
    ]
    assert found["bytes"] == {"m1": {"m0": 30, "m1": 7}, "m0": {"m1": 3}}
    assert found["nics"] == {"m0": {"in": 1, "out": 2}, "m1": {"in": 3, "out": 4}}
    assert (found["makespan"], found["keeper_cpu"]) == (8.0, 6.0)
    assert found["steps"]["seconds"] == [3.0]


def test_cores_are_of_others_where_neither_idle_nor_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 100 core seconds 35 are idle and 25 ours; those of guests count as users'."""
    before = CpuTimes(10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)
    now = CpuTimes(60.0, 25.0, 35.0, 65.0, 60.0, 61.0, 72.0, 82.0, 120.0)
    emu = SimpleNamespace(user=1.0, system=2.0, children_user=3.0, children_system=4.0)
    process = SimpleNamespace(cpu_times=lambda: emu)
    monkeypatch.setattr(psutil, "cpu_times", lambda: now)
    monkeypatch.setattr(psutil, "Process", lambda: process)
    ranks: Any = [SimpleNamespace(figures={"cpu": seconds}) for seconds in (5.0, 10.0)]

    assert _share_of_others(before, ranks) == pytest.approx(0.4)
    assert _share_of_others(before, ranks * 4) == 0.0
