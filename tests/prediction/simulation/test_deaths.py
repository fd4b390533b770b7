"""Deaths that overlap, and deaths of what has ended, beside a replay tick by tick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.errors import NodeLost, ScenarioError
from emu.prediction.simulation.attempts import Holders, Rules, attempts
from emu.problem import Edge, Job, Kill, Schedule, Task
from emu.problem.workloads.copies import with_copies
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads

#: Seconds of a tick: exact in binary, so that ties are ties.
TICK, STEPS = 0.125, 6
#: Ticks of an iteration of every task, and the machine and the host that it stands on.
TASKS = {"a": (4, "m0", "x"), "b": (7, "m0", "x"), "c": (2, "m1", "y")}

Death = tuple[int, str, int]


def with_outages(whole: Experiment) -> Schedule:
    """Return its schedule with what deaths add to it."""
    schedule = whole.simulate()
    outages = whole.attempts(schedule).outages(schedule.length)
    return replace(schedule, outages=outages)


def stated(kills: list[Death], more: str = "") -> Experiment:
    tasks = ", ".join(
        f"{{name: {name}, time: {ticks * TICK} s, pin: {machine}}}"
        for name, (ticks, machine, _) in TASKS.items()
    )
    events = ", ".join(
        f"{{at: {at * TICK} s, kill: {name}, recovery: {down * TICK} s}}"
        for at, name, down in kills
    )
    return prepare(
        loads(f"""
name: drawn
cluster: {{machines: [{{name: m, count: 2, nic: 1 MB/s}}]}}
job: {{system: custom, iterations: {STEPS}, tasks: [{tasks}], flows: []}}
emulation: {{hosts: {{m0: x, m1: y}}}}
on_failure: restart
max_restarts: 99
events: [{events}]
{more}
""")
    )


def replayed(kills: list[Death], every: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the ticks of a job, and (ran, down, next cut) of every attempt."""
    now = began = cut = died = up = newest = 0
    down, ended = False, []
    while True:
        if down and now == up:
            ended.append((died - began, up - died, newest))
            down, began, cut = False, now, newest
        left = {n: (STEPS - cut) * k - (now - began) for n, (k, *_) in TASKS.items()}
        if not down and max(left.values()) <= 0:
            return now, ended
        lasts = [
            recovery
            for at, name, recovery in kills
            for task, (_, machine, host) in TASKS.items()
            if at == now and name in (task, machine, host) and (down or left[task] > 0)
        ]
        if lasts and not down:
            down, died, up, newest = True, now, now, cut
            for k in range(cut + every, STEPS, every) if every else ():
                if all(now - began > (k - cut) * ticks for ticks, *_ in TASKS.values()):
                    newest = k
        up = max(up, now + max(lasts, default=0))
        now += 1


@pytest.mark.parametrize("seed", range(80))
def test_deaths_are_those_of_a_replay_tick_by_tick(seed: int) -> None:
    rng = np.random.default_rng(seed)
    every = int(rng.integers(0, 4))
    names = [*TASKS, "m0", "m1", "x", "y"]
    kills: list[Death] = [
        (int(rng.integers(1, 90)), str(rng.choice(names)), int(rng.integers(1, 30)))
        for _ in range(rng.integers(0, 7))
    ]
    if seed % 2 and kills:  # one at the very end of a task, and one at a restart
        at, name, down = kills[0]
        kills += [(STEPS * TASKS["c"][0], "c", 5), (at + down, name, 3)]
    whole = stated(kills)
    rules = Rules(99, 99.0, every, (0, 1, 2))

    def part(first: int, began: float) -> Schedule:
        return whole.beginning_at(first, began).simulate()

    found = attempts(part, whole.kills, rules)
    ticks, ended = replayed(kills, every)
    assert found.makespan == ticks * TICK
    mine = [(one.ran, one.recovery, one.next_iteration) for one in found.killed]
    assert mine == [(r * TICK, d * TICK, n) for r, d, n in ended]
    if not every:
        made = with_outages(whole)
        assert made.makespan == ticks * TICK
        assert made.length == STEPS * 7 * TICK
        assert made.outages.recovery == sum(down for _, down, _ in ended) * TICK


def test_a_death_of_what_is_down_uses_up_no_restart() -> None:
    whole = stated([(8, "a", 8), (10, "m1", 8), (17, "b", 8), (25, "c", 1)])
    for most, deaths in ((1, 1), (2, 2)):  # the last is at the restart: another one
        kills = whole.kills[: 2 + most]
        found = attempts(
            lambda *at: whole.beginning_at(*at).simulate(), kills, Rules(most, 1, 0, ())
        )
        assert found.killed[0].recovery == (25 - 8) * TICK
        assert len(found.killed) == deaths
    with pytest.raises(NodeLost, match="1 restarts before"):
        attempts(
            lambda *at: whole.beginning_at(*at).simulate(),
            whole.kills,
            Rules(1, 1, 0, ()),
        )


FLOW = """
cluster: {machines: [{name: m0, nic: 10 B/s}, {name: m1, nic: 10 B/s}]}
job:
  system: custom
  iterations: 1
  tasks: [{name: a, time: 1 s, pin: m0}, {name: b, time: 1 s, pin: m1}]
  flows: [{from: a, to: b, volume: 20 B}]
on_failure: restart
recovery: 1 s
"""


@pytest.mark.parametrize(("at", "length"), [("2.9 s", 7.9), ("3 s", 4), ("3.5 s", 4)])
def test_what_still_sends_can_die(at: str, length: float) -> None:
    whole = prepare(loads(f"name: f\n{FLOW}events: [{{at: {at}, kill: a}}]\n"))
    assert with_outages(whole).makespan == pytest.approx(length)


JOBS = """
cluster: {machines: [{name: m, count: 2, nic: 10 MB/s}]}
jobs:
- {name: a, job: {system: custom, iterations: 1, tasks: [{name: x, time: 1 s}]}}
- {name: b, job: {system: custom, iterations: 1, tasks: [{name: y, time: 5 s}]}}
"""


def test_of_several_jobs_none_begins_again() -> None:
    def length(kill: str, then: str = "restart") -> float:
        event = f"on_failure: {then}\nevents: [{{at: 2 s, kill: {kill}}}]\n"
        whole = prepare(loads(f"name: several\n{JOBS}{event}"))
        return with_outages(whole).makespan

    assert length("a/x") == length("a/x", "abort") == 5.0
    with pytest.raises(ScenarioError, match=r"b/y is killed at 2 s .*several jobs"):
        length("b/y")
    with pytest.raises(NodeLost, match="b/y is killed"):
        length("b/y", "abort")


@pytest.mark.parametrize("seed", range(60))
def test_a_state_is_lost_with_its_last_holder(seed: int) -> None:
    """Two owners with a copy each, beside sets of who has which cut."""
    rng = np.random.default_rng(seed)
    tasks = tuple(Task(name, "worker", iterations=None) for name in "ab")
    job = with_copies(Job(tasks, (Edge(0, 1),), 9), "ab", 1, 0)
    holders, names = Holders(job), ["a", "b", "a.copy", "b.copy"]
    first, having = 0, {name: {0} for name in names}
    for _ in range(8):
        newest = first + int(rng.integers(0, 2))
        came = {n for n in names if n.endswith("copy") and rng.random() < 0.5}
        dead = {n for n in names if rng.random() < 0.4}
        for name in names:
            having[name] |= {newest} if newest > first or name in came else set()
            having[name] = set() if name in dead else having[name]
        left = newest
        for owner in "ab":
            if newest not in having[owner] | having[f"{owner}.copy"]:
                left = 0
        fallen = [Kill(1.0, "m", (name,)) for name in dead]
        positions = {job.index(name) for name in came}
        assert holders.left_of(newest, first, fallen, positions) == left
        for owner in "ab":  # it begins with it, again
            having[owner] = {left}
        for name in names if not left else ():
            having[name] = {0}
        first = left
