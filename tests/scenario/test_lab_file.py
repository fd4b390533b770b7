"""Lab files: every error names its line, every unknown key what is known there."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.lab import setup
from emu.lab.machines.cpu_groups import Hierarchy
from emu.lab.setup import (
    _nic_errors,
    find_lab_errors,
    idle_keys,
    lab_notes,
    open_lab,
)
from emu.scenario.scenario_file import list_labs, load, load_lab
from emu.scenario.schema import file_schema

LAB: dict[str, Any] = {
    "cluster": {
        "machines": [
            {"name": "fast", "count": 2, "nic": "100 Mbit/s"},
            {"name": "slow", "nic": {"in": "20 Mbit/s", "out": "10 Mbit/s"}},
        ]
    },
    "lab": {
        "programs": [
            {"name": "store", "on": ["slow"], "run": "serve {rank}"},
            {"name": "trainer", "run": "{python} {folder}/t.py", "env": {"A": "1"}},
        ],
        "until": "trainer",
    },
    "events": [{"at": "1 s", "machine": "slow", "nic": "5 Mbit/s"}],
}


RACK = {"name": "r", "machines": ["slow"], "uplink": "1 MB/s"}
ROUTE = {"from": "fast0", "to": "slow", "through": ["out", "in"]}


def _mappings(value: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        yield trail
        for key, below in value.items():
            yield from _mappings(below, (*trail, key))
    elif isinstance(value, list):
        for position, below in enumerate(value):
            yield from _mappings(below, (*trail, position))


def _written(lab: dict[str, Any], folder: Path) -> Path:
    """Write a lab with every key and item on a line of its own."""
    path = folder / "lab.yaml"
    path.write_text(json.dumps(lab, indent=1))
    return path


def _changed(trail: tuple[Any, ...], value: object, folder: Path) -> Path:
    """Write the lab with another value at a place."""
    lab = copy.deepcopy(LAB)
    place: Any = lab
    for step in trail[:-1]:
        place = place[step]
    place[trail[-1]] = value
    return _written(lab, folder)


#: Mappings that take any key are left out: a resource, a variable.
CLOSED = [
    trail
    for trail in _mappings(LAB)
    if trail[-1:] != ("env",) and trail[:-1] != ("cluster", "machines")
]


@given(st.sampled_from(CLOSED), st.text("qxz", min_size=3, max_size=8))
def test_an_unknown_key_is_told_what_is_known(
    trail: tuple[Any, ...], word: str
) -> None:
    lab = copy.deepcopy(LAB)
    place: Any = lab
    for step in trail:
        place = place[step]
    known = {*place}
    place[word] = 1
    path = _written(lab, _FOLDER)

    (error,) = find_lab_errors(path)

    assert error.key.endswith(word)
    assert path.read_text().splitlines()[error.line - 1].strip().startswith(f'"{word}"')
    told = set(error.problem.partition("known: ")[2].split(", "))
    assert known <= told


_FOLDER = Path()


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    global _FOLDER  # noqa: PLW0603 - examples of Hypothesis share it
    _FOLDER = tmp_path_factory.mktemp("labs")


@pytest.mark.parametrize("cores", [0.75, 1.5])
def test_nics_are_checked_at_the_scale_that_their_cores_lead_to(
    cores: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen machines share two cores of this computer."""
    monkeypatch.setattr(Hierarchy, "cores", lambda _: 2.0)
    path = tmp_path / "lab.yaml"
    machine = f"{{count: 16, nic: 8 kbit/s, cpu: {cores}}}"
    path.write_text(f"cluster: {{machines: [{machine}]}}\nlab: {{time_scale: auto}}\n")
    file = load_lab(path)
    trail = ("cluster", "machines", 0, "nic")

    ((found_trail, problem),) = _nic_errors(file, trail, file.cluster.machines[0].nic)

    assert found_trail == trail
    assert problem.startswith(f"at time scale {16 * cores:g}, ")


@pytest.mark.parametrize(
    ("trail", "value", "line"),
    [
        (("cluster", "machines", 0, "nic"), "1 kbit/s", '"nic": "1 kbit/s"'),
        (("cluster", "machines", 1, "nic"), "1 Tbit/s", '"nic": "1 Tbit/s"'),
        (("cluster", "machines", 0, "nic"), "none", '"nic": "none"'),
        (("cluster", "machines", 0, "name"), "a_b", '"name": "a_b"'),
        (("events", 0, "nic"), "1 kbit/s", '"nic": "1 kbit/s"'),
        (("events", 0, "machine"), "slwo", '"machine": "slwo"'),
        (("lab", "until"), "trainre", '"until": "trainre"'),
        (("lab", "programs", 0, "on"), ["m9"], '"on": ['),
        (("lab", "programs", 0, "run"), "serve {ranks}", "{"),
        (("lab", "programs", 0, "on"), [], '"on": ['),
        (("lab", "programs", 0, "on"), ["slow", "slow"], '"on": ['),
        (("lab", "programs", 0, "name"), "trainer", '"name": "trainer"'),
        (("lab", "programs", 0, "name"), "../store", '"name": "../store"'),
        (("lab", "programs", 1, "env"), {"": "x"}, '"": "x"'),
        (("lab", "programs", 1, "env"), {"A=B": "x"}, '"A=B": "x"'),
        (("lab", "programs", 1, "env"), {"A\0": "x"}, r'"A\u0000": "x"'),
        (("lab", "programs", 1, "env"), {"A": "x\0"}, r'"A": "x\u0000"'),
        (("lab", "programs", 0, "run"), "serve \0", r'"run": "serve \u0000"'),
    ],
)
def test_what_no_lab_can_be_names_its_line(
    trail: tuple[Any, ...], value: object, line: str, tmp_path: Path
) -> None:
    path = _changed(trail, value, tmp_path)

    (error,) = find_lab_errors(path)

    assert path.read_text().splitlines()[error.line - 1].strip().startswith(line)
    assert CliRunner().invoke(app, ["validate", str(path)]).exit_code == 2


@pytest.mark.parametrize(
    ("trail", "value"),
    [
        (("lab", "congestion_control"), "nope"),
        (("cluster", "links"), [{"name": "l", "bandwidth": "1 MB/s"}]),
        (("cluster", "racks"), [RACK]),
        (("cluster", "routes"), [ROUTE]),
    ],
)
def test_what_other_commands_or_hosts_have_is_refused_by_labs_alone(
    trail: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    path = _changed(trail, value, tmp_path)
    key = ".".join(trail)

    result = CliRunner().invoke(app, ["validate", str(path)])

    assert (result.exit_code, find_lab_errors(path)) == (0, [])
    assert f"emu lab refuses {key}: " in result.stderr
    with pytest.raises(ScenarioError) as caught:
        open_lab(load_lab(path))
    line = path.read_text().splitlines()[caught.value.line - 1].strip()
    assert (caught.value.key, line.split(":")[0]) == (key, f'"{trail[-1]}"')


def test_what_namespaces_may_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel has it, and keeps it from all namespaces but the first."""
    allowed = tmp_path / "tcp_allowed_congestion_control"
    allowed.write_text("bbr dctcp\n")
    monkeypatch.setattr(setup, "_ALLOWED", allowed)
    path = _changed(("lab", "congestion_control"), "reno", tmp_path)

    with pytest.raises(
        ScenarioError, match="write one of bbr, dctcp, or sysctl"
    ) as got:
        open_lab(load_lab(path))
    assert got.value.key == "lab.congestion_control"


@pytest.mark.parametrize(
    ("trail", "value"),
    [
        (("lab", "programs", 1, "env"), {"A": 4}),
        (("lab", "until"), 4),  # elsewhere with an example of a name
    ],
)
def test_a_number_where_text_is_meant_is_put_in_quotes(
    tmp_path: Path, trail: tuple[str | int, ...], value: object
) -> None:
    """The value is left out: of 1.10 in a file no more than 1.1 is known."""
    path = _changed(trail, value, tmp_path)

    (error,) = find_lab_errors(path)
    assert error.problem == "found 4, write text: put it in quotes"


def test_links_of_a_topology_are_named_by_it_once(tmp_path: Path) -> None:
    switches = "SwitchName={} Nodes={},{}\n".format
    leaves = switches("s0", "a", "b") + switches("s1", "c", "d")
    (tmp_path / "t.conf").write_text(f"{leaves}SwitchName=top Switches=s0,s1\n")
    topology = {"file": "t.conf", "nic": "1 Gbit/s", "uplink": "1 Gbit/s"}
    programs = [{"name": "p", "run": "ls"}]
    lab = {"cluster": {"topology": topology}, "lab": {"programs": programs}}

    (note,) = lab_notes(load_lab(_written(lab, tmp_path)))

    assert note.startswith("emu lab refuses cluster.topology: ")
    # One that is taken away stands for nothing.
    lab["cluster"] = LAB["cluster"] | {"topology": None, "racks": [RACK]}
    (note,) = lab_notes(load_lab(_written(lab, tmp_path)))
    assert note.startswith("emu lab refuses cluster.racks: ")


@pytest.mark.parametrize(
    ("first", "second", "log"),
    [
        (("server", "y-z"), ("server", "z"), ""),
        (("x", "y-z"), ("x", "y-z"), "x-y-z.log"),
        (("x", "y-z"), ("x-y", "z"), "x-y-z.log"),
    ],
)
def test_no_program_writes_into_the_log_of_another(
    first: tuple[str, str], second: tuple[str, str], log: str, tmp_path: Path
) -> None:
    machines = [{"name": name, "nic": "1 Gbit/s"} for name in ("y-z", "z")]
    programs = [
        {"name": name, "on": [machine], "run": "ls"}
        for name, machine in (first, second)
    ]
    lab = {"cluster": {"machines": machines}, "lab": {"programs": programs}}

    errors = find_lab_errors(_written(lab, tmp_path))

    assert [error.key for error in errors] == ["lab.programs[1].name"] * bool(log)
    assert all(f" would write {log}, as 'x' on y-z does" in str(e) for e in errors)


def test_keys_that_no_lab_reads_are_known(tmp_path: Path) -> None:
    lab = copy.deepcopy(LAB)
    assert idle_keys(load_lab(_written(lab, tmp_path))) == []

    lab["cluster"]["machines"][0] |= {"cpu": 1, "memory": "4 GB", "fpga": 2}
    lab["cluster"]["machines"][1] |= {"speed": 2.0, "memory": "1 GB"}
    assert idle_keys(load_lab(_written(lab, tmp_path))) == ["fpga", "memory", "speed"]


@pytest.mark.parametrize("name", ["a-1", "a.b", "A9", "-", "7"])
def test_letters_digits_hyphens_and_dots_make_a_host_name(
    name: str, tmp_path: Path
) -> None:
    lab = copy.deepcopy(LAB)
    lab["cluster"]["machines"][0]["name"] = name
    assert find_lab_errors(_written(lab, tmp_path)) == []

    for wrong in (f"{name}_", f"{name} x", f"ä{name}"):
        lab["cluster"]["machines"][0]["name"] = wrong
        (error,) = find_lab_errors(_written(lab, tmp_path))
        assert "is no host name" in error.problem


@pytest.mark.parametrize(
    ("cores", "time_scale", "expected"),
    [
        ((None, None), 1, {}),
        ((None, 2), 1, {"a": 1.0, "b": 2.0}),
        ((0.5, None), 1, {"a": 0.5, "b": 1.0}),
        ((None, None), 4, {"a": 1.0, "b": 1.0}),
        ((3, 2), 4, {"a": 3.0, "b": 2.0}),
    ],
)
def test_machines_have_cores_where_any_has_or_time_is_dilated(
    cores: tuple[float | None, ...],
    time_scale: float,
    expected: dict[str, float],
    tmp_path: Path,
) -> None:
    machines = [
        {"name": name, "nic": "1 Gbit/s"} | ({} if count is None else {"cpu": count})
        for name, count in zip("ab", cores, strict=True)
    ]
    program = {"name": "p", "run": "true"}
    lab = {
        "cluster": {"machines": machines},
        "lab": {"programs": [program], "time_scale": time_scale},
    }

    assert load_lab(_written(lab, tmp_path)).cores == expected


def test_what_would_be_right_is_said_once(tmp_path: Path) -> None:
    """It said: write all or all or a list."""
    lab = copy.deepcopy(LAB)
    lab["lab"]["programs"][0]["on"] = "m0"

    (error,) = find_lab_errors(_written(lab, tmp_path))

    assert "found 'm0', write all or a list, for example [" in str(error)


def test_a_good_lab_has_no_errors(tmp_path: Path) -> None:
    assert find_lab_errors(_written(LAB, tmp_path)) == []


def test_the_schema_of_files_knows_every_key_of_a_lab() -> None:
    schema = file_schema()
    section = schema["$defs"]["LabFile"]

    assert schema["then"] == {"$ref": "#/$defs/LabFile"}
    assert {*LAB} == {*section["properties"]}
    assert {*LAB["lab"]} < {*schema["$defs"]["LabSection"]["properties"]}
    for program in LAB["lab"]["programs"]:
        assert {*program} <= {*schema["$defs"]["ProgramSection"]["properties"]}


@pytest.mark.parametrize("name", ["all_reduce", "distdgl"])
def test_a_lab_is_copied_with_its_programs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert CliRunner().invoke(app, ["init", name]).exit_code == 0
    copied = {path.name for path in (tmp_path / name).iterdir()}
    home = list_labs()[name].parent
    assert copied == {path.name for path in home.iterdir()} - {"__pycache__"}
    assert CliRunner().invoke(app, ["init", name]).exit_code == 2


def test_a_lab_is_no_scenario() -> None:
    with pytest.raises(ScenarioError, match="describes a lab, which `emu lab` runs"):
        load("all_reduce")
