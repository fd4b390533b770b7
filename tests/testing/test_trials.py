"""Whole runs in virtual time: exact without faults, and survived or explained with."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from unittest import mock

import numpy as np
import pytest

from emu.emulation.coordinator.run import Coordinator
from emu.emulation.network.clock import RunClock
from emu.emulation.shaping import pace_at
from emu.prediction.simulation import simulate
from emu.scenario import load, prepare
from emu.testing.trials import (
    PROMPT,
    Case,
    Damage,
    Faults,
    Trial,
    Trials,
    run_trial,
    wires,
)
from tests import draws
from tests.integration.scenarios import GOLDEN
from tests.testing.trial_cases import CASES, experiment

#: CPU seconds of the trials with fresh seeds.
BUDGET = 1.0


@cache
def golden(hosts: int = 1) -> Trials:
    edits = ["emulation.time_scale=0.02", "emulation.byte_scale=100"]
    return Trials(Case.of(prepare(load(GOLDEN, edits)), hosts=hosts))


def ended_well(trials: Trials, seed: int, name: str) -> Trial:
    trial = trials.run(seed)
    again = name if "(" in name else f"Trials(Case.of(experiment({name!r})))"
    assert trial.complaints == [], (
        f"seed {seed}: {trial.faults}; {again}.run({seed}) in this file repeats it"
    )
    return trial


def test_a_run_takes_as_long_as_its_makespan() -> None:
    """Its last end is settled ahead: the run took 25 to 50 ms less than it said."""
    run = run_trial(golden().case).run
    assert run is not None
    assert run.wall == pytest.approx(run.schedule.makespan * 0.02, rel=1e-12)


def test_a_run_whose_coordinator_is_late_took_longer_than_its_makespan() -> None:
    """It comes back a second after it has settled the last end, 20 ms ahead of it."""
    drive = Coordinator._drive

    async def drive_late(coordinator: Coordinator, clock: RunClock) -> None:
        await drive(coordinator, clock)
        await asyncio.sleep(1.0)

    case = golden().case  # kept for other tests: run before anything is replaced
    with mock.patch.object(Coordinator, "_drive", drive_late):
        run = run_trial(case).run
    assert run is not None
    assert run.wall == pytest.approx(run.schedule.makespan * 0.02 + 0.98, abs=1e-6)


@pytest.mark.parametrize("name", draws.rarely_but(2, CASES))
def test_every_system_takes_what_was_simulated_and_survives(name: str) -> None:
    trials = Trials(Case.of(experiment(name)))  # it compares the makespans to 1e-6
    assert trials.longest_wait < 1e-5
    for seed in draws.some(range(3), few=1):
        ended_well(trials, seed, name)


@pytest.mark.parametrize(
    ("epoch", "name"), draws.grid([1.0, 2.4e6, 3e7], ["dgtp", "dgcl"])
)
def test_time_goes_on_wherever_its_clock_began(name: str, epoch: float) -> None:
    """Beyond 10^6 s a turn is less than a float tells: an attempt spun for ever."""
    case = Case.of(experiment(name))
    with mock.patch.object(wires, "EPOCH", epoch):
        trial = run_trial(case)
    assert (trial.complaints, trial.error) == ([], None)
    assert trial.run is not None
    simulated = simulate(case.problem, case.expected, case.policy).makespan
    assert trial.run.schedule.makespan == pytest.approx(simulated, abs=1e-4)


def test_results_after_faults_are_those_that_were_trained() -> None:
    trials = Trials(Case.of(experiment("dgtp"), compute="padded"))
    assert trials.undisturbed.run is not None
    weights = trials.undisturbed.run.results["ps0"]["parameters"]
    assert np.abs(weights).max() > 0

    runs = [ended_well(trials, seed, "dgtp") for seed in range(12)]

    assert {trial.run is None for trial in runs} == {True, False}


def test_a_coordinator_dies_with_bytes_left_to_send() -> None:
    """Unwinding it closed a connection whose socket had died: a ValueError."""
    faults = Faults(26112600025, calm=False, deaths={"coordinator": 185})

    trial = run_trial(Case.of(experiment("dgtp")), faults)

    assert trial.run is None
    assert trial.complaints == []


def digests() -> list[str]:
    deaths = ({"agent host0": 20}, {"agent host1": 24}, {"w0": 30})
    drawn = [*map(golden(hosts=2).faults, draws.some(range(6)))]
    drawn += [Faults(seed, calm=False, deaths=d) for seed, d in enumerate(deaths)]
    return [run_trial(golden(hosts=2).case, faults).digest for faults in drawn]


def test_a_seed_is_one_run_to_the_byte() -> None:
    """Another process has other hashes of names, addresses, folders and numbers."""
    command = "from tests.testing.test_trials import digests; print(digests())"
    elsewhere = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )

    here = digests()

    assert len({*here}) == len(here)
    assert elsewhere.stdout.strip() == str(here)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_process_may_die_at_any_step() -> None:
    """Steps of every kind of process, without any other disturbance."""
    trials = golden()
    for name in ("coordinator", "agent host0", "g0"):
        for step in range(1, trials.undisturbed.steps[name] + 1, 3 * draws.SHARE):
            trial = trials.judge(Faults(deaths={name: step}))
            assert trial.complaints == [], (name, step)
            assert trial.happened == [name], step


def test_fresh_seeds_of_the_golden_job() -> None:
    began, first = time.process_time(), time.time_ns() % 10**9
    for seed in range(first, first + 100_000):
        hosts = 1 + seed % 2
        ended_well(golden(hosts), seed, f"golden({hosts})")
        if time.process_time() - began > BUDGET:
            break


# Bugs that trials have found.


@pytest.mark.parametrize("byte", [146, 630])
def test_a_frame_that_a_reset_took_along_is_missed_at_once(byte: int) -> None:
    """Seeds 35 and 131: its sender was done with it, its receiver not yet asked."""
    wire = 2 * golden().undisturbed.ends.index(("ps0", "w0"))
    trial = golden().judge(Faults(damages=(Damage(wire, byte, "reset"),)))

    assert trial.complaints == []
    assert trial.noticed < PROMPT
    assert "flow ps0->w0: the sender of edge 7 has gone" in str(trial.error)


def test_the_last_frame_is_missed_as_well() -> None:
    """The store sends nothing after it: no later error can stand in."""
    seen = golden().undisturbed
    wire = 2 * seen.ends.index(("g1", "s0"))
    last = Damage(wire, seen.carried[wire] - 1, "reset")

    trial = golden().judge(Faults(damages=(last,)))

    assert trial.complaints == []
    assert trial.noticed < PROMPT
    assert "flow g1->s0: the sender of edge 2 has gone" in str(trial.error)


def test_a_killed_process_is_known_as_killed() -> None:
    trial = golden().judge(Faults(deaths={"w0": 30}))

    assert trial.complaints == []
    assert str(trial.error).startswith("process w0 was killed by SIGKILL (")


def test_an_altered_length_of_a_message_is_noticed_at_once() -> None:
    """Seed 694249141: an agent waited for the rest until the deadline of the run.

    Where the four bytes of a length stand depends on how long the messages before are.
    """
    trials, errors = golden(2), list[str]()
    for byte in range(3202, 3602, 4):
        trial = trials.judge(Faults(damages=(Damage(1, byte, "corrupt"),)))
        assert trial.complaints == []
        errors.append(str(trial.error))
        if "host0 closed its connection" in errors[-1]:
            return
    pytest.fail(f"no byte was of a length: {errors[-1]}")


def test_an_altered_byte_of_a_payload_is_an_error() -> None:
    """Seed 107 of dorylus: weights were others, and nobody said so."""
    trials = Trials(Case.of(experiment("dorylus")))
    seen = trials.undisturbed
    wire = 2 * seen.ends.index(("parameters0", "lambda0"))
    altered = Damage(wire, seen.carried[wire] - 1, "corrupt")

    trial = trials.judge(Faults(damages=(altered,)))

    assert trial.complaints == []
    assert "a frame was altered on its way" in str(trial.error)


# The world itself.


def test_waits_of_at_most_a_look_are_simulated() -> None:
    trials = golden()
    run = trials.undisturbed.run
    assert run is not None
    on_time = run.schedule.makespan
    settings = trials.case.settings
    look = pace_at(settings.time_scale, settings).shortest / settings.time_scale
    times = trials.case.expected.times

    for wait, is_simulated in ((0.9 * look, True), (1.1 * look, False)):
        perturbed = replace(run.perturbed, times=times + wait)
        makespan = trials.simulate_late(replace(run, perturbed=perturbed))
        assert makespan > on_time + look if is_simulated else makespan < on_time + 1e-6


def test_volumes_are_simulated_in_whole_bytes() -> None:
    """A third of 200 bytes is none that sockets carry: they carry 33 of each half."""
    tasks = [
        {"name": f"w{rank}", "time": "1 s", "pin": f"m{rank}"} for rank in range(3)
    ]
    allreduce = {"among": ["w0", "w1", "w2"], "volume": "200 B"}
    scenario = load(
        GOLDEN,
        {
            "cluster.machines": [{"count": 3, "nic": "10 B/s"}],
            "job.tasks": tasks,
            "job.flows": None,
            "job.collectives": [{"allreduce": allreduce}],
            "placement": None,
            "expect": None,
            "emulation.byte_scale": 1,
        },
    )
    trials = Trials(Case.of(prepare(scenario)))

    assert trials.undisturbed.complaints == []


def test_what_is_complained_of() -> None:
    """A makespan that is off, results that differ, a culprit that is not named."""
    trials, fewer = golden(), Faults(deaths={"w0": 30})
    other_bytes = replace(trials.case.settings, byte_scale=3.0)
    with pytest.raises(AssertionError, match=r"its makespan is .* s off the simulated"):
        Trials(replace(trials.case, settings=other_bytes))
    blamed = replace(run_trial(trials.case, fewer), happened=["g1"])
    late = replace(run_trial(trials.case, fewer), noticed=PROMPT + 1)
    silent = replace(run_trial(trials.case, fewer), error=None)
    run = trials.undisturbed.run
    assert run is not None
    more = replace(run.realization, volumes=run.realization.volumes + 1)
    other = replace(trials.undisturbed, run=replace(run, realization=more))

    found = [list(trials.wrong(each)) for each in (blamed, late, silent, other)]

    for (complaint,), words in zip(
        found,
        ("none of ['g1'] is named", "it took 4.0 s", "neither", "volumes differ"),
        strict=True,
    ):
        assert words in complaint
