"""After a restart verdicts are on the whole job, and recovery is no share of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.experiment.attempts import (
    Ended,
    foreseen,
    outages_of,
    recovery_of,
    with_outages,
)
from emu.prediction.simulation import simulate
from emu.problem import Kill, Outages, Schedule
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads
from emu.testing.trials import Case, Trial, run_trial
from emu.trust.guards.schedule import headline_faults
from emu.trust.lateness import HostEffect, Lateness
from emu.trust.prediction import Outcome, judge_prediction
from emu.trust.verdict import HostFigures, Trust, decide
from tests.testing.trial_cases import DGTP

RESTARTS = """
checkpoint: {every: 2 iterations}
on_failure: restart
recovery: 2 s
"""


def dying(at: str = "1 s", kill: str = "w0") -> Experiment:
    event = f"events: [{{at: {at}, kill: {kill}}}]\n"
    text = DGTP.replace("iterations: 3", "iterations: 12")
    return prepare(loads(f"name: dying\n{text}{RESTARTS}{event}"))


def just_after_a_cut(cut: int = 6) -> Experiment:
    taken = dying().time_of_cut(cut)
    return dying(f"{1e3 * taken + 0.8:.4f} ms")


def ended_at(whole: Experiment, cut: int) -> tuple[Trial, Experiment, list[Ended]]:
    """Return the rest of a run, in virtual time, that went on from another cut."""
    (killed,) = whole.attempts().killed
    ended = Ended(0, cut, killed.ran, 0.1, 0.1, 2.0, "", killed=True)
    left = whole.beginning_at(cut, killed.ran + 2.0)
    return run_trial(Case.of(replace(left, kills=()))), left, [ended]


def judged(cut: int) -> tuple[float, Schedule, Schedule, Outcome, tuple[str, ...]]:
    whole = just_after_a_cut()
    trial, left, ended = ended_at(whole, cut)
    assert trial.run is not None
    alone = left.simulate()
    before = foreseen(whole, ended)
    run, (predicted, replayed) = with_outages(trial.run, (alone, alone), ended, before)
    prediction = judge_prediction(
        run.schedule,
        predicted,
        replayed,
        threshold=0.03,
    )
    assert prediction.error is not None
    words = prediction.reasons
    return prediction.error, run.schedule, predicted, prediction.outcome, words


def test_a_cut_that_the_simulation_had_and_the_run_had_not_is_a_difference() -> None:
    error, run, predicted, outcome, _ = judged(6)
    assert outcome is Outcome.AGREES
    assert abs(error) < 0.005

    error, run, predicted, outcome, reasons = judged(4)
    assert outcome is Outcome.DIFFERS
    up = predicted.makespan - 2.0  # 2 s of recovery would make half of it of any error
    assert error == pytest.approx((run.makespan - predicted.makespan) / up)
    assert error > 0.05
    assert any("attempts that ended" in words for words in reasons)
    whole = just_after_a_cut()
    assert predicted.makespan == whole.attempts().makespan


def test_what_died_by_itself_dies_in_the_simulation_as_well() -> None:
    """Late until then, so that an earlier cut was its last: +9 % in all."""
    calm = replace(just_after_a_cut(), kills=())
    ran = dying().time_of_cut(6) + 1e-3
    ended = [Ended(0, 4, ran, 0.1, 0.1, 2.0, "w0 died")]
    before = foreseen(calm, ended)
    assert before is not None
    (killed,) = before.killed
    assert killed.next_iteration == 6
    assert killed.ran == pytest.approx(ran)
    assert killed.error == "w0 died"
    assert foreseen(calm, []) is None
    assert outages_of(ended) == Outages(ran + 2.0, 2.0)


@dataclass(frozen=True)
class OneSchedule:
    """Stands for a run of which nothing else is asked."""

    schedule: Schedule


def written_in(at: float, kill: str) -> Experiment:
    """Return the job with a death in its file, at an instant of full precision."""
    return dying(f"{at!r} s", kill)


@pytest.mark.parametrize("kill", ["w0", "m0"])
@pytest.mark.parametrize(
    ("share", "is_stated"),
    [
        *itertools.product([0.01, 0.2, 0.5, 0.83, 1.001, 1.5, 4.0], [True, False]),
        # The process has ended: of a death that nobody stated that is not known.
        (0.999, True),
    ],
)
def test_a_job_with_deaths_is_predicted_as_its_file_with_them(
    share: float, kill: str, *, is_stated: bool
) -> None:
    """One timeline holds, past the end of the simulation too."""
    calm = replace(just_after_a_cut(), kills=())
    alone = calm.simulate()
    death = share * alone.length
    file = written_in(death, kill)
    # A late run that had kept the cut 4, or none, and died then.
    cut = 4 if share > 0.5 else 0
    ended = [Ended(0, cut, death, 0.1, 0.1, 2.0, "died", killed=is_stated)]
    left = calm.beginning_at(cut, death + 2.0)
    last = left.simulate()

    before = foreseen(file if is_stated else calm, ended)
    run: Any = OneSchedule(last)
    run, (predicted, replayed) = with_outages(run, (last, last), ended, before)
    simulated = file.attempts()
    assert predicted.makespan == pytest.approx(simulated.makespan, rel=1e-12)
    assert replayed.makespan == predicted.makespan
    assert run.schedule.makespan == pytest.approx(death + 2.0 + last.length)
    assert before is not None
    expected = simulated.makespan if is_stated else alone.makespan
    assert before.stated == pytest.approx(expected, rel=1e-12)
    content = recovery_of(ended, run.schedule.makespan, predicted.makespan, before)
    assert content["recovery"]["foreseen_makespan"] == before.stated


def test_a_death_before_run_time_0_is_foreseen() -> None:
    """Recovery is part of the job, though nothing had run: it was left out."""
    calm = replace(just_after_a_cut(), kills=())
    ended = [Ended(0, 0, 0.0, 0.0, 0.1, 2.0, "w0 died", victims=("w0",))]
    before = foreseen(calm, ended)

    assert before is not None
    assert len(before.killed) == 1
    assert before.makespan == pytest.approx(2.0 + calm.simulate().makespan)


def test_what_is_foreseen_begins_with_the_first_attempt() -> None:
    calm = replace(just_after_a_cut(), kills=())
    ran = dying().time_of_cut(6) + 1e-3
    first = Ended(0, 6, ran, 0.1, 0.1, 2.0, "w0 died")
    second = Ended(6, 6, 0.1, 0.1, 0.1, 2.0, "w1 died", began=ran + 2.0)
    before = foreseen(calm, [first, second])

    assert before is not None
    assert [(one.first_iteration, one.error) for one in before.killed] == [
        (0, "w0 died"),
        (6, "w1 died"),
    ]


@pytest.mark.parametrize("deaths", [[0.7], [2.5], [1.0, 0.4]])
def test_a_crash_beside_other_jobs_has_all_begin_again(
    deaths: list[float],
) -> None:
    """As a run does: each of its attempts is part of what is predicted."""
    item = "job: {system: custom, iterations: 4, tasks: [{name: t, time: 1 s}]}"
    text = f"jobs: [{{name: a, {item}}}, {{name: b, {item}}}]\n"
    cluster = "cluster: {machines: [{count: 2, name: m, nic: 9 B/s}]}\n"
    more = "on_failure: restart\nrecovery: 2 s\n"
    whole = prepare(loads(f"name: several\n{cluster}{text}{more}"))
    began, ended = 0.0, []
    for ran in deaths:
        ended.append(Ended(0, 0, ran, ran, 0.1, 2.0, "b/t died", began=began))
        began += ran + 2.0

    before = foreseen(whole, ended)

    assert before is not None
    assert [one.ran for one in before.killed] == pytest.approx(deaths)
    assert before.makespan == pytest.approx(began + 4.0)
    killed = replace(whole, kills=(Kill(1.0, "m1", ("b/t",)),))
    with pytest.raises(ScenarioError, match="with several jobs"):
        killed.attempts()


EFFECT = HostEffect(10.0, 10.0, 10.0, 10.0)


@pytest.mark.parametrize(
    ("late", "trust"), [(0.05, "trusted"), (-0.2, "degraded"), (1.0, "untrusted")]
)
def test_attempts_that_ended_late_are_in_the_verdict(late: float, trust: str) -> None:
    """Of 15 s of which 5 are recovery, as foreseen, 1 % is 0.1 s."""
    effect = EFFECT.after(Outages(5.0 + late, 4.5), Outages(5.0, 5.0))
    assert effect.error == pytest.approx(abs(late) / 10.0)
    assert effect.punctual == 15.0
    verdict = decide(
        effect,
        Lateness(0.0, 0.0, 0.0),
        HostFigures(),
        time_scale=1.0,
        max_error=0.01,
        processes=3,
    )
    assert verdict.trust == Trust(trust)


def test_each_simulation_is_down_for_its_own_time() -> None:
    """Two seconds of what was expected are recovery, and four of the repetition."""
    whole = dying("0.4 s")
    made = whole.simulate()
    late = replace(made, outages=Outages(3.0, 2.0))
    predicted = replace(made, outages=Outages(4.0, 2.0))
    replayed = replace(made, outages=Outages(5.0, 4.0))
    length = made.makespan
    result = {
        "makespan": length + 3.0,
        "predicted_makespan": length + 4.0,
        "makespan_error": (length + 1.0) / (length + 2.0) - 1,
        "replayed_makespan": length + 5.0,
        "replay_error": (length - 1.0) / (length + 1.0) - 1,
    }

    _, violations = headline_faults(
        result, late, predicted, replayed, whole.realization
    )

    assert violations == []


@pytest.mark.parametrize(
    ("share", "is_reason"), [(0.8, True), (0.4, False), (-0.8, False)]
)
def test_attempts_are_a_reason_in_the_direction_of_the_difference(
    share: float, *, is_reason: bool
) -> None:
    """A run with longer attempts is late by these, one with shorter ones despite."""
    whole = dying("0.4 s")
    made = whole.simulate()
    times = whole.realization.times
    late_work = replace(whole.realization, times=2.5 * times)
    slow = simulate(whole.problem, late_work)
    seconds = slow.length - made.length
    dead = share / (1 - share) * seconds if is_reason else share * seconds
    run = replace(slow, outages=Outages(3.0 + dead, 2.0))
    predicted = replace(made, outages=Outages(3.0, 2.0))

    found = judge_prediction(run, predicted, predicted, threshold=0.01)

    assert found.outcome is Outcome.DIFFERS
    assert any("attempts" in words for words in found.reasons) is is_reason
    if is_reason:
        assert found.reasons == ("attempts that ended: 80 % of the difference",)


def test_a_headline_without_its_deaths_is_wrong() -> None:
    whole = dying("0.4 s")
    made = whole.simulate()
    died = replace(made, outages=Outages(3.0, 2.0))
    late = replace(made, outages=Outages(3.1, 2.0))
    error = 0.1 / (made.makespan + 1.0)
    right = {
        "makespan": late.makespan,
        "predicted_makespan": died.makespan,
        "makespan_error": error,
        "replayed_makespan": died.makespan,
        "replay_error": error,
    }

    def wrong(result: dict[str, Any]) -> set[str]:
        found = headline_faults(result, late, died, died, whole.realization)[1]
        return {violation.subject for violation in found}

    assert wrong(right) == set()
    assert wrong(right | {"bound": 0.1}) == {"gap", "bound"}
    for key, number in right.items():
        assert wrong(right | {key: number * (1 + 1e-6)}) == {key}
        # What is no number is no such number.
        for other in (str(number), [number], True):
            assert wrong({**right, key: other}) == {key}
    assert np.isclose(late.error_over(died), error)
