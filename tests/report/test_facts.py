"""Facts of a run: of two figures of one kind each is where it belongs."""

from __future__ import annotations

from typing import Any

import pytest

from emu.report.death_bands import death_bands
from emu.report.explanation_tables import MOST_JOBS
from emu.report.facts import _computer, _prediction, _virtual, run_facts
from emu.report.figure_rows import cost_row, model_rows, pace_line, setup_row

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
