"""Three witnesses of one makespan, of schedules that the simulator makes differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from emu.simulation import simulate
from emu.trust.prediction import Witnesses
from emu.trust.verdict import Trust
from tests.trust.test_prediction import expected, judged, problem_of

if TYPE_CHECKING:
    from emu.problem import Schedule


class _Verdict:
    trust, reasons = Trust.DEGRADED, ("waits for a core",)


def schedule(slow: float) -> Schedule:
    """Return the job with its last NIC at a share of the stated rate."""
    stated = problem_of(2)
    made = simulate(problem_of(2, slow), expected(stated), "maxmin")
    return replace(made, problem=stated, rates=None)


def seen(
    fluid: float, packets: float, measured: float, maxmin: float = 1.0, dropped: int = 0
) -> tuple[Witnesses, dict[str, Any]]:
    """Return witnesses with NICs at these shares, and the verdicts by pair."""
    found = [schedule(slow) for slow in (fluid, maxmin, packets)]
    run = schedule(measured)
    all_of = Witnesses(found[0], found[1], found[2], dropped, run, "oes")
    verdict: Any = _Verdict()
    pairs = all_of.pairs(judged(run, found[0]), verdict, {}, time_scale=1.0)
    return all_of, {f"{pair.of} over {pair.over}": pair.verdict for pair in pairs}


def test_three_that_agree_have_no_reasons() -> None:
    _, found = seen(1.0, 0.99, 0.98)

    assert [*found] == [
        "packets over fluid",
        "measured over fluid",
        "measured over packets",
    ]
    assert [str(one.outcome) for one in found.values()] == ["agrees"] * 3
    assert [one.reasons for one in found.values()] == [()] * 3


@pytest.mark.parametrize(
    ("shares", "odd"),
    [
        ((1.0, 0.8, 1.0), "packets"),
        ((1.0, 0.8, 0.8), "fluid"),
        ((1.0, 1.0, 0.8), "measured"),
    ],
)
def test_the_one_that_is_off_is_in_both_pairs_that_differ(
    shares: tuple[float, float, float], odd: str
) -> None:
    all_of, found = seen(*shares)

    differ = {name for name, one in found.items() if one.outcome == "differs"}
    assert differ == {name for name in found if odd in name.split(" over ")}
    for name, one in found.items():
        of, over = (all_of.makespans[side] for side in name.split(" over "))
        assert one.error == pytest.approx(of / over - 1)
        if odd in name.split(" over "):
            assert one.reasons


def test_what_queues_dropped_and_the_run_lacked_come_first() -> None:
    _, found = seen(1.0, 0.8, 1.0, dropped=7)

    assert found["packets over fluid"].reasons[0].startswith("queues dropped 7 packets")
    assert len(found["packets over fluid"].reasons) > 1
    first = found["measured over packets"].reasons[0]
    assert first == "the measurement is degraded: waits for a core"


def test_a_rule_of_rates_is_blamed_for_its_own_part_alone() -> None:
    _, found = seen(0.8, 1.0, 0.8, maxmin=1.0)

    for name, sign in (("packets over fluid", "-"), ("measured over packets", "+")):
        first = found[name].reasons[0]
        assert first.startswith("rates by oes, while TCP shares about max-min")
        assert f"is {sign}" in first
    _, found = seen(0.8, 0.6, 0.8, maxmin=1.0)
    assert "rates by" not in " ".join(found["packets over fluid"].reasons)


def test_what_kernel_nics_let_go_at_once_is_named_where_a_run_is_shorter() -> None:
    all_of, _ = seen(1.0, 0.9, 1.0)
    verdict: Any = _Verdict()
    for gift, named in (((0.0, 0.0), False), ((0.0, 40.0), True), ((0.4, 0.0), True)):
        given = replace(all_of, gift=gift)
        pairs = given.pairs(
            judged(given.measured, given.fluid), verdict, {}, time_scale=1.0
        )
        said = " ".join(pairs[-1].verdict.reasons)
        assert ("first bytes go at once after a pause: up to 1.6 s" in said) == named
    longer, _ = seen(1.0, 1.0, 0.9)
    pairs = replace(longer, gift=(0.4, 0.0)).pairs(
        judged(longer.measured, longer.fluid), verdict, {}, time_scale=1.0
    )
    assert "after a pause" not in " ".join(pairs[-1].verdict.reasons)
