"""Faults that are stated or drawn: when, of what, and what is said of idle ones."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from emu.problem import Fault
from emu.problem.fields.cluster_section import ClusterSection
from emu.scenario.events_section import (
    CheckpointSection,
    EventSection,
    FailureSection,
    FailuresSection,
    failure_errors,
    idle_events,
    idle_faults,
)


def event(**keys: Any) -> EventSection:
    return EventSection.model_validate({"at": "4 s", **keys})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"cut": "core"}, [("core", math.inf, 0.0, False)]),
        ({"cut": "core", "for": "2 s"}, [("core", 6.0, 0.0, False)]),
        (
            {"cut": "m"},
            [("m out", math.inf, 0.0, False), ("m in", math.inf, 0.0, False)],
        ),
        ({"cut": "m", "direction": "in"}, [("m in", math.inf, 0.0, False)]),
        ({"cut": "m", "direction": "out"}, [("m out", math.inf, 0.0, False)]),
        (
            {"slow": "m", "by": 4, "direction": "both"},
            [("m out", math.inf, 0.25, False), ("m in", math.inf, 0.25, False)],
        ),
        # Without a direction its tasks are meant, not its NIC.
        ({"slow": "m", "by": 4}, [("m", math.inf, 0.25, True)]),
        ({"slow": "core", "by": 8}, [("core", math.inf, 0.125, False)]),
        ({"pause": "m", "for": "3 s"}, [("m", 7.0, 0.0, True)]),
        ({"link": "core", "bandwidth": "1 MB/s"}, []),
        ({"kill": "m"}, []),
    ],
)
def test_an_event_is_a_fault_of_a_link_or_of_a_machine(
    keys: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    found = [
        (fault.subject, fault.until, fault.factor, fault.of_machine)
        for fault in event(**keys).faults(["core"])
    ]
    assert found == expected
    assert {fault.since for fault in event(**keys).faults(["core"])} <= {4.0}


def test_new_rates_are_changes_of_both_directions() -> None:
    nic = {"in": "3 MB/s", "out": "5 MB/s"}
    changes = event(machine="m", nic=nic).changes()
    assert [(one.time, one.link, one.capacity) for one in changes] == [
        (4.0, "m out", 5e6),
        (4.0, "m in", 3e6),
    ]
    (change,) = event(link="core", bandwidth="7 MB/s").changes()
    assert (change.time, change.link, change.capacity) == (4.0, "core", 7e6)
    assert event(cut="core").changes() == ()


@pytest.mark.parametrize(("by", "fits"), [(1, False), (1.001, True), (1e6, True)])
def test_a_factor_is_above_one_and_at_most_a_million(by: float, *, fits: bool) -> None:
    if fits:
        assert event(slow="m", by=by).by == by
    else:
        with pytest.raises(ValidationError, match="write how many times slower"):
            event(slow="m", by=by)
    with pytest.raises(ValidationError, match="write how many times slower"):
        event(slow="m", by=1e6 + 1)


def test_an_event_at_the_end_comes_too_late_and_a_moment_before_it_does_not() -> None:
    progress = {"task": "a", "iteration": 1}
    events = [event(kill="a", at=progress), event(cut="m"), event(cut="m", at="9 s")]
    assert [*idle_events(events, 4.5)] == [
        "events[2]: at 9 s the job has ended, at 4.5 s: it changes nothing"
    ]
    assert len([*idle_events(events, 4.0)]) == 2
    assert len([*idle_events(events, 4.001)]) == 1


def section(**keys: Any) -> FailureSection:
    return FailureSection.model_validate({"every": "100 s", "for": "7 s", **keys})


def test_gaps_between_faults_have_the_stated_mean() -> None:
    """A gap is from the end of a fault to the next one's beginning."""
    times = np.array([*section(most=4000).draw("m", 3)])
    begins, ends = times.T
    assert len(times) == 4000
    np.testing.assert_allclose(ends - begins, 7.0)
    gaps = begins - np.concatenate([[0.0], ends[:-1]])
    assert (gaps >= 1e-7).all()
    assert gaps.mean() == pytest.approx(100.0, rel=0.05)
    # Exponential: as spread as they are long on average.
    assert gaps.std() == pytest.approx(100.0, rel=0.1)
    alone = np.array([*section(most=5, what="kill", **{"for": None}).draw("m", 3)])
    assert (alone[:, 0] == alone[:, 1]).all()
    assert [*section(most=3).draw("m", 3)] == [*section(most=9).draw("m", 3)][:3]
    assert [*section(most=3).draw("m", 4)] != [*section(most=3).draw("m", 3)]


CLUSTER = ClusterSection.model_validate(
    {
        "machines": [
            {"name": "a", "nic": "1 MB/s"},
            {"name": "b", "nic": "2 MB/s"},
            {"name": "bare", "nic": "none"},
        ],
        "links": [{"name": "core", "bandwidth": "5 MB/s"}],
        "routes": [
            {"from": ["a", "b"], "to": "bare", "through": ["out", "core"]},
            {"from": "bare", "to": ["a", "b"], "through": ["core", "in"]},
        ],
    }
).build()


def failures(**keys: Any) -> FailuresSection:
    return FailuresSection.model_validate(keys)


FOR = {"every": "100 s", "for": "7 s", "most": 2}


def test_cuts_are_of_both_directions_at_once_and_of_nics_alone() -> None:
    stated = failures(machine={**FOR, "what": "cut"})
    faults = stated.faults(CLUSTER, 5)
    subjects = [fault.subject for fault in faults]
    assert subjects == ["a out", "a in"] * 2 + ["b out", "b in"] * 2
    for outward, inward in zip(faults[::2], faults[1::2], strict=True):
        assert (outward.since, outward.until) == (inward.since, inward.until)
        assert (outward.factor, outward.of_machine) == (0.0, False)
    # Of both directions one counts.
    draws = [(faults[n].since, faults[n].subject[0]) for n in (0, 2, 4, 6)]
    assert stated.draws(CLUSTER, 5) == draws
    assert stated.cuts
    assert stated.mortal == 0.0
    assert stated.deaths(CLUSTER, 5) == []


def test_machines_slow_down_and_links_by_their_own_draws() -> None:
    stated = failures(
        machine={**FOR, "what": "slow", "by": 4}, link={**FOR, "what": "cut"}
    )
    by_key = stated.faults_by_key(CLUSTER, 5)
    assert [fault.subject for fault in by_key["machine"]] == [
        *("a", "a", "b", "b", "bare", "bare")
    ]
    assert {(f.factor, f.of_machine) for f in by_key["machine"]} == {(0.25, True)}
    assert [fault.subject for fault in by_key["link"]] == ["core", "core"]
    assert {(f.factor, f.of_machine) for f in by_key["link"]} == {(0.0, False)}
    assert stated.faults(CLUSTER, 5) == [*by_key["machine"], *by_key["link"]]
    assert len(stated.draws(CLUSTER, 5)) == 8
    assert not stated.cuts


def test_deaths_are_no_faults_and_go_by_the_section_s_own_seed() -> None:
    mortal = {"every": "100 s", "what": "kill", "most": 2}
    stated = failures(machine=mortal)
    deaths = stated.deaths(CLUSTER, 5)
    assert [name for _, name in deaths] == ["a", "a", "b", "b", "bare", "bare"]
    assert stated.mortal == 100.0
    assert stated.faults(CLUSTER, 5) == []
    assert stated.draws(CLUSTER, 5) == deaths
    own = failures(machine=mortal, seed=0)
    assert own.deaths(CLUSTER, 5) == own.deaths(CLUSTER, 6) == stated.deaths(CLUSTER, 0)
    assert stated.deaths(CLUSTER, 5) != stated.deaths(CLUSTER, 6)
    paused = {key: {**FOR, "what": "pause"} for key in ("machine",)}
    assert failures(**paused, seed=0).faults(CLUSTER, 5) == failures(**paused).faults(
        CLUSTER, 0
    )


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"machine": {**FOR, "what": "pause"}}, {}),
        ({"link": {**FOR, "what": "cut"}}, {}),
        ({"link": {**FOR, "what": "pause"}}, {"link.what": "a link has no tasks"}),
        (
            {"link": {"every": "1 s", "what": "kill"}},
            {"link.what": "a link has no tasks"},
        ),
        ({"machine": {"every": "1 s"}}, {"machine.for": "is missing, write how long"}),
        ({"machine": {**FOR, "what": "kill"}}, {"machine.for": "a machine is dead"}),
        ({"machine": {**FOR, "what": "slow"}}, {"machine.by": "is missing, write how"}),
        (
            {"machine": {**FOR, "by": 3}},
            {"machine.by": "is of what: slow, found pause"},
        ),
    ],
)
def test_keys_of_failures_that_contradict_each_other(
    keys: dict[str, Any], found: dict[str, str]
) -> None:
    problems = {
        ".".join(map(str, trail[1:])): problem
        for trail, problem in failure_errors(failures(**keys))
    }
    assert problems.keys() == found.keys()
    for key, words in found.items():
        assert problems[key].startswith(words)
    assert [*failure_errors(None)] == []


def test_faults_that_are_over_before_the_job_are_told_of_the_first() -> None:
    """Two of each at most: of a they end at 20 s, of b at 9, of c one has come."""
    stated = failures(machine=FOR)
    times = {"a": (3.0, 20.0), "b": (8.0, 9.0), "c": (1.0,)}
    faults = [
        Fault(name, since=0.5, until=until, factor=0.0, of_machine=True)
        for name, ends in times.items()
        for until in ends
    ]
    by_key = {"machine": faults, "link": []}
    (line,) = idle_faults(stated, by_key, 9.5)
    assert line == (
        "failures.machine: the 2 of b are over at 9 s, before the job: write a larger "
        "most"
    )
    assert [*idle_faults(stated, by_key, 9.0)] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [("1 iteration", 1), ("20 iterations", 20), ("10000000 iterations", 10**7)],
)
def test_iterations_are_written_with_their_unit(text: str, count: int) -> None:
    checkpoint = CheckpointSection.model_validate({"every": text})
    assert checkpoint.every == count
    assert checkpoint.model_dump()["every"] == f"{count} iterations"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0 iterations", "greater than or equal to 1 "),
        ("10000001 iterations", "less than or equal to 10000000 "),
        ("20 steps", "found '20 steps', write for example '20 iterations'"),
        (20, "found 20, write for example '20 iterations'"),
    ],
)
def test_other_iterations_are_refused(text: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        CheckpointSection.model_validate({"every": text})


def test_a_fault_never_begins_as_the_one_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A draw of 0 would be no gap at all: it is a billionth of the mean."""
    monkeypatch.setattr(
        np.random, "default_rng", lambda _: SimpleNamespace(random=lambda: 0.0)
    )
    (first, end), (second, _) = section(most=2).draw("m", 3)
    assert first == pytest.approx(1e-7, rel=1e-9)
    assert second - end == pytest.approx(1e-7, rel=1e-6)
