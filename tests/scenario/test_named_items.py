"""``--set cluster.machines.old2.nic``: items of lists by their names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.errors import ScenarioError
from emu.scenario.document import Document, join_trail, step_text
from emu.scenario.overrides import _trail, apply_overrides, split_override
from emu.scenario.scenario_file import load_lab, loads

GROUPS = st.lists(
    st.tuples(
        st.sampled_from(["", "old", "gpu-01.x", 'a"b\\', "k=[1].", "new", "ö"]),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda group: group[0],
)


def _machines(groups: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [
        {"nic": "1 MB/s", "count": count, **({"name": name} if name else {})}
        for name, count in groups
    ]


@given(GROUPS, st.data())
def test_one_machine_changes_and_all_others_stay(
    groups: list[tuple[str, int]], data: st.DataObject
) -> None:
    plain = {"machines": _machines(groups)}
    job = {"system": "custom", "iterations": 1, "tasks": [{"name": "t", "time": "1 s"}]}
    before = emu.scenario.Scenario.model_validate(
        {"name": "n", "cluster": plain, "job": job}
    ).to_cluster()
    chosen = data.draw(st.sampled_from([m.name for m in before.machines]))
    document = Document("f", {"name": "n", "cluster": plain, "job": job})

    apply_overrides(document, [f"cluster.machines.{step_text(chosen)}.nic=2 MB/s"])

    after = emu.scenario.Scenario.model_validate(document.data).to_cluster()
    assert [m.name for m in after.machines] == [m.name for m in before.machines]
    changed = {m.name: m.bandwidth_out for m in after.machines}
    assert changed == {m.name: 1e6 + 1e6 * (m.name == chosen) for m in after.machines}


@given(st.lists(st.text(min_size=1) | st.integers(0, 9), min_size=1), st.text())
def test_any_names_in_quotes_are_one_step_each(
    steps: list[str | int], value: str
) -> None:
    if isinstance(steps[0], int):
        steps = ["k", *steps]
    keys = join_trail(tuple(steps))
    assert split_override(f"{keys}={value}") == (keys, value)
    assert _trail(keys) == tuple(steps)


def test_name_with_a_dot_that_is_not_quoted_is_shown_in_quotes() -> None:
    scenario = FILE.replace("name: last", "name: gpu-01.x")
    machines = loads(scenario, ['cluster.machines."gpu-01.x".nic=2 MB/s'])
    assert machines.to_cluster().machines[-1].bandwidth_out == 2e6
    with pytest.raises(ScenarioError, match=r'has no .gpu-01.*"gpu-01\.x"'):
        loads(scenario, ["cluster.machines.gpu-01.x.nic=2 MB/s"])


FILE = """
name: named
cluster:
  machines:
    - {name: new, nic: 1 MB/s}
    - {name: old, count: 3,
       nic: 1 MB/s}
    - name: last
      nic: 1 MB/s
job:
  system: custom
  iterations: 1
  tasks:
    - {name: a, time: 1 s}
    - {name: b, time: 1 s}
  flows: [{from: a, to: b, volume: 1 MB}]
placement: {policy: explicit, tasks: {a: new, b: old1}}
"""


@pytest.mark.parametrize(
    ("override", "makespan"),
    [
        ("job.tasks.a.time=3 s", 5.0),
        ("cluster.machines.old1.nic=0.5 MB/s", 4.0),
        ("cluster.machines.old2.nic=0.5 MB/s", 3.0),
        ("cluster.machines.new.nic=0.25 MB/s", 6.0),
        ("cluster.machines[1].nic=0.5 MB/s", 4.0),
    ],
)
def test_the_simulation_follows(override: str, makespan: float) -> None:
    assert emu.simulate(loads(FILE, [override])).makespan == pytest.approx(makespan)


def test_errors_of_machines_behind_still_name_their_line() -> None:
    file = FILE.replace("nic: 1 MB/s\njob", "nic: 1 MBs\njob")
    with pytest.raises(ScenarioError) as caught:
        loads(file, ["cluster.machines.old2.nic=2 MB/s"])

    assert (caught.value.line, caught.value.key) == (9, "cluster.machines[4].nic")


@pytest.mark.parametrize(
    ("right", "wrong", "key"),
    [
        ("name: a, time: 1 s", "name: a, time: 1 sec.", "job.tasks[0].time"),
        ("name: b, time: 1 s", "name: b, time: 1 sec.", "job.tasks[1].time"),
        ("volume: 1 MB", "volume: 1 MBs", "job.flows[0].volume"),
        ("new, nic: 1 MB/s", "new, nic: 1 MBs", "cluster.machines[0].nic"),
    ],
)
def test_what_is_no_machine_behind_keeps_its_place_and_line(
    right: str, wrong: str, key: str
) -> None:
    file = FILE.replace(right, wrong)
    (line,) = (
        number for number, text in enumerate(file.splitlines(), 1) if wrong in text
    )
    with pytest.raises(ScenarioError) as caught:
        loads(file, ["cluster.machines.old2.nic=2 MB/s"])

    assert (caught.value.line, caught.value.key) == (line, key)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_list_without_names_has_the_places_of_its_items(count: int) -> None:
    flows = ", ".join(["{from: a, to: b, volume: 1 MB}"] * count)
    file = FILE.replace("[{from: a, to: b, volume: 1 MB}]", f"[{flows}]")
    places = f"job.flows[0] to job.flows[{count - 1}]" if count else "none"
    with pytest.raises(ScenarioError) as caught:
        loads(file, ["job.flows.a.volume=1 MB"])

    said = f"job.flows is a list of {count}, it has no a; its places: {places}"
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("cluster.machines.odl2.nic=1 MB/s", "cluster.machines has no 'odl2', did you"),
        ("cluster.machines.old3.nic=1 MB/s", "cluster.machines has no 'old3'"),
        ("job.tasks.c.time=1 s", "job.tasks has no 'c', known: a, b"),
        ("cluster.machines.old2.nicc=1 MB/s", "did you mean 'nic'"),
        ("job.flows.a.volume=1 MB", "its places"),
    ],
)
def test_a_name_that_there_is_none_of_is_named(override: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(FILE, [override])


def test_programs_of_a_lab_have_names_too() -> None:
    lab = load_lab("distdgl", ["lab.programs.trainer.run=./go"])

    assert [program.run == "./go" for program in lab.lab.programs] == [False, True]


def test_an_override_from_an_ascii_terminal_is_utf_8() -> None:
    """Python hands over bytes that ASCII lacks as surrogates, of an argument."""
    text = """
cluster: {machines: [{name: köln, nic: 10 B/s, cpu: 4}]}
job: {system: custom, iterations: 1, tasks: [{name: a, time: 1 s}]}
"""
    for override in ("cluster.machines[0].name=zürich", "cluster.machines.köln.cpu=3"):
        from_terminal = override.encode().decode("ascii", "surrogateescape")
        scenario = loads(text, [from_terminal])
        assert scenario.to_json() == loads(text, [override]).to_json()
        assert scenario.to_json() != loads(text).to_json()
