"""A job that died goes on from its last cut: the weights are those of no death."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.emulation.coordinator import EmulatedRun, Observer
from emu.errors import NodeMisbehaved
from emu.experiment.attempts import (
    Ended,
    cut_plan,
    outages_of,
    recovery_of,
    run_attempts,
)
from emu.problem.job import Cut
from emu.problem.workloads import copies_of
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.scenario_file import loads
from emu.systems.system import tasks_with_state_of
from emu.testing.trials import Case, Faults, Trial, Trials, run_trial
from tests import draws
from tests.testing.trial_cases import CASES

ITERATIONS, EVERY = 5, 2
CUTS = [2, 4]
#: Tests that try each third daily begin at several of them: all are tried by some.
ABLE = ("dgtp", "ring", "data_parallel", "p3", "dgcl", "dorylus")
_DORYLUS = CASES["dorylus-dying"]
OTHERS = {
    "dorylus-dying": _DORYLUS,
    "dorylus-no-pipe": _DORYLUS.replace("pipe", "no_pipe").replace("[ps]", "[ps, g0]"),
    "dorylus-gat": CASES["dorylus"]
    .replace("hidden: 4", "kind: gat, hidden: 4")
    .replace("scatter: 4 ms", "scatter: 4 ms, edge_apply: 20 ms"),
    "dgcl-cached": CASES["dgcl"].replace("  cache_features: false\n", ""),
    "p3-B": CASES["p3"] + "  pipeline: B\n",
    "p3-none": CASES["p3"] + "  pipeline: none\n",
    "p3-groups": CASES["p3"].replace("count: 3", "count: 4") + "  cache: 2\n",
}


#: Jobs whose checkpoints are flows to other machines.
PEERS = tuple(f"{name} to peer" for name in ("dgtp", "p3-B", "dgcl", "dorylus"))


def kept_scenario(name: str, more: str = "") -> Scenario:
    name, _, to = name.partition(" to ")
    text = re.sub(
        "(iterations|epochs): [23]", rf"\1: {ITERATIONS}", (CASES | OTHERS)[name]
    )
    checkpoint = f"checkpoint: {{every: {EVERY} iterations, to: {to or 'disk'}}}"
    # In the last 0.5 ms of wall time of a flow its sender sees no rise of its rate: at
    # time scale 1 nine iterations of data_parallel ended 30 us after the simulated end.
    padded = "emulation: {compute: padded, time_scale: 10}"
    return loads(f"name: {name}\n{text}\nseed: 7\n{checkpoint}\n{padded}\n{more}\n")


@cache
def kept(name: str) -> Trials:
    return Trials(Case.of(prepare(kept_scenario(name))))


def survived(case: Case, faults: Faults, again: Faults | None = None) -> list[Trial]:
    """Return all attempts; only the first two suffer."""
    attempts = [run_trial(case, faults)]
    for next_faults in (again or Faults(), Faults()):
        last = attempts[-1]
        assert last.complaints == []
        if last.run is not None:
            break
        case = case.after(last.cuts[-1]) if last.cuts else case
        attempts.append(run_trial(case, next_faults))
    return attempts


def weights(trial: Trial) -> dict[str, bytes]:
    assert trial.run is not None, trial.error
    return {
        task: b"".join(array.tobytes() for array in arrays.values())
        for task, arrays in trial.run.results.items()
        if "dropped" not in arrays
    }


def learnt(run: EmulatedRun) -> dict[tuple[str, int], Any]:
    """Return the loss of every mini-batch, by task."""
    return {(task, n): told for _, task, n, told in run.reports if "loss" in told}


def death(trials: Trials, seed: int) -> Faults:
    """Return the death of any process at any of its steps."""
    rng, steps = np.random.default_rng(seed), trials.undisturbed.steps
    name = sorted(steps)[rng.integers(len(steps))]
    return Faults(seed, deaths={name: int(rng.integers(1, steps[name] + 1))})


@pytest.mark.parametrize("name", draws.rarely_but(3, ABLE[::-1]))
def test_weights_after_drawn_faults_are_those_of_none(name: str) -> None:
    """At least 2 seeds, and until attempts have begun with every cut."""
    trials, began = kept(name), set[int]()
    assert [cut.iteration for cut in trials.undisturbed.cuts] == CUTS
    for seed in range(24):
        attempts = survived(trials.case, death(trials, seed), trials.faults(seed))
        assert weights(attempts[-1]) == weights(trials.undisturbed), f"seed {seed}"
        began |= {cut.iteration for one in attempts[:-1] for cut in one.cuts[-1:]}
        if seed >= 1 and began == {*CUTS}:
            break
    assert began == {*CUTS}


@pytest.mark.parametrize("name", PEERS)
def test_what_comes_to_peers_is_what_a_disk_keeps_and_as_large_as_was_simulated(
    name: str,
) -> None:
    trials, disk = kept(name), kept(name.removesuffix(" to peer")).undisturbed
    case, found = trials.case, trials.undisturbed
    for mine, theirs in zip(found.cuts, disk.cuts, strict=True):
        assert mine.iteration == theirs.iteration
        assert mine.states.keys() == theirs.states.keys()
        for owner, state in theirs.states.items():
            assert mine.states[owner].keys() == state.keys()
            for tensor, array in state.items():
                np.testing.assert_array_equal(mine.states[owner][tensor], array)
    assert found.run is not None
    job, copies = case.problem.job, copies_of(case.problem.job)
    for edge, there in enumerate(job.edges):
        owner = job.tasks[there.source].name
        if there.destination == copies.get(owner):
            sent = found.run.realization.volumes[edge]
            sizes = [
                sum(array.nbytes for array in cut.states[owner].values())
                for cut in found.cuts
            ]
            assert sent[sent > 0].tolist() == sizes
            np.testing.assert_array_equal(sent, case.expected.volumes[edge])
            assert case.problem.hops[edge]
    own = weights(disk)
    assert {task: weights(found)[task] for task in own} == own


@pytest.mark.parametrize(
    "name",
    [*draws.rarely_but(3, [*ABLE, *OTHERS]), draws.rarely(PEERS[0]), PEERS[1]],
)
def test_what_is_left_after_any_cut_gives_the_same_weights_and_losses(
    name: str,
) -> None:
    trials = kept(name)
    whole = trials.undisturbed.run
    assert whole is not None
    # The last first: of the first one P3 has no moments yet that could be lost.
    for cut in draws.some(trials.undisturbed.cuts[::-1], few=1):
        rest = trials.case.after(cut)
        left = run_trial(rest)
        assert left.complaints == []
        assert weights(left) == weights(trials.undisturbed)
        assert left.run is not None
        moves = np.array([bool(crossed) for crossed in rest.problem.hops])
        sent = ~np.isnan(left.run.schedule.flow_ready) & moves[:, np.newaxis]
        np.testing.assert_array_equal(
            left.run.realization.volumes[sent], rest.expected.volumes[sent]
        )
        losses, mine = map(learnt, (whole, left.run))
        late = {key: told for key, told in losses.items() if key[1] >= cut.iteration}
        assert mine == late != {}
        assert [each.iteration for each in left.cuts] == [
            n for n in CUTS if n > cut.iteration
        ]


@pytest.mark.parametrize("name", draws.rarely_but(3, (*ABLE[1:], *ABLE[:1])))
def test_cuts_change_neither_times_nor_weights(name: str) -> None:
    trials = kept(name)
    without = run_trial(replace(trials.case, every=0))
    assert without.cuts == []
    assert without.run is not None
    assert trials.undisturbed.run is not None
    assert weights(without) == weights(trials.undisturbed)
    ends = [t.schedule.makespan for t in (without.run, trials.undisturbed.run)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


def test_a_state_is_a_copy() -> None:
    """The steps after a cut change parameters and moments in place."""
    one, other = (run_trial(kept("dgtp").case) for _ in range(2))
    for mine, theirs in zip(one.cuts, other.cuts, strict=True):
        for name, array in mine.states["ps0"].items():
            np.testing.assert_array_equal(array, theirs.states["ps0"][name])
    steps = [int(cut.states["ps0"]["steps"][0]) for cut in one.cuts]
    assert steps == [cut.iteration for cut in one.cuts]


def test_a_cut_of_another_job_is_refused() -> None:
    trials, other = kept("dgtp"), kept("ring")
    cut = other.undisturbed.cuts[0]
    wrong = replace(cut, states={"ps0": {**cut.states["w0"], "first": np.zeros(3)}})
    trial = run_trial(trials.case.after(wrong))
    assert trial.run is None
    assert "is not that of an optimiser" in str(trial.error)
    assert not isinstance(trial.error, NodeMisbehaved)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_trials_leave_no_file_open() -> None:
    """After 72 of them a worker of the tests had 3,000, and `select` takes 1,023."""
    trials = kept("data_parallel")
    run_trial(trials.case, death(trials, 0))
    before = open_files()
    for seed in range(1, 6):
        run_trial(trials.case, death(trials, seed))
    assert open_files() <= before


def outlived(
    name: str, more: str, run: Path
) -> tuple[Experiment, EmulatedRun, list[Ended]]:
    """Return a job that restarts, in virtual time, as `emu run` carries it out."""
    scenario = kept_scenario(name, f"on_failure: restart\n{more}")
    whole = prepare(scenario)

    def once(
        left: Experiment, start: Cut | None, observer: Observer, _: object
    ) -> EmulatedRun:
        plan = cut_plan(left, run, start)
        assert plan is not None
        case = replace(
            Case.of(left), start=plan.start, kills=left.kills, began=left.began
        )
        trial = run_trial(case, observer=observer)
        assert trial.complaints == []
        for cut in trial.cuts:
            plan.keep(cut)
        if trial.error is not None:
            raise trial.error
        assert trial.run is not None
        return trial.run

    _, done, ended = run_attempts(whole, None, run, Observer(), once)
    return whole, done, ended


@pytest.mark.parametrize("name", draws.rarely_but(3, ABLE))
def test_what_comes_as_a_task_ends_an_iteration_comes_as_simulated(
    name: str, tmp_path: Path
) -> None:
    """Two kills, by drawn iterations of drawn tasks: the same cuts, at the same time.

    The second may be due before the job has gone on: it comes as that does.
    """
    trials = kept(name)
    undisturbed, job = trials.undisturbed, trials.case.problem.job
    assert undisturbed.run is not None
    able = [t for own in job.processes.values() for t in own if job.rounds[t] > 1]
    deaths = 0
    for seed in range(2 if name == "dgtp" else 1):
        rng = np.random.default_rng([seed, *name.encode()])
        events = []
        drawn = [(t, rng.integers(1, job.rounds[t])) for t in rng.choice(able, 2)]
        if name == "dgtp" and not seed:  # the second in an attempt that begins at 2
            drawn = [(job.index("w0"), 4), (job.index("ps0"), 4)]
        for task, iteration in drawn:
            at = f"{{task: {job.tasks[task].name}, iteration: {iteration}}}"
            events.append(f"{{at: {at}, kill: {rng.choice([*job.processes])}}}")
        stated = f"events: [{', '.join(events)}]\nrecovery: 0.7 s"
        whole, done, ended = outlived(name, stated, tmp_path / str(seed))
        simulated = whole.attempts()
        assert len(ended) == len(simulated.killed)
        deaths += len(ended)  # a process that has ended before cannot die
        for mine, theirs in zip(ended, simulated.killed, strict=True):
            assert mine.killed
            assert mine.next_iteration == theirs.next_iteration, (seed, events)
            assert mine.ran == pytest.approx(theirs.ran, abs=2e-3)
            assert mine.again == pytest.approx(theirs.again, abs=2e-3)
        assert weights(Trial(Faults(), run=done)) == weights(undisturbed)
    assert deaths


#: Of a job of 0.2 to 0.3 s that dies once or twice, down for 0.7 s each time: what
#: changes before it, meanwhile and after it.
CHANGES = (
    "{at: 0.05 s, slow: m1, by: 3, for: 1.1 s}",
    "{at: 0.3 s, pause: m0, for: 0.6 s}",
    "{at: 0.95 s, cut: m2, for: 0.1 s}",
    "{at: 0.4 s, machine: m2, nic: 40 Mbit/s}",
)


@pytest.mark.parametrize(
    ("name", "changes"),
    draws.rarely_but(
        3,
        [
            pytest.param(name, changes, id=f"{name}-{word}")
            for name in (*ABLE, PEERS[0])
            for word, changes in (("calm", ()), ("changing", CHANGES))
        ],
    ),
)
def test_what_a_scenario_kills_comes_as_simulated(
    name: str, changes: tuple[str, ...], tmp_path: Path
) -> None:
    """Two kills at drawn times: weights, iterations and lost seconds.

    When a kill comes is the coordinator's, whatever the system: dgtp has more seeds.
    """
    trials = kept(name)
    machines = trials.case.problem.cluster.machines
    names = [machine.name for machine in machines][:3]
    if not machines[0].has_nic:  # dgcl's devices: nothing to cut
        changes = changes[:2]
    undisturbed = trials.undisturbed
    assert undisturbed.run is not None
    deaths = 0
    # Not seed 0 alone: its kills may come after all ends of a process.
    others = draws.some((1, 0), few=1)
    for seed in draws.some(range(8)) if name == "dgtp" else others:
        rng = np.random.default_rng(seed)
        victims = rng.choice([*undisturbed.run.results, names[1]], 2)
        whole_length = undisturbed.run.schedule.makespan
        # Of seed 0 so near to the end that what ends then could be settled before it.
        first = rng.uniform(0.01, 0.9 * whole_length) if seed else whole_length - 1e-4
        second = first + rng.uniform(0.6, 0.8)
        # In microseconds: of a kill at the very instant of a restart a run, which sees
        # deaths a little late, makes one that comes before it.
        kills = [
            f"{{at: {at:.6f} s, kill: {victim}}}"
            for at, victim in zip((first, second), victims, strict=True)
        ]
        kills[1] = kills[1].replace("}", ", recovery: 0.9 s}")
        events = ", ".join([*kills, *changes])
        for number, machine in enumerate(names):
            events = re.sub(rf"\bm{number}\b", machine, events)
        stated = f"events: [{events}]\nrecovery: 0.7 s"
        whole, done, ended = outlived(name, stated, tmp_path / str(seed))
        simulated = whole.attempts()
        assert len(ended) == len(simulated.killed)
        deaths += len(ended)
        if not ended:  # of what had ended
            continue
        for mine, theirs in zip(ended, simulated.killed, strict=True):
            assert mine.killed
            assert any(victim in theirs.error for victim in victims)
            assert mine.next_iteration == theirs.next_iteration
            assert mine.recovery == pytest.approx(theirs.recovery, abs=2e-3)
            assert mine.ran == pytest.approx(theirs.ran, abs=2e-3)
            assert mine.again == pytest.approx(theirs.again, abs=2e-3)
        length = outages_of(ended).seconds + done.schedule.makespan
        found = recovery_of(ended, length, 0.0, simulated)["recovery"]
        assert found["makespan"] == pytest.approx(simulated.makespan, rel=1e-2)
        assert found["predicted_lost"] == simulated.lost
        assert len(found["predicted_attempts"]) == len(ended)
        assert weights(Trial(Faults(), run=done)) == weights(undisturbed)
    assert deaths


@pytest.mark.parametrize("name", ["dgtp", *PEERS[:2]])
def test_deaths_that_overlap_and_lost_copies_come_as_simulated(
    name: str, tmp_path: Path
) -> None:
    """Kills of machines and processes, some while the job is down, some at its end.

    Where both holders of a state die, the job goes back to its beginning.
    """
    trials, nexts = kept(name), list[int]()
    job, run = trials.case.problem.job, trials.undisturbed.run
    assert run is not None
    machines = [machine.name for machine in trials.case.problem.cluster.machines]
    for seed in range(4 if name == PEERS[0] else 2):
        rng = np.random.default_rng([seed, *name.encode()])
        first = rng.uniform(0.8, 0.99) * run.schedule.makespan  # after a cut
        at = [first, *(first + rng.uniform(0.0, 1.3, 3))]
        who = rng.choice([*job.processes, *machines, *machines], 4).tolist()
        owner = next(iter(tasks_with_state_of(job).values()))[0]
        if seed < 2 and "peer" in name:  # one holder after the other, while it is down
            home = trials.case.problem.machine_of_task
            who[:2] = [home[f"{owner}.copy"], home[owner]][:: 1 - 2 * seed]
            at[1] = first + 0.3
        events = ", ".join(
            f"{{at: {time:.3f} s, kill: {each}}}"
            for time, each in zip(at, who, strict=True)
        )
        stated = f"events: [{events}]\nrecovery: 0.7 s\nmax_restarts: 9"
        whole, done, ended = outlived(name, stated, tmp_path / str(seed))
        simulated = whole.attempts()
        assert len(ended) == len(simulated.killed)
        for mine, theirs in zip(ended, simulated.killed, strict=True):
            assert mine.next_iteration == theirs.next_iteration, (seed, events)
            for key in ("began", "ran", "recovery", "again"):
                assert getattr(mine, key) == pytest.approx(
                    getattr(theirs, key), abs=5e-3
                ), (seed, key, events)
        length = outages_of(ended).seconds + done.schedule.makespan
        assert length == pytest.approx(simulated.makespan, abs=1e-2)
        assert weights(Trial(Faults(), run=done)) == weights(trials.undisturbed)
        nexts += [one.next_iteration for one in ended[:1]]
    assert (0 in nexts[:2]) is ("peer" in name), nexts


ENDING = """
name: ending
cluster: {machines: [{name: m, count: 3, nic: 10 MB/s}]}
job:
  system: custom
  iterations: 2
  tasks:
  - {name: a, time: 0.2 s, pin: m0}
  - {name: b, time: 0.5 s, pin: m1}
  - {name: c, time: 0.1 s, pin: m2}
  flows: [{from: a, to: b, volume: 2 MB}, {from: a, to: c, volume: 0 B},
          {from: b, to: c, volume: 1 kB}]
on_failure: restart
"""


@pytest.mark.parametrize(("at", "dies"), [(0.57, True), (0.63, False), (1.1, False)])
@pytest.mark.parametrize("victim", ["a", "m0"])
def test_what_has_ended_does_not_die_in_a_run(
    at: float, victim: str, *, dies: bool
) -> None:
    """Its last flow arrives at 0.6 s, and the job ends at 1.5 s."""
    whole = prepare(loads(f"{ENDING}events: [{{at: {at} s, kill: {victim}}}]\n"))
    assert bool(whole.attempts().killed) is dies
    trial = run_trial(replace(Case.of(whole), kills=whole.kills))
    assert trial.complaints == []
    assert (trial.run is None) is dies, trial.error
