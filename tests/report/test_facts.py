"""Facts of a run: of two figures of one kind each is where it belongs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from emu.report.death_bands import death_bands
from emu.report.explanation_tables import MOST_JOBS
from emu.report.facts import (
    _computer,
    _draw,
    _learnt,
    _nic_facts,
    _prediction,
    _recovery,
    _say_choice,
    _virtual,
    _witness,
    lab_facts,
    run_facts,
)
from emu.report.figure_rows import (
    cost_row,
    model_rows,
    pace_line,
    pace_rows,
    setup_row,
)
from emu.report.terminal import Fact

RECOVERY = {
    "makespan": 40.0,
    "predicted_makespan": 30.0,
    "lost": {"recovery": 4.0, "again": 2.0},
    "predicted_lost": {"recovery": 5.0, "again": 3.0},
    "attempts": [
        {"next_iteration": 2, "error": "w1 died", "took": 6.0},
        {"next_iteration": 3, "error": "w0 died", "took": 7.0},
    ],
}
VERDICT = {
    "trust": "degraded",
    "error": 0.006,
    "max_error": 0.01,
    "reasons": [],
    "remedies": [],
}
LEARNT = [{"loss": 3.5}, {"loss": 2.5}, {"loss": 1.5}]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (
            {"transport": {"early_wall_seconds": 0.002, "flows": 9, "late_flows": 4}},
            ["2 ms ahead of what", "4 of 9 late"],
        ),
        (
            {"transport": {"early_wall_seconds": -0.002, "flows": 9, "late_flows": 4}},
            ["2 ms after what", "4 of 9 late"],
        ),
        ({"training": LEARNT}, ["training loss 1.5000 from 3.5000 at first"]),
        (
            {"reads_apart": {"count": 1500, "other": 2, "accuracy": -0.25}},
            ["2 of 1,500", "before the run; accuracy is -0.2500 off the simulated"],
        ),
        ({"diverged": 4, "training": LEARNT}, ["training diverged at step 4"]),
        (
            {"jobs": [{"job": "a", "slowdown": 2.0, "alone": 3.0, "seconds": 6.0}]},
            ["job a 6 s 2.000 times 3 s alone"],
        ),
        (
            {"makespan_error": 0.1, "predicted_makespan": 10.0},
            ["makespan error +10 % of 10 s predicted before"],
        ),
        (
            {"replay_error": 0.2, "replayed_makespan": 9.0},
            ["replay error +20 % of 9 s simulated with the times"],
        ),
        (
            {"recovery": RECOVERY, "makespan": 12.0},
            ["lost to deaths 6 s in 2", "took 13 s of wall", "simulated 5 s recovery",
             "from iteration 3"],
        ),
        (
            {"verdict": VERDICT | {"shift": 0.013}},
            ["verdict degraded the end is off by up to 1.3 %, 1 % may be"],
        ),
        (
            {"verdict": VERDICT},  # of an earlier emu
            ["verdict degraded the host moved the end by +0.6 %, 1 % may be"],
        ),
        (
            {"failures": {"m0": 2, "m1": 7, "l": 1, "x": 1, "y": 1}},
            ["failures 12 drawn m1 7, m0 2, l 1, x 1, 1 others"],
        ),
        (
            {"nics": {"shares": {"m0": {"out": 0.97, "in": 1.01}}, "seconds": 2.0},
             "network": "kernel", "sharing": "fair",
             "transport": {"segments": 80, "retransmitted": 7, "timeouts": 5}},
            ["-3 % off the stated rate at most (m0 out)", "7 again of 80 segments; 5"],
        ),
        (
            {"auto_scale": {"time_scale": 4.0, "trials": [1, 2], "held": True,
                            "actual": {"late_flows": 0.03},
                            "predicted": {"late_flows": 0.01}}},
            ["time scale 4 chosen by 2 trials; late flows 3 %, 1 % in the trial"],
        ),
        (
            {"auto_scale": {"time_scale": 4.0, "kernel": True,
                            "actual": {"delay": 0.09, "cpu_busy": 0.5},
                            "predicted": {"delay": 0.03, "cpu_busy": 0.25}}},
            ["first bytes 9 % (3 foreseen), cores 50% busy (25% by this run)",
             "too slow for it: state 12"],
        ),
    ],
)  # fmt: skip
def test_each_figure_is_told_beside_its_own(
    result: dict[str, Any], told: list[str]
) -> None:
    text = "\n".join(" ".join([*fact[:3]]) for fact in run_facts(result))
    for words in told:
        assert words in text


def test_what_was_done_again_is_the_end_of_an_attempt() -> None:
    """Of 10 s the last 3 are lost; 4 s down, then 8 s of which 1 is lost, and 2 s."""
    deaths = [
        {"ran": 10.0, "again": 3.0, "recovery": 4.0, "next_iteration": 5, "error": "a"},
        {"ran": 8.0, "again": 1.0, "recovery": 2.0, "next_iteration": 9, "error": "b"},
    ]
    bands = death_bands({"recovery": {"attempts": deaths}})
    assert [(band.what, band.since, band.until) for band in bands] == [
        ("done", -24.0, -17.0),
        ("done again", -17.0, -14.0),
        ("down", -14.0, -10.0),
        ("done", -10.0, -3.0),
        ("done again", -3.0, -2.0),
        ("down", -2.0, 0.0),
    ]


@pytest.mark.parametrize(
    ("makespan", "simulated", "error"),
    [(2.0, 2.1, "+5 %"), (2.0, 1.8, "-10 %"), (0.0, 1.0, "0 %")],
)
def test_the_job_of_a_virtual_run_is_told_beside_it(
    makespan: float, simulated: float, error: str
) -> None:
    steps = {"count": 0, "first": 0.0, "median": 0.0}
    figures: dict[str, Any] = {"makespan": makespan, "steps": steps}
    figures |= {"trust": "trusted", "reasons": []}
    fact = next(_virtual(figures, simulated, 4))
    assert fact.note.endswith(f"drawn here, {error}")


def test_what_has_no_prediction_is_not_judged_and_says_why() -> None:
    reasons = ["one way", "and another"]
    (fact,) = _prediction({"error": None, "outcome": None, "reasons": reasons})
    assert (fact.value, fact.note) == ("not judged", "one way; and another")
    assert [*_prediction(None)] == []


def test_of_very_many_jobs_those_that_were_slowed_down_most_are_told() -> None:
    """The slowest stands in the middle of the result, the fastest at both ends."""
    count = MOST_JOBS + 4
    jobs: list[dict[str, Any]] = [
        {
            "job": f"j{n}",
            "slowdown": 1.0 + min(n, count - n),
            "alone": 3.0,
            "seconds": 6.0,
        }
        for n in range(count)
    ]
    labels = [fact.label for fact in run_facts({"jobs": jobs})]
    job_labels = [label for label in labels if label.startswith("job")]
    slowest = max(jobs, key=lambda job: job["slowdown"])
    assert job_labels[:2] == ["jobs", f"job {slowest['job']}"]
    assert len(job_labels) == MOST_JOBS + 1
    assert not {"job j0", "job j1", f"job j{count - 1}"} & {*job_labels}


def test_memory_that_nobody_has_counted_is_left_out() -> None:
    """A run on several hosts was shown with "processes hold unknown"."""
    result: dict[str, Any] = {"wall_seconds": 3.0}
    result["startup"] = {"seconds": 2.0, "memory": 0}
    (uncounted,) = _computer(result)
    assert uncounted.note == "wall time, after 2 s to start"

    result["startup"] = {"seconds": 2.0, "memory": 2e6}
    (counted,) = _computer(result)
    assert counted.note == "wall time, after 2 s to start; processes hold 2 MB"


def test_rows_of_figures_say_of_what_they_are() -> None:
    """Causes without bytes are told by their seconds."""
    causes = {
        "features": {"bytes": 5e6, "seconds": 3.0},
        "planning": {"bytes": 0.0, "seconds": 0.25},
    }
    run = {"seconds": 4.0, "error": 0.5, "bytes": 7e6, "trust": "trusted"}
    length, note = setup_row({"causes": causes, "seconds": 2.0, "measured": run})
    assert length == "2 s"
    assert note == (
        "before time 0: 5 MB of features, 250 ms of planning; emulated 4 s (+50 %), "
        "7 MB arrived, trusted"
    )
    nothing = setup_row({"causes": {}, "seconds": 0.0})[1]
    assert nothing == "before time 0: nothing to send"

    cost = {"servers": 3.0, "lambdas": 0.0, "parameter_servers": 2.0, "lost": 0.5}
    total, words = cost_row({**cost, "total": 5.0, "value": 0.125})
    assert total == "5 $"
    assert words == (
        "servers 3 $, parameter servers 2 $, 0.5 $ of lambdas without an answer, "
        "value 0.125 / (s $)"
    )

    models = [{"program": "a:B", "flops": 2.5e9, "seconds": 0.5, "parameters": 1234}]
    ((_, parameters, words),) = model_rows(models)
    assert parameters == "1,234 parameters"
    assert words == "a:B, 2.5 GFLOP and 500 ms of CPU per batch of a worker"
    path = {"link a": 0.75, "gap": 0.25}
    pace = {"iteration_seconds": 0.125, "samples_per_second": 4800.0, "busy": 0.5}
    assert pace_line({**pace, "critical_path": path}) == (
        "iteration time 125 ms, samples 4,800 per s, workers busy 50%, "
        "critical path link a 75%, gap 25%"
    )


def told(facts: Iterable[Fact]) -> list[str]:
    """Return facts as lines."""
    return [" ".join([*fact[:3]]).strip() for fact in facts]


def test_a_makespan_says_when_its_flows_end_and_of_how_many_attempts() -> None:
    arrived = "a flow ends when its last byte is in the receiver's memory"
    fluid = "a flow ends with its rates; bytes may be ahead of them (fluid)"
    ends: list[tuple[dict[str, Any], str]] = [
        ({"flow_ends": "arrival"}, arrived),
        ({"flow_ends": "fluid"}, fluid),
        ({}, fluid),  # of an earlier emu
    ]
    for stated, meaning in ends:
        (line,) = told(run_facts({"makespan": 12.34567, **stated}, 3))[1:]
        assert line == f"emulated makespan 12.3 s {meaning}"

    recovery = RECOVERY | {"foreseen_makespan": 35.5}
    result = {"makespan": 12.0, "makespan_error": -0.25, "predicted_makespan": 16.0}
    lines = told(run_facts(result | {"recovery": recovery, "times": "measured"}))
    assert (
        f"emulated makespan 12 s of all attempts, the last from iteration 3 on; {fluid}"
        in lines
    )
    assert (
        "makespan error -25 % of 16 s with the deaths that came (35.5 s as foreseen); "
        "times were measured"
    ) in lines
    plain = told(run_facts(result))
    assert (
        "makespan error -25 % of 16 s predicted before the run; times were stated"
        in plain
    )


def test_what_deaths_cost_is_told_attempt_by_attempt() -> None:
    """Lost are 6 s of emulated time, simulated 8 s; the host took 13 s."""
    whole, host, first, second = told(_recovery(RECOVERY, 4))
    assert whole == (
        "lost to deaths 6 s in 2: 4 s recovery, 2 s again; simulated 5 s recovery, "
        "3 s again; recovery is as stated, and no part of the errors"
    )
    assert host == "this computer took 13 s of wall time to go on, not counted"
    assert first == "goes on at iteration 2: w1 died"
    assert second == "goes on at iteration 3: w0 died"


def test_the_nic_that_is_furthest_off_is_told_with_its_sign() -> None:
    """It is neither the first machine nor the largest share."""
    shares = {"m0": {"out": 1.02, "in": 0.99}, "m1": {"out": 1.0, "in": 0.75}}
    (line,) = told(_nic_facts({"shares": shares | {"m2": {"in": 1.1}}, "seconds": 2.5}))
    assert line == (
        "NICs -25 % off the stated rate at most (m1 in); measured in 2.5 s beforehand"
    )
    shares["m1"]["out"] = 1.5
    (line,) = told(_nic_facts({"shares": shares, "seconds": 2.5}))
    assert line.startswith("NICs +50 % off the stated rate at most (m1 out)")
    assert [*_nic_facts(None)] == []


def test_a_virtual_run_tells_its_steps_and_its_verdict() -> None:
    steps = {"count": 7, "first": 3.0, "median": 0.5}
    figures: dict[str, Any] = {"makespan": 8.0, "steps": steps}
    figures |= {"trust": "degraded", "reasons": ["one", "two"]}
    facts = [*_virtual(figures, 10.0, 4)]
    assert told(facts) == [
        (
            "virtual makespan 8 s by the clocks of the ranks; its job, simulated and "
            "drawn "
            "here, +25 %"
        ),
        "step 500 ms median of 7 steps but the first, which took 3 s",
        "verdict degraded",
        "reasons  one",
        "two",
    ]
    assert facts[2].style == "yellow"
    steps["count"] = 0
    assert "step" not in [fact.label for fact in _virtual(figures, 10.0, 4)]


def test_a_prediction_says_since_when_and_where_a_run_is_off() -> None:
    verdict: dict[str, Any] = {
        "error": -0.125,
        "outcome": "differs",
        "threshold": 0.03,
        "since": 2.5,
        "links": ["m0 out", "m1 in"],
        "reasons": ["late", "slow"],
    }
    facts = [*_prediction(verdict)]
    assert told(facts) == [
        (
            "prediction differs the run is off by -12.5 %, 3 % may be; since 2.5 s, on "
            "m0 out, m1 in"
        ),
        "likely reason  late",
        "slow",
    ]
    assert facts[0].style == "yellow"
    # A run may be off from its beginning.
    (agrees,) = _prediction(
        verdict | {"outcome": "agrees", "since": 0.0, "links": [], "reasons": []}
    )
    assert agrees.note == "the run is off by -12.5 %, 3 % may be; since 0 us"
    assert agrees.style == "green"
    (agrees,) = _prediction(verdict | {"since": None, "links": [], "reasons": []})
    assert agrees.note == "the run is off by -12.5 %, 3 % may be"


def test_a_run_alone_is_one_draw() -> None:
    """Its iterations tell how far another may be off; 0 is a spread as well."""
    further = "repeats one draw a further run may end otherwise: emu run FILE"
    assert [*_draw({})] == []
    assert told(_draw({"prediction": None})) == [f"{further} --repeat auto"]
    for spread, words in ((0.0, "0 %"), (0.025, "2.5 %")):
        (line,) = told(_draw({"prediction": None, "spread": spread}))
        assert line == (
            f"repeats one draw by its iterations a further run ends within {words} of "
            "it; --repeat auto measures that"
        )


def test_a_witness_over_packets_says_who_agrees_with_whom() -> None:
    """The one of three pairs without packets is the prediction and has no line."""
    pair = {
        "error": 0.5,
        "outcome": "differs",
        "threshold": 0.1,
        "since": None,
        "links": [],
        "reasons": [],
    }
    seen = {
        "makespans": {"fluid": 2.0, "measured": 3.0, "packets": 4.0},
        "ns3": "3.45",
        "congestion_control": "cubic",
        "sharing": "fair",
        "dropped": 1234,
        "pairs": [
            pair | {"of": "packets", "over": "fluid"},
            pair | {"of": "measured", "over": "packets", "error": -0.25},
            pair | {"of": "measured", "over": "fluid"},
        ],
    }
    assert told(_witness(seen, 4)) == [
        (
            "over packets 4 s beside 2 s by rates and 3 s measured: ns-3 3.45, "
            "cubic, fair "
            "queues, 1,234 packets dropped"
        ),
        "packets over fluid differs off by +50 %, 10 % may be",
        "measured over packets differs off by -25 %, 10 % may be",
    ]


def test_what_was_learnt_is_told_of_each_job_and_split() -> None:
    transport = {"early_wall_seconds": 0.0, "flows": 9}
    result = {
        "transport": transport,
        "jobs": [
            {"job": "a", "diverged": 0, "slowdown": 1.0, "alone": 2.0, "seconds": 3.0}
        ],
        "accuracy": {"validation": 0.5, "test": 0.25},
        "reads_apart": {"count": 1500, "other": 2},
    }
    assert told(_learnt(result)) == [
        (
            "last bytes 0 us ahead of what their rates had carried (wall time, "
            "median); 0 "
            "of 9 late"
        ),
        "training diverged at step 0 a",
        "validation accuracy 0.5000",
        "test accuracy 0.2500",
        "other reads 2 of 1,500 than simulated before the run",
        "job a 3 s 1.000 times 2 s alone",
    ]


def test_exactly_as_many_jobs_as_are_shown_keep_their_order() -> None:
    jobs = [
        {"job": f"j{n}", "slowdown": float(n), "alone": 3.0, "seconds": 6.0}
        for n in range(MOST_JOBS)
    ]
    labels = [fact.label for fact in run_facts({"jobs": jobs})][1:]
    assert labels == [f"job j{n}" for n in range(MOST_JOBS)]


def test_hosts_are_told_with_their_machines() -> None:
    hosts = [{"host": "a", "machines": ["m0", "m1"]}, {"host": "b", "machines": ["m2"]}]
    assert told(_computer({"hosts": hosts})) == ["hosts 2 a: m0, m1; b: m2"]


@pytest.mark.parametrize(
    ("actual", "foreseen", "advice"),
    [
        (0.06, 0.03, ""),  # twice as much is still what was aimed at
        (0.0625, 0.03125, ""),
        (0.0635, 0.03125, "; this host is too slow for it: state 8.1"),
        (0.5, 0.0, ""),
    ],
)
def test_a_scale_that_a_host_is_too_slow_for_names_a_larger_one(
    actual: float, foreseen: float, advice: str
) -> None:
    choice = {
        "kernel": True,
        "time_scale": 4.0,
        "actual": {"delay": actual, "cpu_busy": 0.5},
        "predicted": {"delay": foreseen, "cpu_busy": 0.25},
    }
    assert _say_choice(choice).endswith(f"cores 50% busy (25% by this run){advice}")


def test_a_scale_that_no_trial_met_was_not_tried() -> None:
    choice = {
        "time_scale": 4.0,
        "trials": [1, 2, 3],
        "held": False,
        "actual": {"late_flows": 0.03},
        "predicted": {"late_flows": 0.01},
    }
    assert _say_choice(choice) == (
        "chosen by 3 trials; late flows 3 %; untried, as no trial met the aims"
    )


LAB: Any = {
    "time_scale": 4.0,
    "wall_seconds": 12.0,
    "startup_seconds": 2.5,
    "trust": "degraded",
    "dropped": {"m0": {"out": 3, "in": 4}, "m1": {"out": 1000}},
    "tcp": {
        "m0": {"retransmitted": 700, "timeouts": 2},
        "m1": {"retransmitted": 800, "timeouts": 3},
    },
    "computed_seconds": 1.5,
    "waited_seconds": 0.5,
    "crossed": {
        "bytes": {"m0": {"m1": 2e6}, "m1": {"m0": 1e6, "m2": 4e6}},
        "packets": 5000,
        "messages": 1100,
        "shared_queues": 2,
    },
    "cpu": {"m0": 2.0, "m1": 0.5},
    "early_seconds": 0.25,
}


def test_a_lab_tells_its_machines_seconds_and_sums_of_all_machines() -> None:
    """Twelve wall seconds are three of the machines at four times their length."""
    assert told(lab_facts(LAB)) == [
        "time 3 s time scale 4: took 12 s; machines took 2.5 s to start",
        (
            "verdict degraded programs computed 1.5 s and waited 500 ms for a core; "
            "of 0.5 "
            "to 2 cores each; 250 ms early after pauses"
        ),
        "sent again 1,500 segments; 5 timeouts",
        "dropped by queues 1,007 packets",
        "payload 7 MB 5,000 packets, 1,100 messages",
        (
            "shared queues 2 pairs of connections met in one queue of a NIC: less than "
            "their fair share"
        ),
    ]
    plain = LAB | {"time_scale": 1.0, "crossed": None, "cpu": {"m0": 2.0, "m1": 2.0}}
    del plain["early_seconds"]
    lines = told(lab_facts(plain))
    assert lines[0] == "time 12 s real time; machines took 2.5 s to start"
    assert lines[1].endswith("of 2 cores each; 0 us early after pauses")
    assert len(lines) == 4
    assert told(lab_facts(plain | {"cpu": None}))[1].endswith("500 ms for a core")


def test_relaunches_and_settings_are_told_with_their_counts() -> None:
    result = {
        "scenario": "s",
        "iterations": 12,
        "credit_window": 3,
        "processes": 7,
        "policy": "oes",
        "relaunches": {"count": 9, "late": 4, "seconds": 2.5},
    }
    assert told(run_facts(result)) == [
        "scenario s 12 iterations, credit window 3, 7 processes, rates by oes",
        (
            "launched again 9 lambdas 4 for one that answered too late, 2.5 s waited "
            "for "
            "them"
        ),
    ]


def test_paces_are_told_row_by_row_and_zero_is_a_figure() -> None:
    """Setup that takes nothing, and a program whose time nobody uses."""
    pace = {"iteration_seconds": 0.0, "samples_per_second": 0.0, "busy": 0.0}
    assert pace_rows(pace) == [
        ("iteration time", "0 us", "mean between their ends"),
        ("samples", "0 per s", "seeds of all workers"),
        ("workers busy", "0%", "of the makespan, the mean over workers"),
    ]
    assert pace_rows({}) == []
    assert pace_line({"critical_path": {"gap": 1.0}}) == "critical path gap 100%"
    model = {"program": "a:B", "flops": 5e8, "seconds": 0.5, "parameters": 7}
    ((_, _, words),) = model_rows([model | {"seconds_used": False}])
    assert words == "a:B, 0.5 GFLOP per batch of a worker"
    cost = {"servers": 0.0, "lambdas": 1.0, "parameter_servers": 0.0}
    assert cost_row(cost | {"total": 1.0, "value": None}) == ("1 $", "lambdas 1 $")


def test_a_lower_bound_stands_beside_the_makespan() -> None:
    result = {"gap": 0.25, "bound": 1.23456789, "bound_by": "m0 out"}
    (line,) = told(run_facts(result, 3))[1:]
    assert line == (
        "lower bound 1.23 s at least 1.235 s as placed, whatever the schedule (m0 "
        "out): within 25 %"
    )
    assert len(run_facts({"gap": None})) == 1
    cost = {"servers": 3.0, "lambdas": 0.0, "parameter_servers": 0.0, "total": 3.0}
    assert told(run_facts({"cost": cost | {"value": None}}))[1:] == [
        "cost 3 $ servers 3 $"
    ]


def test_figures_have_so_many_digits() -> None:
    """A figure is printed with as many digits as its table states."""
    seconds = 1.23456789
    causes = {"planning": {"bytes": 0.0, "seconds": seconds}}
    run = {"seconds": seconds, "error": 0.5, "bytes": 7e6, "trust": "trusted"}
    length, note = setup_row({"causes": causes, "seconds": seconds, "measured": run})
    assert length == "1.235 s"
    assert note.startswith("before time 0: 1.235 s of planning; emulated 1.235 s (")
    model = {"program": "a:B", "flops": 1.23456e9, "seconds": seconds, "parameters": 7}
    ((_, _, words),) = model_rows([model])
    assert words == "a:B, 1.23 GFLOP and 1.23 s of CPU per batch of a worker"
    pace = {"samples_per_second": seconds, "iteration_seconds": seconds}
    assert [row[1] for row in pace_rows(pace)] == ["1.235 s", "1.235 per s"]
    cost = {"servers": 0.0, "lambdas": 0.0, "parameter_servers": 0.0, "total": 1.0}
    assert cost_row({**cost, "value": seconds})[1] == "value 1.235 / (s $)"
    jobs = [{"job": "a", "slowdown": seconds, "alone": seconds, "seconds": seconds}]
    assert "job a 1.235 s 1.235 times 1.235 s alone" in told(run_facts({"jobs": jobs}))
