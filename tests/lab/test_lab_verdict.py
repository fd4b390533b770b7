"""Parts of the verdict on a lab's prediction, with figures reckoned by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import emu
from emu.lab import prediction
from emu.lab.fitting.conversations import Unfittable
from emu.lab.prediction import (
    LabCause,
    judge_lab,
    laid_out,
    largest_cause,
    list_lab_misses,
)
from emu.prediction.analysis.traffic import OWNER, PACKET, Traffic
from emu.problem import Schedule
from emu.scenario.scenario_file import loads
from emu.trust import link_shares


def predicted() -> Schedule:
    """Return two iterations of a second: 10 MB cross at 10 MB/s, and 4 MB do not."""
    machines = [{"name": name, "nic": "80 Mbit/s"} for name in ("m0", "m1")]
    flows = [
        {"from": "a", "to": "b", "volume": "10 MB"},
        {"from": "a", "to": "c", "volume": "4 MB"},
    ]
    document = {
        "cluster": {"machines": machines},
        "job": {
            "system": "custom",
            "iterations": 2,
            "tasks": [{"name": name, "time": "0 s"} for name in "abc"],
            "flows": flows,
        },
        "placement": {
            "policy": "explicit",
            "tasks": {"a": "m0", "b": "m1", "c": "m0"},
        },
    }
    return emu.simulate(loads(json.dumps(document), name="job.json"))


def traffic_of(*rows: tuple[float, int, int, int, int, int], nics: Any) -> Traffic:
    """Return packets of two machines: time, machines, ports, bytes."""
    return Traffic(
        packets=np.array([*rows], PACKET),
        machines=("m0", "m1"),
        nics=np.array(nics),
        programs=("p",),
        owners=np.empty(0, OWNER),
    )


FAST = [[1e6, 2e6], [3e6, 4e6]]


def test_the_largest_cause_is_named_from_half_of_a_difference_on() -> None:
    """One that moves the end the other way explains nothing, however large."""
    causes = [LabCause("less", 1.0), LabCause("more", 2.0), LabCause("against", -9.0)]
    assert largest_cause(causes, 4.0) == ("more: 50 % of the difference",)
    assert largest_cause(causes, 4.1) == ("cause not found",)
    assert largest_cause(causes, -10.0) == ("against: 90 % of the difference",)


def outcome_of(*ends: float, seconds: float = 1.25) -> Any:
    """Return iterations that were found, from 10 s on."""
    starts = np.array([10.0, *ends[:-1]])
    return SimpleNamespace(
        starts=starts, ends=np.array(ends), count=len(ends), seconds=seconds
    )


@pytest.mark.parametrize(
    ("threshold", "timeouts", "scale", "expected"),
    [
        (0.25, 9, 1.0, []),
        (0.24, 0, 1.0, ["cause not found"]),
        # Three iterations are 0.75 s longer, of which two timeouts are 0.4 s.
        (0.24, 2, 1.0, [("TCP waited for 2 timeouts, 0.2 s each or more", 53)]),
        (0.24, 2, 2.0, ["cause not found"]),
        (0.24, 6, 2.0, [("TCP waited for 6 timeouts, 0.1 s each or more", 80)]),
        # Of several connections at once they explain no more than all of it.
        (0.24, 90, 1.0, [("TCP waited for 90 timeouts, 0.2 s each or more", 100)]),
    ],
)
def test_iterations_that_are_longer_may_have_waited_for_timeouts(
    monkeypatch: pytest.MonkeyPatch,
    threshold: float,
    timeouts: int,
    scale: float,
    expected: list[Any],
) -> None:
    """They take 1.25 s for 1 s; a difference of the threshold is none."""
    asked: list[Any] = []

    def of_messages(*arguments: Any) -> tuple[list[str], list[LabCause]]:
        asked.append(arguments)
        return ["m0 out"], [LabCause("messages", 0.1)]

    def fit(_found: Traffic, **options: Any) -> Any:
        asked.append(options)
        return outcome_of(11.25, 12.5, 13.75)

    monkeypatch.setattr(prediction, "fit_traffic", fit)
    monkeypatch.setattr(prediction, "_of_messages", of_messages)
    monkeypatch.setattr(prediction, "_of_bytes", lambda *_: LabCause("bytes", 0.2))
    traffic = traffic_of(nics=FAST)

    found = judge_lab(
        traffic,
        predicted(),
        threshold=threshold,
        skip=3,
        timeouts=timeouts,
        time_scale=scale,
        nics={"m0 out": 0.9},
    )

    assert asked[0] == {"skip": 3, "marks": None}
    assert found["error"] == pytest.approx(0.25)
    assert found["threshold"] == threshold
    if not expected:
        assert (found["outcome"], found["links"], found["since"]) == (
            "agrees",
            [],
            None,
        )
        return
    _, _, excess, nics = asked[1]
    assert (excess, nics) == (pytest.approx(0.75), {"m0 out": 0.9})
    assert (found["outcome"], found["links"]) == ("differs", ["m0 out"])
    assert found["reasons"] == [
        text if isinstance(text, str) else f"{text[0]}: {text[1]} % of the difference"
        for text in expected
    ]


def test_other_bytes_are_told_with_what_they_make_of_the_simulation() -> None:
    """45 MB cross in three iterations, from behind the first mark to the last."""
    sizes = {10.0: 7, 10.5: 15_000_000, 12.0: 15_000_000, 13.0: 15_000_000, 13.1: 9}
    rows = [(time, 0, 1, 1, 2, size) for time, size in sizes.items()]
    traffic = traffic_of(*rows, nics=FAST)

    found = prediction._of_bytes(traffic, outcome_of(11.0, 12.0, 13.0), predicted())

    assert found.sentence == "+50 % of bytes crossed per iteration"
    # Each iteration takes 1.5 s for 1 s.
    assert found.seconds == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("late", "since"),
    [
        # By more than 1 s, a tenth of all: at 17.5 s the third, which is the first.
        ([0.5, 1.0, 1.5, 0.0, 2.0], 17.5),
        ([0.5, 1.0, -1.0, 0.0, -1.5], 18.5),
        ([0.5, 1.0, -1.0, 0.0, 0.75], 20.75),
    ],
)
def test_iterations_are_off_from_the_first_that_ends_so_much_later_or_earlier(
    late: list[float], since: float
) -> None:
    """Two were predicted, in 4 s: a lab of five goes on as these did."""
    ends = np.array([2.0, 3.0, 6.0, 7.0, 10.0]) + late + 10.0
    schedule: Any = SimpleNamespace(
        task_end=np.array([[1.0, 3.0], [2.0, 2.5], [np.nan, np.nan]]), makespan=4.0
    )
    assert prediction._since(outcome_of(*ends), schedule, 0.1) == since


def test_messages_that_moved_the_end_its_way_are_drifts() -> None:
    """They took 2.5, 0.5, 1.25 and 3 s for 1 s; a quarter of a second is rough."""
    flows = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    schedule: Any = SimpleNamespace(
        flow_start=np.array([[1.0, 2.0], [3.0, 4.0]]),
        flow_end=np.array([[3.5, 2.5], [4.25, 7.0]]),
        flows=lambda: flows,
    )
    fluid: Any = SimpleNamespace(
        flow_start=np.array([[5.0, 6.0], [7.0, 8.0]]),
        flow_end=np.array([[6.0, 7.0], [8.0, 9.0]]),
    )

    def drifts(excess: float, rough: float) -> dict[tuple[int, int], float]:
        return prediction._drifts(schedule, fluid, excess, rough)

    assert drifts(3.0, 0.25) == {(0, 0): 1.5, (1, 0): 0.25, (1, 1): 2.0}
    assert drifts(3.0, 0.26) == {(0, 0): 1.5, (1, 1): 2.0}
    assert drifts(-3.0, 0.25) == {(0, 1): -0.5}


def test_messages_are_laid_out_by_direction_and_from_the_beginning() -> None:
    """Rows from 0.5 s to 2 s count, without the first packet of each message."""
    traffic = traffic_of(
        (0.5, 0, 1, 7, 8, 9000),  # in the instant before which all is left out
        (1.0, 0, 1, 7, 8, 1448),
        (1.001, 0, 1, 7, 8, 1000),
        (1.5, 1, 0, 8, 7, 100),
        (2.0, 0, 1, 7, 8, 2000),
        (2.1, 0, 1, 7, 8, 9000),
        nics=FAST,
    )

    laid = laid_out(traffic, (0.5, 2.0))

    assert laid is not None
    schedule, fluid = laid
    nan = np.nan
    np.testing.assert_allclose(schedule.flow_start, [[0.5, 1.5], [1.0, nan]])
    np.testing.assert_allclose(schedule.flow_end, [[0.501, 1.5], [1.0, nan]])
    np.testing.assert_allclose(schedule.flow_bytes, [[1000.0, 552.0], [1.0, nan]])
    np.testing.assert_allclose(fluid.flow_start[0], [0.5, 1.5])
    # At 1 MB/s out of m0, and at 2 MB/s out of m1.
    np.testing.assert_allclose(fluid.flow_end[0], [0.501, 1.500552])
    np.testing.assert_allclose(fluid.flow_end[1, 0], 1.0000005)
    assert laid_out(traffic, (2.1, 9.0)) is None


def test_messages_are_parted_by_four_packets_of_the_slowest_nic() -> None:
    """The gap is 57.92 ms if any NIC has 100 kB/s, and 5 ms if all NICs are fast."""
    rows = [(time, 0, 1, 7, 8, 1448) for time in (1.0, 1.057, 1.1159)]
    for nics, counts in ((FAST, 3), ([[1e6, 2e6], [3e6, 1e5]], 2)):
        laid = laid_out(traffic_of(*rows, nics=nics), (0.0, 9.0))
        assert laid is not None
        assert len(laid[0].flows()) == counts


def test_so_many_messages_are_laid_out_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two directions of three and of one message have six places."""
    rows = [(float(second), 0, 1, 7, 8, 1448) for second in (1, 2, 3)]
    traffic = traffic_of(*rows, (4.0, 1, 0, 8, 7, 1448), nics=FAST)
    for most, is_laid in ((6, True), (5, False)):
        monkeypatch.setattr(prediction, "_MOST", most)
        assert (laid_out(traffic, (0.0, 9.0)) is not None) == is_laid


@pytest.mark.parametrize(
    ("delays", "excess", "links", "causes"),
    [
        ([0.05, 0.0], 1.0, [], [("programs took other times", 1.0)]),
        ([0.5, 0.0], 1.0, ["m0 out", "m1 in"], None),
        ([-0.5, 0.0], -1.0, ["m0 out", "m1 in"], []),
    ],
)
def test_links_are_blamed_from_a_fifth_of_a_difference_on(
    monkeypatch: pytest.MonkeyPatch,
    delays: list[float],
    excess: float,
    links: list[str],
    causes: list[tuple[str, float]] | None,
) -> None:
    """Messages of m0 lost or won so much; links do not make a lab faster."""
    rows = [(1.0, 0, 1, 7, 8, 1448), (1.004, 0, 1, 7, 8, 9448)]
    rows += [(2.0, 1, 0, 8, 7, 1448), (2.004, 1, 0, 8, 7, 9448)]
    traffic = traffic_of(*rows, nics=FAST)
    laid = laid_out(traffic, (0.0, 9.0))
    assert laid is not None
    schedule, fluid = laid
    schedule.flow_end[:, 0] = fluid.flow_end[:, 0] + delays
    asked: list[Any] = []

    def lay(_found: Traffic, within: tuple[float, float]) -> Any:
        asked.append(within)
        return laid

    monkeypatch.setattr(prediction, "laid_out", lay)
    outcome = outcome_of(11.0, 12.0)

    found, found_causes = prediction._of_messages(traffic, outcome, excess, {})

    assert asked == [(10.0, 12.0)]
    assert sorted(found) == links
    if causes is not None:
        assert len(found_causes) == len(causes)
        for cause, (beginning, seconds) in zip(found_causes, causes, strict=True):
            assert cause.sentence.startswith(beginning)
            assert cause.seconds == seconds


def test_options_of_the_command_are_named_as_keys_of_a_lab() -> None:
    """The words --mark LINE, --mark and --skip become keys of a lab."""
    text = "state --mark LINE or --mark and --skip"
    found = prediction.unknown(0.125, Unfittable(text))
    assert found["reasons"] == [
        "state lab.prediction.mark: LINE or mark and lab.prediction.skip"
    ]
    assert (found["outcome"], found["error"], found["threshold"]) == (
        "unknown",
        None,
        0.125,
    )


@pytest.mark.parametrize(
    ("trust", "aim", "misses"),
    [
        (None, None, []),
        ("trusted", "agrees", ["prediction is differs, expected agrees"]),
        (
            "degraded",
            "agrees",
            [
                "verdict is trusted, expected degraded",
                "prediction is differs, expected agrees",
            ],
        ),
        ("trusted", "differs", []),
    ],
)
def test_what_was_expected_of_a_lab_is_compared(
    trust: str | None, aim: str | None, misses: list[str]
) -> None:
    """Its verdict and that on its prediction; what is not stated is not expected."""
    expect = SimpleNamespace(trust=trust, prediction=aim)
    file: Any = SimpleNamespace(lab=SimpleNamespace(expect=expect))
    result = {"trust": "trusted", "prediction": {"outcome": "differs"}}
    assert list_lab_misses(file, result) == misses


def test_links_are_asked_about_with_what_their_messages_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four packets of the slowest NIC, 5.792 ms, are a rough delay; 0.4 s a fifth."""
    rows = [(1.0, 0, 1, 7, 8, 1448), (1.004, 0, 1, 7, 8, 9448)]
    rows += [(2.0, 1, 0, 8, 7, 1448), (2.004, 1, 0, 8, 7, 9448)]
    traffic = traffic_of(*rows, nics=FAST)
    laid = laid_out(traffic, (0.0, 9.0))
    assert laid is not None
    schedule, fluid = laid
    schedule.flow_end[:, 0] = schedule.flow_start[:, 0]
    schedule.flow_end[:, 0] += (fluid.flow_end - fluid.flow_start)[:, 0]
    schedule.flow_end[:, 0] += [0.00575, 0.00585]
    asked: list[Any] = []

    def blame(_: Schedule, losses: list[tuple[int, float]], least: float) -> list[str]:
        asked.append((losses, least))
        return []

    monkeypatch.setattr(prediction, "laid_out", lambda *_: laid)
    monkeypatch.setattr(link_shares, "links_to_blame", blame)

    prediction._of_messages(traffic, outcome_of(11.0), 2.0, {})

    (((edge, seconds),), least), *others = asked
    assert others == []
    assert (edge, seconds) == (1, pytest.approx(0.00585))
    assert least == pytest.approx(0.4)


def test_what_delayed_messages_moved_the_end_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages lost 4 s together, and the end came 1 s late: a quarter of each."""
    edges = np.array([[0, 0], [1, 0], [2, 5]])
    cause = SimpleNamespace(sentence="slow", flows=edges)
    other = SimpleNamespace(sentence="unequal", flows=edges[1:2])
    asked: list[Any] = []

    def shares(_: Schedule, worst: list[tuple[int, int]], __: Any) -> str:
        asked.append(worst)
        return "shares"

    def slow(*arguments: Any) -> list[Any]:
        asked.append(arguments[1:3] + arguments[4:])
        return [cause]

    monkeypatch.setattr(link_shares, "max_min_shares", shares)
    monkeypatch.setattr(link_shares, "slow_links", slow)
    monkeypatch.setattr(link_shares, "unequal_shares", lambda *_: [other])
    links = [SimpleNamespace(name=name) for name in ("m0 out", "m1 in", "m1 out")]
    problem = SimpleNamespace(links=links, hops=[(0, 1), (2,), (2, 1)])
    schedule: Any = SimpleNamespace(problem=problem, flow_end=np.zeros((3, 1)))
    drifts = {(0, 0): 1.0, (1, 0): 2.5, (2, 0): 0.5}

    found = prediction._explain_losses(schedule, ["m1 in"], drifts, 1.0, {"m1 in": 0.9})

    assert asked == [[(0, 0), (2, 0)], (["m1 in"], "shares", {"m1 in": 0.9})]
    assert found == [LabCause("slow", 0.875), LabCause("unequal", 0.625)]
