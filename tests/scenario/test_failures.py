"""Section ``failures``: drawn once, the same for everybody, by name and seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu.errors import ScenarioError
from emu.lab.kernel_network import check_network
from emu.scenario import load, prepare
from emu.scenario.scenario_file import loads

TEXT = """
cluster:
  machines: [{name: m, count: 2, nic: 10 B/s}, {name: bare, nic: none}]
  links: [{name: core, bandwidth: 5 B/s}]
  routes: [{from: [m0, m1], to: bare, through: [out, core]},
           {from: bare, to: [m0, m1], through: [core, in]}]
job:
  system: custom
  iterations: 8
  tasks: [{name: a, time: 1 s, pin: m0}, {name: b, time: 1 s, pin: bare}]
  flows: [{from: a, to: b, volume: 20 B}]
failures:
"""
PAUSES = "  machine: {every: 8 s, for: 2 s}\n"
CUTS = "  link: {every: 8 s, for: 2 s, what: cut}\n"


def test_every_machine_is_paused_at_its_rate_by_its_name() -> None:
    scenario = loads(f"{TEXT}{PAUSES}  seed: 3\n")
    cluster = scenario.to_cluster()

    for machine in range(3):
        since, share = cluster.speed_steps.of(machine)
        assert share == [1.0, *[0.0, 1.0] * 100]
        assert np.diff(since)[1::2] == pytest.approx(2.0)
        gaps = np.diff(since)[::2]
        assert gaps.mean() == pytest.approx(8.0, rel=0.3)  # 3 deviations of 100 draws
        assert gaps.std() == pytest.approx(8.0, rel=0.5)
    assert load(scenario).to_cluster() == cluster
    assert loads(f"{TEXT}{PAUSES}seed: 3\n").to_cluster() == cluster
    assert loads(f"{TEXT}{PAUSES}seed: 4\n").to_cluster() != cluster
    more = loads(f"{TEXT.replace('count: 2', 'count: 4')}{PAUSES}  seed: 3\n".replace(
        "[m0, m1]", "[m0, m1, m2, m3]"
    )).to_cluster()  # fmt: skip
    assert more.speed_steps.of(1) == cluster.speed_steps.of(1)
    assert more.speed_steps.of(4) == cluster.speed_steps.of(2)  # bare


def test_links_are_cut_and_nics_of_those_that_have_one() -> None:
    both = f"{TEXT}{CUTS}  machine: {{every: 9 s, for: 1 s, what: cut, most: 3}}\n"
    cluster = loads(both).to_cluster()

    cut = {change.link for change in cluster.changes}
    assert cut == {"core", "m0 out", "m0 in", "m1 out", "m1 in"}
    assert sum(change.link == "m0 in" for change in cluster.changes) == 6
    assert cluster.speed_changes == ()
    slow = loads(f"{TEXT}  link: {{every: 9 s, for: 1 s, what: slow, by: 4}}\n")
    assert {c.capacity for c in slow.to_cluster().changes} == {1.25, 5.0}


def test_a_schedule_takes_them_in() -> None:
    """Pauses and cuts kill no process."""
    calm = loads(f"{TEXT}  {{}}\n")
    paused, cut = loads(f"{TEXT}{PAUSES}"), loads(f"{TEXT}{CUTS}")
    scenarios = (calm, paused, cut)
    assert not any(scenario.states_deaths for scenario in scenarios)
    experiments = [prepare(scenario) for scenario in scenarios]
    assert not any(experiment.kills for experiment in experiments)

    spans = [experiment.simulate().makespan for experiment in experiments]
    assert spans[0] == 8 * 4 + 2
    assert spans[1] > spans[0]
    assert spans[2] > spans[0]


def test_faults_that_are_over_too_soon_and_events_that_come_too_late() -> None:
    text = TEXT.replace("failures:", "events: [{at: 50 s, cut: m0}]\nfailures:")
    found = loads(f"{text}  machine: {{every: 8 s, for: 2 s, most: 2}}\n")

    late, few = found.idle_events(50.0)
    assert late == ("events[0]: at 50 s the job has ended, at 50 s: it changes nothing")
    assert "failures.machine: the 2 of" in few
    assert "write a larger most" in few
    assert found.idle_events(0.001) == [late.replace("at 50 s:", "at 0.001 s:")]
    assert loads(f"{TEXT}{PAUSES}").idle_events(34.0) == []


def test_cut_nics_and_cut_links_are_counted_each_by_its_own_section() -> None:
    """The link fails twice at most and early; NICs nearly never."""
    both = "  machine: {every: 900 h, for: 1 s, what: cut, most: 1}\n"
    both += "  link: {every: 2 s, for: 1 s, what: cut, most: 2}\n"
    (line,) = loads(f"{TEXT}{both}").idle_events(1000.0)
    assert line.startswith("failures.link: the 2 of core are over at")

    both = "  machine: {every: 2 s, for: 1 s, what: cut, most: 2}\n"
    both += "  link: {every: 900 h, for: 1 s, what: cut, most: 1}\n"
    (line,) = loads(f"{TEXT}{both}").idle_events(1000.0)
    assert line.startswith("failures.machine: the 2 of m")


@pytest.mark.parametrize("seed", range(3))
def test_the_machine_whose_faults_are_over_first_is_named(seed: int) -> None:
    text = f"{TEXT}  machine: {{every: 8 s, for: 2 s, most: 2}}\n  seed: {seed}\n"
    scenario = loads(text)
    failures = scenario.failures
    assert failures is not None
    last = {
        fault.subject: fault.until
        for fault in failures.faults(scenario.to_cluster(), 0)
    }
    first = min(last, key=last.__getitem__)

    (line,) = scenario.idle_events(100.0)

    assert len(last) == 3
    assert f"the 2 of {first} are over at {last[first]:.6g} s" in line


@pytest.mark.parametrize(
    ("failures", "key", "said"),
    [
        ("machine: {every: 0 s, for: 1 s}", "machine.every", "found zero"),
        ("machine: {every: -1 h, for: 1 s}", "machine.every", "-1 h"),
        ("machine: {every: 2 h, for: 0 s}", "machine.for", "found zero"),
        ("machine: {every: 2 h}", "machine.for", "missing"),
        ("machine: {every: 2 h, for: 1 s, most: 0}", "machine.most", "0"),
        ("machine: {every: 2 h, for: 1 s, what: kill}", "machine.for", "see recovery"),
        ("link: {every: 2 h, what: kill}", "link.what", "a link has no tasks"),
        ("machine: {every: 2 h, for: 1 s, what: slow}", "machine.by", "is missing"),
        ("machine: {every: 2 h, for: 1 s, by: 2}", "machine.by", "found pause: remove"),
        ("machine: {every: 2 h, for: 1 s, what: slow, by: 0}", "machine.by", "found 0"),
        ("link: {every: 2 h, for: 1 s}", "link.what", "a link has no tasks"),
        ("machin: {every: 2 h, for: 1 s}", "machin", "did you mean 'machine'"),
        ("seed: -1", "seed", "-1"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(failures: str, key: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(f"{TEXT}  {failures}\n")

    found: Any = caught.value
    assert found.key == f"failures.{key}"
    assert said in found.problem


@pytest.mark.parametrize("what", ["cut", "pause"])
def test_kernel_nics_are_not_cut_by_drawn_faults(what: str) -> None:
    kernel = ["emulation.network=kernel", "schedule.policy=maxmin"]
    drawn = f"failures={{machine: {{every: 5 s, for: 1 s, what: {what}}}}}"
    scenario = load("golden", [*kernel, drawn])
    if what == "pause":
        check_network(scenario)
        return
    with pytest.raises(ScenarioError, match="write for example what: pause") as found:
        check_network(scenario)
    assert found.value.key == "failures.machine.what"


def test_machines_die_at_their_rate() -> None:
    text = f"{TEXT}  machine: {{every: 8 s, what: kill}}\non_failure: restart\n"
    experiment = prepare(loads(f"{text}max_restarts: 500\n"))
    kills = experiment.kills
    # No task stands on m1, so that nothing of it is killed.
    assert {(kill.name, *kill.processes) for kill in kills} == {
        ("m0", "a"),
        ("bare", "b"),
    }
    times = [kill.time for kill in kills]
    assert times == sorted(times)
    assert np.diff(times).mean() == pytest.approx(4.0, rel=0.3)
    assert experiment.problem.cluster.speed_changes == ()
    pauses = loads(f"{TEXT}  machine: {{every: 8 s, for: 1 ms}}\n").to_cluster()
    paused = pauses.speed_steps.of(0)[0][1::2]  # the same draws
    found = [kill.time for kill in kills if kill.name == "m0"]
    assert found == pytest.approx(paused, abs=0.2)


@pytest.mark.parametrize("what", ["kill", "pause"])
def test_every_machine_has_draws_of_its_own_by_the_seed_of_its_section(
    what: str,
) -> None:
    lasts = "" if what == "kill" else ", for: 2 s"
    rate = f"{TEXT}  machine: {{every: 8 s, what: {what}{lasts}}}\n"

    def times(more: str, seed: int = 0) -> dict[str, list[float]]:
        scenario = loads(f"{rate}{more}")
        assert scenario.failures is not None
        cluster, found = scenario.to_cluster(), dict[str, list[float]]()
        for since, name in scenario.failures.deaths(cluster, seed):
            found.setdefault(name, []).append(since)
        for fault in scenario.failures.faults(cluster, seed):
            found.setdefault(fault.subject, []).append(fault.since)
        return found

    one, other = times("  seed: 5\n", 7), times("", 7)
    assert one == times("  seed: 5\n", 8) == times("", 5)
    assert one.keys() == other.keys() == {"m0", "m1", "bare"}
    every = [*one.values(), *other.values()]
    for number, first in enumerate(every):
        for second in every[:number]:
            assert not {*first} & {*second}


DYING = """
cluster:
  machines:
    - {name: m, count: 2, nic: 20 Mbit/s, cpu: 2}
    - {name: n, nic: 10 Mbit/s, cpu: 2}
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.0005}
  model: {hidden: 4, layers: 1}
  fanouts: [3]
  batch_size: 12
  workers: 2
  iterations: 4
  partitioner: hash
  demands: {worker: {cpu: 1}, sampler: {cpu: 1}}
  times: {graph_store: 5 ms, sampler: 20 ms, worker: 20 ms, parameter_server: 20 ms}
placement: {policy: distdgl}
checkpoint: {every: 1 iterations}
on_failure: restart
recovery: 10 ms
events: [{at: 0.16 s, kill: m1}]
"""


def test_deaths_on_other_machines_go_by_the_tasks_that_are_there() -> None:
    """One machine less took 0.206 s, without the death, and one more a traceback."""
    scenario = emu.loads(DYING)
    explanation = emu.explain(scenario)
    lengths = {}
    for improvement in explanation.improvements:
        change = improvement.change
        if change.kind == "machine" and change.edit is not None:
            edited = emu.load(scenario, change.edit)
            assert emu.simulate(edited).makespan == improvement.makespan
            lengths[change.what] = improvement.makespan
    assert lengths["without n, placed by best"] == pytest.approx(0.2970288)
    assert len(lengths) > 1


def test_a_machine_that_dies_counts_where_it_held_nothing_before() -> None:
    """m1 is no choice of the job as it is: moved onto it, 0.206 s were 0.297."""
    scenario = emu.loads(DYING, {"job.machines": ["m0", "n"]})
    assert not emu.place(scenario).kills
    improvements = emu.explain(scenario).improvements
    lengths = {}
    for improvement in improvements:
        change = improvement.change
        if change.edit is not None:
            edited = emu.load(scenario, change.edit)
            assert emu.simulate(edited).makespan == pytest.approx(improvement.makespan)
            lengths[change.what] = improvement.makespan
    length = lengths["on 2 of 3 machines: m0, m1, placed by best"]
    assert length == pytest.approx(0.2970288)
