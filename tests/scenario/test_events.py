"""Section ``events``: what it makes of the cluster, and every way to get it wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from emu.emulation.launch.ssh import is_here
from emu.errors import EmulatorError, NodeLost, ScenarioError
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.lab.kernel_network import check_network
from emu.problem import CapacityChange
from emu.problem.changes import SpeedChange
from emu.runs.problem_json import problem_from_json, problem_to_json
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from emu.scenario.scenario_file import loads

TEXT = """
cluster:
  machines: [{name: m, count: 2, nic: 10 B/s}, {name: bare, nic: none}]
  links: [{name: core, bandwidth: 5 B/s}]
  routes: [{from: [m0, m1], to: bare, through: [out, core]},
           {from: bare, to: [m0, m1], through: [core, in]}]
  racks: []
job:
  system: custom
  iterations: 1
  tasks: [{name: a, time: 1 s, pin: m0}, {name: b, time: 1 s, pin: bare}]
  flows: [{from: a, to: b, volume: 20 B}]
events:
"""
FALLS = "  - {at: 2 s, machine: m0, nic: {in: 9 B/s, out: 1 B/s}}\n"
RISES = "  - {at: 8 s, link: core, bandwidth: 10 B/s}\n"
#: 5 B by 2 s, 1 B/s from then on.
END = 2 + 15 + 1


def test_nics_and_links_change() -> None:
    scenario = loads(TEXT + RISES + FALLS)

    assert scenario.to_cluster().changes == (
        CapacityChange(8.0, "core", 10.0),
        CapacityChange(2.0, "m0 out", 1.0),
        CapacityChange(2.0, "m0 in", 9.0),
    )
    experiment = prepare(scenario)
    assert experiment.simulate().makespan == pytest.approx(END)
    again = load(scenario)
    assert again.events == scenario.events
    problem = experiment.problem
    read = problem_from_json(problem_to_json(problem), "problem.json")
    assert read.cluster == problem.cluster


def test_a_scenario_without_events_says_nothing_of_them() -> None:
    assert "events" not in load("golden").to_json()


@pytest.mark.parametrize(
    ("event", "key", "said"),
    [
        ("{at: 1 s, machine: m9, nic: 1 B/s}", "[0].machine", "no machine 'm9', known"),
        ("{at: 1 s, link: cor, bandwidth: 1 B/s}", "[0].link", "mean 'core'"),
        ("{at: 1 s, machine: bare, nic: 1 B/s}", "[0].machine", "bare has no NIC"),
        ("{at: 0 s, machine: m0, nic: 1 B/s}", "[0].at", "write a later time"),
        ("{at: -1 s, machine: m0, nic: 1 B/s}", "[0].at", "-1 s"),
        ("{at: 5, machine: m0, nic: 1 B/s}", "[0].at", "5"),
        ("{at: 1 s, machine: m0, nic: 0}", "[0].nic", "0"),
        ("{at: 1 s, machine: m0, nic: 0 B/s}", "[0].nic", "found zero"),
        ("{at: 1 s, machine: m0, nic: none}", "[0].nic", "a NIC stays"),
        ("{at: 1 s, machine: m0, nic: {in: 1 B/s}}", "[0].nic.out", "missing"),
        ("{at: 1 s, machine: m0}", "[0]", "found machine, write machine and nic"),
        ("{at: 1 s}", "[0]", "found only at, write machine and nic, or link"),
        ("{at: 1 s, cut: m9}", "[0].cut", "no machine and no link 'm9', known"),
        ("{at: 1 s, slow: cor, by: 2}", "[0].slow", "did you mean 'core'"),
        ("{at: 1 s, cut: bare}", "[0].cut", "bare has no NIC"),
        ("{at: 1 s, cut: core, for: 0 s}", "[0].for", "found zero, write how long"),
        ("{at: 1 s, cut: core, for: -1 s}", "[0].for", "-1 s"),
        ("{at: 0 s, cut: core}", "[0].at", "write a later time"),
        ("{at: 1 s, cut: core, by: 2}", "[0]", "found by and cut, write machine"),
        ("{at: 1 s, cut: core, direction: in}", "[0].direction", "core is a link"),
        ("{at: 1 s, cut: m0, direction: up}", "[0].direction", "'up'"),
        ("{at: 1 s, slow: core}", "[0]", "found slow, write machine"),
        ("{at: 1 s, slow: core, by: 0}", "[0].by", "found 0, write how many times"),
        ("{at: 1 s, slow: core, by: 1}", "[0].by", "more than 1"),
        ("{at: 1 s, slow: core, by: -2}", "[0].by", "more than 1"),
        ("{at: 1 s, slow: core, by: .nan}", "[0].by", "nan"),
        ("{at: 1 s, slow: core, by: .inf}", "[0].by", "found inf"),
        ("{at: 1 s, pause: m9, for: 1 s}", "[0].pause", "no machine 'm9', known: m0"),
        ("{at: 1 s, pause: core, for: 1 s}", "[0].pause", "no machine 'core', known"),
        ("{at: 1 s, pause: m0}", "[0]", "or pause and for"),
        ("{at: 1 s, pause: m0, for: 1 s, by: 2}", "[0]", "found by and for and pause"),
        ("{at: 1 s, slow: bare, by: 2, direction: in}", "[0].slow", "bare has no NIC"),
        ("{at: 1 s, machine: m0, bandwidth: 1 B/s}", "[0]", "found bandwidth and mach"),
        ("{machine: m0, nic: 1 B/s}", "[0].at", "missing"),
        ("{at: 1 s, machine: m0, nik: 1 B/s}", "[0].nik", "did you mean 'nic'"),
        (f"{RISES[4:]}{RISES.rstrip()}", "[1].at", "core changes twice at 8 s"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_key(
    event: str, key: str, said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(f"{TEXT}  - {event}\n")

    found: Any = caught.value
    assert found.key == f"events{key}"
    assert said in found.problem
    assert found.line == 14 + key.startswith("[1]")


def test_kernel_nics_have_no_links_beside_them() -> None:
    scenario = loads(TEXT + FALLS, ["emulation.network=kernel"])
    with pytest.raises(ScenarioError, match=r"cluster\.links: is for simulations"):
        check_network(scenario)


def test_links_and_nics_are_cut_and_slowed_down_for_a_time() -> None:
    faults = """  - {at: 1 s, cut: core, for: 2 s}
  - {at: 2 s, slow: m0, by: 4, direction: out, for: 6 s}
  - {at: 5 s, cut: m1}
"""
    scenario = loads(TEXT + faults + RISES)

    assert scenario.to_cluster().changes == (
        CapacityChange(1.0, "core", 0.0),
        CapacityChange(3.0, "core", 5.0),
        CapacityChange(8.0, "core", 10.0),
        CapacityChange(2.0, "m0 out", 2.5),
        CapacityChange(8.0, "m0 out", 10.0),
        CapacityChange(5.0, "m1 out", 0.0),
        CapacityChange(5.0, "m1 in", 0.0),
    )
    # From 3 s on 2.5 B/s, 12.5 B by 8 s; then 10 B/s.
    experiment = prepare(scenario)
    assert experiment.simulate().makespan == pytest.approx(8 + 0.75 + 1)
    again = load(scenario)
    assert again.events == scenario.events
    assert again.to_cluster() == scenario.to_cluster()


def test_machines_are_slow_and_paused_for_a_time() -> None:
    """Task a has 1 s of work, b another; the flow of 20 B takes 4 s."""
    faults = """  - {at: 0.5 s, pause: m0, for: 2 s}
  - {at: 7.5 s, slow: bare, by: 4, for: 100 s}
"""
    scenario = loads(TEXT + faults)

    assert scenario.to_cluster().speed_changes == (
        SpeedChange(0.5, "m0", 0.0),
        SpeedChange(2.5, "m0", 1.0),
        SpeedChange(7.5, "bare", 0.25),
        SpeedChange(107.5, "bare", 1.0),
    )
    experiment = prepare(scenario)
    assert experiment.simulate().task_end.tolist() == [[3.0], [7.5 + 4 * 0.5]]
    assert load(scenario).to_cluster() == scenario.to_cluster()
    problem = experiment.problem
    read = problem_from_json(problem_to_json(problem), "problem.json")
    assert read.cluster == problem.cluster


@pytest.mark.parametrize("job", ["", "placement: {policy: explicit}"])
def test_a_job_that_waits_for_a_cut_for_good_is_one_error(job: str) -> None:
    with pytest.raises(EmulatorError) as caught:
        prepare(loads(f"{job}\n{TEXT}  - {{at: 2 s, cut: core}}\n")).simulate()
    assert re.search(r"core.* carries nothing .*for", str(caught.value))


def test_kernel_nics_are_not_cut() -> None:
    text = TEXT.replace("  links: [{name: core, bandwidth: 5 B/s}]\n", "")
    text = text.replace("through: [out, core]", "through: [out]")
    cut = "  - {at: 2 s, cut: m0, for: 1 s}\n"
    routes = text.index("  routes"), text.index("  racks")
    text = (text[: routes[0]] + text[routes[1] :]).replace("nic: none", "nic: 10 B/s")
    scenario = loads(text + cut, ["emulation.network=kernel"])
    with pytest.raises(ScenarioError, match=r"events\[0\]\.cut: .*slow: m0"):
        check_network(scenario)


KILL = "  - {at: 1 s, kill: a}\n"


WHEN = "{at: {task: a, iteration: 2}, "


@pytest.mark.parametrize(
    ("event", "key", "said"),
    [
        (WHEN.replace("a,", "c,") + "kill: b}", "[0].at.task", "no task 'c', known"),
        (WHEN + "kill: b}", "[0].at.iteration", "a has 2 iterations: write 1 to 1"),
        (WHEN.replace("2", "0") + "kill: b}", "[0].at.iteration", "write 1 or more"),
        (WHEN.replace("2", "-1") + "kill: b}", "[0].at.iteration", "write 1 or more"),
        (WHEN.replace("2", "x") + "kill: b}", "[0].at.iteration", "a whole number"),
        ("{at: {task: a}, kill: b}", "[0].at.iteration", "missing, write a whole"),
        (WHEN.replace("ion", "") + "kill: b}", "[0].at.iterat", "mean 'iteration'"),
        (WHEN + "pause: m0, for: 1 s}", "[0]", "write a time: a kill alone"),
        (WHEN + "machine: m0, nic: 1 B/s}", "[0]", "write a time: a kill alone"),
    ],
)
def test_progress_that_cannot_be_is_one_error(event: str, key: str, said: str) -> None:
    text = TEXT.replace("iterations: 1", "iterations: 2")
    with pytest.raises(ScenarioError) as caught:
        prepare(loads(f"{text}  - {event}\n"))
    first = getattr(caught.value, "errors", [caught.value])[0]
    assert first.key == f"events{key}"
    assert said in first.problem
    assert str(first).startswith("scenario:14: ")


def test_a_kill_comes_as_a_task_ends_an_iteration() -> None:
    """Task a ends iterations at 1, 2 and 3 s: b is killed at 2, and a at 4 + 1 s."""
    text = TEXT.replace("iterations: 1", "iterations: 3")
    both = f"  - {WHEN}kill: b}}\n  - {WHEN.replace('2', '1')}kill: a}}\n"
    scenario = loads(text + both + "on_failure: restart\nrecovery: 3 s\n")
    experiment = prepare(scenario)
    found = experiment.attempts()
    assert [one.ran for one in found.killed] == [1.0, 2.0]
    assert "b is killed at 6 s" in found.killed[1].error
    assert found.makespan == pytest.approx(6 + 3 + experiment.simulate().makespan)
    assert experiment.remarks() == []
    assert load(scenario).events == scenario.events


@pytest.mark.parametrize(
    ("event", "key", "said"),
    [
        (
            "{at: 1 s, kill: c}",
            "[0].kill",
            "no task, process, machine or host 'c', known: a, b",
        ),
        ("{at: -1 s, kill: a}", "[0].at", "-1 s"),
        ("{at: 0 s, kill: a}", "[0].at", "write a later time"),
        ("{at: 1 s, kill: a, for: 2 s}", "[0]", "found for and kill, write machine"),
    ],
)
def test_kills_that_cannot_be_are_one_error(event: str, key: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(f"{TEXT}  - {event}\n")
    assert caught.value.key == f"events{key}"
    assert said in caught.value.problem


def test_a_machine_and_a_task_of_one_name_cannot_be_told_apart() -> None:
    text = TEXT.replace("name: a, time", "name: m0, time").replace(
        "from: a", "from: m0"
    )
    with pytest.raises(ScenarioError, match="'m0' is a machine and a task"):
        loads(text + "  - {at: 1 s, kill: m0}\n")


def test_a_process_that_is_called_as_its_machine_is_killed_with_it() -> None:
    text = TEXT.replace("name: a, time: 1 s", "name: a, time: 1 s, process: m0")
    experiment = prepare(loads(text + "  - {at: 0.5 s, kill: m0}\n"))
    assert [kill.processes for kill in experiment.kills] == [("m0",)]


def test_tasks_and_machines_are_killed() -> None:
    """Task a takes 1 s and its flow 4 s: a has ended by 2 s, and b has not."""
    stated = "on_failure: restart\nrecovery: 3 s\n"
    both = "  - {at: 2 s, kill: bare}\n  - {at: 0.5 s, kill: a}\n"
    experiment = prepare(loads(TEXT + both + stated))
    assert [(k.time, k.name, k.processes) for k in experiment.kills] == [
        (0.5, "a", ("a",)),
        (2.0, "bare", ("b",)),
    ]
    # The second comes while it is down: recovery begins anew, at 2 s.
    found = experiment.attempts()
    assert found.makespan == pytest.approx(2 + 3 + 6)
    assert [(one.ran, one.recovery) for one in found.killed] == [(0.5, 4.5)]
    assert experiment.remarks() == []
    again = load(experiment.scenario)
    assert again.events == experiment.scenario.events


def test_a_kill_after_the_end_changes_nothing() -> None:
    experiment = prepare(loads(TEXT + KILL.replace("1 s", "7 s")))
    assert experiment.attempts().makespan == pytest.approx(6)
    assert experiment.remarks()[0].startswith("events[0]: at 7 s the job has ended")


def test_a_kill_of_an_empty_machine_is_named_as_one_that_changes_nothing() -> None:
    (line,) = prepare(loads(TEXT + "  - {at: 1 s, kill: m1}\n")).remarks()
    assert line == "events[0]: no process stands on m1: it changes nothing"


def test_a_kill_that_ends_the_run_is_told_beforehand() -> None:
    experiment = prepare(loads(TEXT + KILL.replace("1 s", "0.5 s")))
    with pytest.raises(NodeLost, match=r"a is killed at 0.5 s \(task a, iteration 0\)"):
        experiment.attempts()
    assert "and the run ends" in experiment.remarks()[0]


def test_a_process_of_several_tasks_is_killed_by_its_own_name() -> None:
    text = """
cluster: {machines: [{count: 2, nic: 1 Gbit/s}]}
job: {system: p3, dataset: {name: products-like, scale: 0.001}, pipeline: none,
      times: {sampler: 1 ms, model_forward: 1 ms, data_forward: 1 ms,
              data_backward: 1 ms, model_backward: 1 ms},
      model: {hidden: 8, layers: 2}, fanouts: [2, 2], batch_size: 4, iterations: 3}
events: [{at: 2 ms, kill: NAME}]
"""
    by_process = prepare(loads(text.replace("NAME", "w1")))
    by_task = prepare(loads(text.replace("NAME", "Df1")))

    assert by_process.kills[0].processes == by_task.kills[0].processes == ("w1",)
    with pytest.raises(
        ScenarioError, match="machine or host 'w2', known: s0, w0, s1, w1, m0"
    ):
        prepare(loads(text.replace("NAME", "w2")))


def test_what_shares_a_process_is_killed_as_a_whole_and_told_beforehand() -> None:
    text = TEXT.replace("pin: bare", "pin: m0") + KILL.replace("1 s", "0.5 s")
    text += "on_failure: restart\nemulation: {processes: HOW}\n"
    alone = prepare(loads(text.replace("HOW", "task")))
    shared = prepare(loads(text.replace("HOW", "machine")))
    assert alone.kills[0].processes == ("a",)
    assert alone.remarks() == []
    assert shared.kills[0].processes == ("a", "b")
    (told,) = shared.remarks()
    assert told.startswith("a shares the process of its machine")
    whole = prepare(
        loads(text.replace("HOW", "machine").replace("kill: a", "kill: m0"))
    )
    assert whole.remarks() == []


def test_of_several_jobs_one_task_is_killed() -> None:
    job = """
  - name: NAME
    job: {system: custom, iterations: 1, flows: [], tasks: [{name: t, time: 1 s}]}"""
    jobs = job.replace("NAME", "x") + job.replace("NAME", "y")
    text = f"cluster: {{machines: [{{name: m, nic: none}}]}}\njobs:{jobs}\n"
    experiment = prepare(loads(f"{text}events: [{{at: 0.5 s, kill: y/t}}]\n"))
    assert experiment.kills[0].processes == ("y/t",)
    with pytest.raises(ScenarioError, match="no task, process, machine or host 't'"):
        loads(f"{text}events: [{{at: 0.5 s, kill: t}}]\n")


def hosts(**of: str) -> str:
    stated = ", ".join(f"{machine}: {host}" for machine, host in of.items())
    return f"emulation: {{hosts: {{{stated}}}}}\n"


def test_machines_of_a_host_die_together() -> None:
    far, kill = "10.9.8.7", KILL.replace("kill: a", "kill: 10.9.8.7")
    two = hosts(m0=far, m1="b.example", bare=far)
    experiment = prepare(loads(two + TEXT + kill))
    assert experiment.kills[0].processes == ("a", "b")
    one = prepare(loads(hosts(m0=far, m1=far, bare="10.9.8.6") + TEXT + kill))
    assert one.kills[0].processes == ("a",)
    assert not is_here(far)
    (line,) = prepare(loads(two + TEXT + KILL.replace(": a", ": b.example"))).remarks()
    assert "no process stands on b.example" in line


@pytest.mark.parametrize(
    ("stated", "name", "said"),
    [
        ({"m0": "h"}, "h", "write the host of m1, bare into emulation.hosts"),
        ({"m0": "h"}, "g", "no task, process, machine or host 'g', known: a, b, m0"),
        ({"m0": "m1", "m1": "h", "bare": "h"}, "m1", "is a host and a machine"),
        ({"m0": "a", "m1": "h", "bare": "h"}, "a", "'a' is a host and a task"),
    ],
)
def test_hosts_that_cannot_die_are_one_error(
    stated: dict[str, str], name: str, said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(hosts(**stated) + TEXT + KILL.replace("kill: a", f"kill: {name}"))
    assert caught.value.key == "events[0].kill"
    assert said in caught.value.problem


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "me@127.0.0.9"])
def test_the_host_that_coordinates_is_not_killed(name: str, tmp_path: Path) -> None:
    text = hosts(m0=name, m1="10.9.8.7", bare=name) + TEXT
    experiment = prepare(loads(text + KILL.replace("kill: a", f"kill: {name}")))
    settings, directory = (
        emulation_settings(experiment.scenario),
        RunDirectory(tmp_path),
    )
    with pytest.raises(ScenarioError, match="is this host") as caught:
        carry_out(experiment, settings, directory)
    assert [*tmp_path.iterdir()] == []
    assert caught.value.key == "events[0].kill"
