"""The verdict: what follows from which figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.testing import two_machine_example
from emu.trust.guards import Finding
from emu.trust.lateness import HostEffect, Lateness
from emu.trust.verdict import (
    Cause,
    HostFigures,
    Trust,
    Verdict,
    _share,
    decide,
    host_figures,
    round_up,
)
from emu.trust.violation import Violation

QUIET = HostFigures(loop_lag_mean=1e-4, loop_lag_max=1e-3, cpu_busy=0.4)


def _decide(late: Lateness, figures: HostFigures = QUIET, **changes: Any) -> Verdict:
    """Return the verdict of a run that what came late moved by all of it."""
    stated = {"time_scale": 2.0, "max_error": 0.01, "processes": 23}
    late_by = 100 + late.seconds
    effect = HostEffect(late_by, repeated=late_by, punctual=100.0, simulated=100.0)
    return decide(changes.pop("effect", effect), late, figures, **{**stated, **changes})


@pytest.mark.parametrize(
    ("seconds", "trust"),
    [(0.0, "trusted"), (0.99, "trusted"), (1.01, "degraded"), (3.1, "untrusted")],
)
def test_the_chain_decides(seconds: float, trust: str) -> None:
    verdict = _decide(Lateness(seconds, 0.0, 0.0))

    assert verdict.trust == trust
    assert verdict.error == pytest.approx(seconds / 100)
    assert bool(verdict.reasons) == bool(verdict.remedies) == (trust != "trusted")


def test_a_busy_host_that_kept_up_is_trusted() -> None:
    busy = HostFigures(cpu_busy=1.0, cpu_steal=0.2, loop_lag_max=0.5, late_sends=9)

    assert _decide(Lateness(0.1, 0.0, 0.0), busy).trust is Trust.TRUSTED


@pytest.mark.parametrize(
    ("wait", "trust"),
    [(0.09, Trust.TRUSTED), (0.11, Trust.DEGRADED), (0.31, Trust.UNTRUSTED)],
)
def test_waits_for_a_core_decide_where_the_kernel_shares(
    wait: float, trust: Trust
) -> None:
    starved = HostFigures(cpu_wait=wait)
    verdict = _decide(Lateness(0.0, 0.0, 0.0), starved, by_kernel=True)

    assert verdict.trust is trust
    assert ("waited for a core" in " ".join(verdict.reasons)) == (wait > 0.1)
    others = ("use fewer than 23 processes, or more hosts", "end what else runs on")
    for remedy in others:
        assert (remedy in " ".join(verdict.remedies)) == (wait > 0.1)
    assert _decide(Lateness(0.0, 0.0, 0.0), starved).trust is Trust.TRUSTED


@pytest.mark.parametrize(
    ("held", "trust"),
    [(0.01, Trust.TRUSTED), (0.0154, Trust.DEGRADED), (0.031, Trust.UNTRUSTED)],
)
def test_waits_that_may_have_moved_the_end_decide(held: float, trust: Trust) -> None:
    verdict = _decide(Lateness(0.0, 0.0, 0.0), by_kernel=True, held_up=held)

    assert verdict.trust is trust
    said = " ".join(verdict.reasons)
    assert ("waits for a core" in said) == (held > 0.01)
    assert (f"{100 * held:.2g} %" in said) == (held > 0.01)
    assert (verdict.cause is Cause.HOST) == (held > 0.01)


def test_the_remedy_makes_up_for_the_excess() -> None:
    verdict = _decide(Lateness(4.0, 0.0, 0.0))

    assert verdict.remedies[0] == "raise time_scale to 10"  # 2 * 4 * 1.25


def test_no_time_scale_is_proposed_where_chance_decides() -> None:
    verdict = _decide(Lateness(4.0, 0.0, 0.0), sensitivity=0.05)
    as_exact = _decide(Lateness(4.0, 0.0, 0.0), sensitivity=0.009)

    assert verdict.reasons[0].endswith("the slightest delays move the makespan by 5 %")
    assert verdict.remedies == (
        "judge this rate policy by several seeds: no time scale settles its order",
    )
    assert verdict.to_json()["sensitivity"] == 0.05
    assert as_exact.remedies == ("raise time_scale to 10",)
    assert _decide(Lateness(0.5, 0.0, 0.0), sensitivity=0.05).reasons == ()


@pytest.mark.parametrize(
    ("compute", "reason", "remedy"),
    [
        ("timed", "longer than their stated times", "state longer task times"),
        ("padded", "longer than", "state longer task times, or compute: timed"),
        ("real", "did not fit", None),
    ],
)
def test_no_remedy_is_what_the_run_has_already(
    compute: str, reason: str, remedy: str | None
) -> None:
    verdict = _decide(Lateness(0.0, 4.0, 0.0), compute=compute)

    assert any(reason in text for text in verdict.reasons)
    assert verdict.remedies[0] == "raise time_scale to 10"
    assert verdict.remedies[1:] == (() if remedy is None else (remedy,))


@pytest.mark.parametrize(
    ("figures", "remedies"),
    [
        (HostFigures(cpu_busy=0.99), 2),
        (HostFigures(cpu_wait=0.3), 2),
        (HostFigures(cpu_steal=0.1), 1),
        (HostFigures(), 0),
    ],
)
def test_each_figure_that_is_out_of_order_has_its_remedies(
    figures: HostFigures, remedies: int
) -> None:
    verdict = _decide(Lateness(4.0, 0.0, 0.0), figures)

    first, *others = verdict.remedies
    assert first == "raise time_scale to 10"
    assert len(others) == remedies
    assert ("use a host that is not shared" in others) == (figures.cpu_steal > 0)


def test_reasons_name_what_is_out_of_order_and_remedies_follow() -> None:
    figures = HostFigures(
        cpu_busy=0.99, cpu_steal=0.1, cpu_wait=0.3, loop_lag_max=0.2, pacer_lag_max=0.1,
        late_sends=1, max_behind=0.4,
    )  # fmt: skip
    verdict = _decide(Lateness(1.0, 3.0, 0.5), figures)
    reasons, remedies = " / ".join(verdict.reasons), " / ".join(verdict.remedies)

    assert verdict.reasons[0] == "what came late moved the end by +4.5 %"
    assert verdict.reasons[1].startswith("2.9 % of the makespan: tasks took longer")
    for word in (
        "99 % busy",
        "hypervisor",
        "waited for a core",
        "200 ms",
        "1 payload left",
    ):
        assert word in reasons
    for word in ("time_scale", "task times", "fewer than 23", "not shared"):
        assert word in remedies


def test_a_guard_that_fires_makes_a_punctual_run_untrusted() -> None:
    found = Finding("link bytes", 3.5, "link m0 out carried too much", "run it again")
    verdict = _decide(Lateness(0.0, 0.0, 0.0), HostFigures(), findings=(found,))

    assert verdict.trust is Trust.UNTRUSTED
    assert verdict.reasons[0] == (
        "guard: link bytes at 3.5 s: link m0 out carried too much"
    )
    assert verdict.remedies == ("run it again",)
    assert verdict.to_json()["guards"][0]["at"] == 3.5
    # What two of them ask for is asked for once.
    twice = _decide(Lateness(0.0, 0.0, 0.0), HostFigures(), findings=(found, found))
    assert len(twice.reasons) == 2
    assert twice.remedies == ("run it again",)


def test_a_run_of_no_length_has_no_error() -> None:
    nothing = HostEffect(0.0, 0.0, 0.0, 0.0)
    verdict = _decide(
        Lateness(0.0, 0.0, 0.0), HostFigures(cpu_busy=1.0), effect=nothing
    )

    assert verdict.error == 0.0
    assert verdict.trust is Trust.TRUSTED


def test_a_run_that_took_no_time_was_not_late() -> None:
    """Though some was expected: no share is of nothing."""
    effect = HostEffect(0.0, repeated=0.0, punctual=0.4, simulated=0.4)
    assert _decide(Lateness(0.0, 0.0, 0.1), effect=effect).reasons == ()


def test_a_run_of_less_than_a_second_has_shares() -> None:
    """It took 0.5 s for 0.4 s, all of it late."""
    effect = HostEffect(0.5, repeated=0.5, punctual=0.4, simulated=0.4)
    verdict = _decide(Lateness(0.1, 0.0, 0.0), effect=effect)

    assert verdict.reasons == (
        "what came late moved the end by +25 %",
        "20 % of the makespan: last bytes came after their fluid",
    )


def test_a_run_that_takes_no_time_unless_late_has_no_share() -> None:
    late = HostEffect(0.005, repeated=0.005, punctual=0.0, simulated=0.0)
    verdict = _decide(Lateness(0.005, 0.0, 0.0), effect=late)

    assert verdict.error == 0.0
    assert not any("of the makespan" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("emulated", [0.0, 0.005])
def test_what_guards_find_of_a_run_of_no_length_has_no_shares(emulated: float) -> None:
    found = Finding("order", 0.0, "a frame never came")
    effect = HostEffect(emulated, repeated=emulated, punctual=0.0, simulated=0.0)
    verdict = _decide(Lateness(0.005, 0.0, 0.0), effect=effect, findings=(found,))

    assert verdict.trust is Trust.UNTRUSTED
    assert verdict.reasons == ("guard: order at 0 s: a frame never came",)


def test_lateness_that_slack_took_up_is_no_reason_to_doubt() -> None:
    """1.2 % on the chain moved the end by 0.2 %: another path was nearly as long."""
    moved = HostEffect(100.2, repeated=100.2, punctual=100.0, simulated=100.1)

    verdict = _decide(Lateness(1.2, 0.0, 0.0), effect=moved)

    assert verdict.trust is Trust.TRUSTED
    assert verdict.error == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("emulated", "repeated", "trust"),
    [
        (102.0, 100.0, Trust.DEGRADED),
        (103.2, 102.0, Trust.UNTRUSTED),
        (104.0, 100.0, Trust.UNTRUSTED),
        (104.0, 104.0, Trust.UNTRUSTED),
    ],
)
def test_what_nothing_explains_is_a_doubt_and_no_error(
    emulated: float, repeated: float, trust: Trust
) -> None:
    moved = HostEffect(emulated, repeated, punctual=100.0, simulated=emulated)

    verdict = _decide(Lateness(0.0, 0.0, 0.0), effect=moved)

    assert verdict.trust is trust
    assert verdict.error == pytest.approx((repeated - 100.0) / 100)
    doubtful = any("no reason found" in reason for reason in verdict.reasons)
    assert doubtful == (repeated != emulated)
    assert verdict.to_json()["unexplained"] == emulated - repeated
    assert any("raise time_scale" in remedy for remedy in verdict.remedies)


@pytest.mark.parametrize(
    ("explained", "unexplained", "trust", "cause"),
    [
        (0.4, 0.6, Trust.TRUSTED, None),
        (0.6, 0.4, Trust.TRUSTED, None),
        (0.6, 0.7, Trust.DEGRADED, Cause.UNEXPLAINED),
        (0.7, 0.6, Trust.DEGRADED, Cause.HOST),
    ],
)
def test_what_is_explained_and_what_is_not_add_up(
    explained: float, unexplained: float, trust: Trust, cause: Cause | None
) -> None:
    """Together they are at most 1 % of it, though each is less than that."""
    repeated = 100.0 + explained
    moved = HostEffect(
        repeated + unexplained,
        repeated=repeated,
        punctual=100.0,
        simulated=repeated,
    )

    verdict = _decide(Lateness(explained, 0.0, 0.0), effect=moved)

    assert verdict.error == pytest.approx(explained / 100)
    assert moved.uncertainty == pytest.approx(unexplained / 100)
    assert verdict.trust is trust
    assert verdict.cause is cause
    assert verdict.to_json()["shift"] == pytest.approx((explained + unexplained) / 100)
    assert len(verdict.reasons) == (0 if trust is Trust.TRUSTED else 3)


def test_late_parts_that_cancel_by_chance_are_no_trust() -> None:
    """It ended in time, where what came late should have moved the end by 0.6 %."""
    cancelled = HostEffect(100.0, repeated=100.6, punctual=100.0, simulated=100.0)

    verdict = _decide(Lateness(0.6, 0.0, 0.0), effect=cancelled)

    assert cancelled.shift == pytest.approx(0.012)
    assert verdict.trust is Trust.DEGRADED
    assert "what came late moved the end by +0.6 %" in verdict.reasons
    assert "-0.6 % of the makespan: for no reason found" in verdict.reasons


def test_what_made_a_run_shorter_is_a_reason() -> None:
    """Lateness may change an order for the better."""
    moved = HostEffect(96.0, repeated=96.0, punctual=100.0, simulated=100.0)

    reasons = _decide(Lateness(0.0, 0.0, 0.0), effect=moved).reasons

    assert reasons == ("what came late moved the end by -4 %",)


@pytest.mark.parametrize(
    ("simulated", "trust", "unexplained"),
    [
        (100.0, Trust.TRUSTED, 0.0),
        (102.2, Trust.DEGRADED, -1.3),
        (98.6, Trust.DEGRADED, 1.1),
        (104.0, Trust.UNTRUSTED, -3.1),
    ],
)
def test_a_run_far_from_what_it_is_held_against_is_doubted(
    simulated: float, trust: Trust, unexplained: float
) -> None:
    """What came late moved the end by 0.6 %, in time and order as repeated."""
    moved = HostEffect(100.3, repeated=100.3, punctual=99.7, simulated=simulated)

    verdict = _decide(Lateness(0.6, 0.0, 0.0), effect=moved)

    assert verdict.trust is trust
    assert moved.unexplained == pytest.approx(unexplained)


@pytest.mark.parametrize(
    ("clocks", "trust"),
    [(0.8, Trust.TRUSTED), (1.6, Trust.DEGRADED), (4.0, Trust.UNTRUSTED)],
)
def test_clocks_that_are_not_known_are_error_that_nobody_can_explain(
    clocks: float, trust: Trust
) -> None:
    """Of 100 s, moved by 0.1 %; 1 % may be."""
    moved = HostEffect(100.1, 100.1, 100.0, 100.0, clocks=clocks)
    verdict = _decide(Lateness(0.1, 0.0, 0.0), effect=moved)

    assert verdict.trust is trust
    assert verdict.to_json()["clock_uncertainty"] == pytest.approx(clocks / 100)
    told = any("clocks of hosts" in reason for reason in verdict.reasons)
    assert told == (trust is not Trust.TRUSTED)


def test_what_is_little_beside_all_that_moved_the_end_is_no_reason() -> None:
    """What came late moved it by 0.1 %, and nothing explains 3 %."""
    moved = HostEffect(103.1, repeated=100.1, punctual=100.0, simulated=103.1)
    reasons = _decide(Lateness(0.1, 0.0, 0.0), effect=moved).reasons

    assert "+3 % of the makespan: for no reason found" in reasons
    assert not any("what came late" in reason for reason in reasons)


@given(st.floats(1e-6, 1e9))
def test_scales_are_rounded_up_to_two_digits(value: float) -> None:
    rounded = round_up(value)

    for scale in (0.14, 0.28, 0.56):  # a hair more than so many hundredths
        assert round_up(scale) == scale
    assert value * (1 - 1e-7) <= rounded <= value * 1.1 * (1 + 1e-7)
    assert float(f"{rounded:.2g}") == pytest.approx(rounded)


def _counted(**host_metrics: Any) -> dict[str, Any]:
    host = {"busy": 30.0, "idle": 60.0, "steal": 10.0}
    return {
        "host_metrics": {
            "seconds": 50.0, "loop_lag_mean": 1e-3, "loop_lag_max": 2e-3, "waited": 5.0,
            "host": host, **host_metrics,
        },
        "pacer": {"wakes": 10, "mean_lag": 1e-4, "max_lag": 1e-3},
        "sent": [{"late_sends": 1, "max_behind": 0.01, "max_stale": 0.02}],
    }  # fmt: skip


def test_figures_of_processes_become_those_of_the_run() -> None:
    problem, _ = two_machine_example(2)
    counted = {name: _counted() for name in problem.job.processes}
    counted["s0"] = _counted(loop_lag_max=0.7)
    counted["s0"]["pacer"] |= {"wakes": 30, "mean_lag": 9e-4}
    others = len(counted) - 1

    figures = host_figures(counted)

    mean = (others * 10 * 1e-4 + 30 * 9e-4) / (others * 10 + 30)  # of all wakes
    assert figures.pacer_lag_mean == pytest.approx(mean)
    assert figures.stall == pytest.approx(0.02 + 0.01 + 0.7)
    assert np.isfinite(list(vars(figures).values())).all()
    assert figures.cpu_busy == pytest.approx(0.3)
    assert figures.cpu_steal == pytest.approx(0.1)
    assert figures.cpu_wait == pytest.approx(0.1)
    assert figures.loop_lag_max == 0.7
    assert figures.late_sends == 6


@pytest.mark.parametrize(("wakes", "mean"), [(1, 0.3), (0, 0.0)])
def test_a_pacer_that_woke_once_has_its_own_lag(wakes: int, mean: float) -> None:
    counted = _counted()
    counted["pacer"] |= {"wakes": wakes, "mean_lag": 0.3}
    assert host_figures({"s": counted}).pacer_lag_mean == mean


@given(st.dictionaries(st.text(), st.none() | st.text() | st.lists(st.integers())))
def test_keys_that_nobody_knows_are_no_cpu_time(further: dict[str, Any]) -> None:
    known = {"busy": 1.0, "idle": 2.0, "steal": 1.0}
    assert _share(further | known, "busy") == 0.25


@pytest.mark.parametrize("behind", [0.1, 0.4])
def test_what_is_late_one_after_the_other_adds_up(behind: float) -> None:
    figures = HostFigures(
        max_stale=1.0, pacer_lag_max=0.2, max_behind=behind, loop_lag_max=0.01
    )

    assert figures.stall == pytest.approx(1.01 + max(behind, 0.2))


def test_the_cause_is_the_host_only_where_it_shows() -> None:
    late, beyond = Lateness(4.0, 0.0, 0.0), Lateness(0.0, 0.0, 0.0)
    busy = HostFigures(cpu_wait=0.2)
    unseen = HostEffect(110.0, repeated=100.0, punctual=100.0, simulated=100.0)
    finding = Finding("port", 1.0, "m0 out carried too much")

    assert _decide(beyond).to_json()["cause"] is None
    assert _decide(late).to_json()["cause"] == "host"
    assert _decide(late, sensitivity=0.05).cause == "chance"
    assert _decide(late, busy, sensitivity=0.05).cause == "host"
    assert _decide(beyond, effect=unseen).cause == "unexplained"
    assert _decide(beyond, busy, effect=unseen).cause == "host"
    assert _decide(late, busy, findings=(finding,)).cause == "guards"


def test_the_default_scale_is_told_of_auto() -> None:
    late = Lateness(4.0, 0.0, 0.0)

    assert "time_scale: auto" in _decide(late, time_scale=1.0).remedies[0]
    assert "auto" not in _decide(late, time_scale=0.5).remedies[0]


def test_each_figure_is_of_the_process_that_it_is_worst_of() -> None:
    """Of three processes none is first, or last, or worst in everything."""

    def counted(loop: Any, pacer: Any, sent: Any, host: Any, waited: float) -> Any:
        return {
            "host_metrics": {
                "seconds": 50.0,
                "loop_lag_mean": loop[0],
                "loop_lag_max": loop[1],
                "waited": waited,
                "host": dict(zip(("busy", "idle", "steal"), host, strict=True)),
            },
            "pacer": dict(zip(("wakes", "mean_lag", "max_lag"), pacer, strict=True)),
            "sent": [
                dict(zip(("late_sends", "max_behind", "max_stale"), row, strict=True))
                for row in sent
            ],
        }

    figures = host_figures(
        {
            "a": counted(
                (0.01, 0.2),
                (10, 0.1, 0.3),
                [(1, 0.5, 0.01), (2, 0.1, 0.07)],
                (50.0, 40.0, 10.0),
                waited=2.5,
            ),
            "b": counted((0.02, 0.9), (30, 0.3, 0.8), [], (60.0, 40.0, 0.0), 4.0),
            "c": counted(
                (0.06, 0.4), (0, 9.0, 0.4), [(4, 0.2, 0.03)], (1.0, 7.0, 2.0), 2.0
            ),
        }
    )

    assert vars(figures) == pytest.approx(
        {
            "loop_lag_mean": 0.03,
            "loop_lag_max": 0.9,
            "pacer_lag_mean": 0.25,
            "pacer_lag_max": 0.8,
            "late_sends": 7,
            "max_behind": 0.5,
            "max_stale": 0.07,
            "cpu_busy": 0.6,
            "cpu_steal": 0.2,
            "cpu_wait": 0.08,
        }
    )


def test_what_is_exactly_at_a_limit_is_allowed() -> None:
    """1 % may be; up to three times as much is a hint."""
    nothing = Lateness(0.0, 0.0, 0.0)
    assert _decide(Lateness(1.0, 0.0, 0.0)).trust is Trust.TRUSTED
    assert _decide(Lateness(3.0, 0.0, 0.0)).trust is Trust.DEGRADED
    waited = HostFigures(cpu_wait=0.1)
    assert _decide(nothing, waited, by_kernel=True).trust is Trust.TRUSTED
    assert _decide(nothing, by_kernel=True, held_up=0.01).trust is Trust.TRUSTED
    assert _decide(nothing, by_kernel=True, own_delay=0.03).trust is Trust.DEGRADED
    late = _decide(Lateness(2.0, 0.0, 0.0), sensitivity=0.01)
    assert not late.is_by_chance
    # A tenth of all lateness is worth no sentence, and no figure at its limit is.
    at_limits = HostFigures(
        cpu_busy=0.95,
        cpu_steal=0.03,
        cpu_wait=0.1,
        loop_lag_max=0.01,
        pacer_lag_max=0.01,
    )
    verdict = _decide(Lateness(4.0, 0.5, 0.5), at_limits)
    assert [reason.split(": ")[-1] for reason in verdict.reasons] == [
        "what came late moved the end by +5 %",
        "last bytes came after their fluid",
    ]
    assert verdict.remedies == ("raise time_scale to 13",)


def test_own_delay_and_waits_are_told_apart() -> None:
    verdict = _decide(
        Lateness(0.0, 0.0, 0.0), by_kernel=True, own_delay=0.04, held_up=0.02
    )
    assert verdict.reasons[:2] == (
        "4 % of the makespan: emu's own delay before first bytes",
        "2 % of the makespan may be of waits for a core while flows began",
    )
    # 2 * 4 * 1.25: the larger of both has to fit.
    assert verdict.remedies == ("raise time_scale to 10",)
    # What is within the limit is no reason, though something else is.
    late = _decide(Lateness(2.0, 0.0, 0.0), by_kernel=True, own_delay=0.009)
    assert not any("own delay" in reason for reason in late.reasons)


@pytest.mark.parametrize(
    ("amount", "unit", "words"),
    [
        (1.0, "iterations", "1 iteration"),
        (2.0, "iterations", "2 iterations"),
        (0.5, "values", "0.5 values"),
        (1.0, "s", "1 s"),
        (1.0, "B", "1 B"),
    ],
)
def test_what_is_counted_is_singular_where_it_is_one(
    amount: float, unit: str, words: str
) -> None:
    violation = Violation(
        constraint="(10)", subject="t", amount=amount, unit=unit, sentence="t is late"
    )
    assert str(violation) == f"(10) t is late: {words}"
