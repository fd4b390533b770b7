"""What runs where in a lab, and what its places become."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emu.errors import RunError, ScenarioError
from emu.lab.machines import call_notes
from emu.lab.machines.lab import missing_needs
from emu.lab.machines.programs import LabProgram, fill, starts
from emu.lab.setup import open_lab
from emu.scenario.scenario_file import load, load_lab

ADDRESSES = {"fast0": "10.77.0.1", "slow0": "10.77.0.2"}
FILES = {"hosts file": "/run/hosts.txt", "folder": "/my labs", "python": "/bin/py"}


def test_every_machine_gets_its_rank_and_the_address_of_the_first() -> None:
    program = LabProgram(
        "trainer",
        ("slow0", "fast0"),
        "train --rank {rank} of {machines} on {machine}",
        {
            "STORE": "{address of fast0}:7000",
            "HOSTS": "{hosts file}",
            "MINE": "{address} of {world_size}",
        },
    )

    first, second = starts([program], ADDRESSES, FILES)

    assert first.command[-1] == "train --rank 0 of 2 on slow0"
    assert second.command[-1] == "train --rank 1 of 2 on fast0"
    assert second.environment == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "10.77.0.2",
        "MASTER_PORT": "29500",
        "EMU_PROGRAM": "trainer",
        "EMU_MACHINE": "fast0",
        "STORE": "10.77.0.1:7000",
        "HOSTS": "/run/hosts.txt",
        "MINE": "10.77.0.1 of 2",
    }


def test_places_of_a_command_are_quoted_and_those_of_the_environment_are_not() -> None:
    run, env = "{python} {folder}/train.py", {"HERE": "{folder}"}
    (started,) = starts([LabProgram("one", ("fast0",), run, env)], ADDRESSES, FILES)

    assert shlex.split(started.command[-1]) == ["/bin/py", "/my labs/train.py"]
    assert started.environment["HERE"] == "/my labs"


def test_what_is_stated_is_not_overwritten() -> None:
    program = LabProgram("one", ("fast0",), "true", {"RANK": "7"})

    assert starts([program], ADDRESSES, FILES)[0].environment["RANK"] == "7"


def test_braces_of_shells_and_json_are_left_alone() -> None:
    text = """echo ${HOME} '{"a": 1}' {1..3}"""

    assert fill(text.replace("${HOME}", "$HOME"), {}) == text.replace(
        "${HOME}", "$HOME"
    )


def test_an_unknown_place_is_named_with_those_that_there_are() -> None:
    program = LabProgram("one", ("fast0",), "run {ranks}")

    in_environment = replace(program, run="run", environment={"A": "{ranks}"})
    for one in (program, in_environment):
        with pytest.raises(
            ValueError, match=r"program one: \{ranks\} is no place.*\{rank\}"
        ):
            starts([one], ADDRESSES, FILES)


@pytest.mark.parametrize(
    ("lab", "said"),
    [
        (
            "{programs: [{name: a, on: [m9], run: x}]}",
            r":2: lab.programs\[0\].on: no machine 'm9', known: m0",
        ),
        (
            "{programs: [{name: a, run: x}], until: b}",
            "lab.yaml:2: lab.until: no program 'b'",
        ),
        (
            "{programs: [{name: a, run: x}], until: [a]}",
            r"lab.until: found \['a'\], write text, for example client",
        ),
        ("{programs: [{name: a}]}", "lab.programs"),
        ("{sharing: some}", "lab.sharing"),
        ("{events: []}", "lab.events: unknown key 'events'"),
        ("{mtu: 10}", "lab.mtu"),
        ("{mtu: '1500'}", "lab.mtu: found '1500', write a whole number"),
    ],
)
def test_bad_labs_are_refused(lab: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"cluster: {{machines: [{{name: m0, nic: 1 MB/s}}]}}\nlab: {lab}\n")

    with pytest.raises(ScenarioError, match=said):
        load_lab(path)


def test_a_scenario_has_no_lab() -> None:
    with pytest.raises(ScenarioError, match="lab: is for `emu lab`"):
        load("golden", ["lab={}"])


def test_the_cluster_of_a_scenario_will_do() -> None:
    assert [m.name for m in load_lab("golden").to_cluster().machines] == ["m0", "m1"]


@pytest.mark.parametrize(
    ("machine", "events", "said"),
    [
        ("{name: m_0, nic: 1 MB/s}", "[]", "'m_0' is no host name"),
        ("{name: m0, nic: 1 kbit/s}", "[]", "125 B/s is no NIC for this lab"),
        ("{name: m0, nic: 1 Tbit/s}", "[]", "is no NIC for this lab, which has"),
        (
            "{name: m0, nic: 1 MB/s}",
            "[{at: 1 s, machine: m0, nic: 1 kbit/s}]",
            r"events\[0\].nic: 125 B/s is no NIC",
        ),
        (
            "{name: m0, nic: 1 MB/s}",
            "[{machine: m0, nic: 1 Mbit/s}]",
            r"events\[0\].at: this key is missing, write for example 15 ms or a map",
        ),
        (
            "{name: m0, nic: 1 MB/s}",
            "[{at: 1 s, machine: m9, nic: 1 Mbit/s}]",
            r"events\[0\].machine: no machine 'm9'",
        ),
        (
            "{name: m0, nic: 1 MB/s}], links: [{name: core, bandwidth: 1 MB/s}",
            "[{at: 1 s, link: core, bandwidth: 1 Mbit/s}]",
            r"events\[0\].link: a lab has NICs and no further links",
        ),
    ],
)
def test_labs_that_no_kernel_holds_are_refused(
    machine: str, events: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"cluster: {{machines: [{machine}]}}\nevents: {events}\n")

    with pytest.raises(ScenarioError, match=said):
        open_lab(load_lab(path))


@pytest.mark.parametrize(
    ("refused", "remedy"),
    [
        ("machine a: No such file or directory", "HTB, bfifo, cls_bpf"),
        ("no user namespace: Operation not permitted", "run it as root"),
    ],
)
def test_what_this_computer_lacks_comes_with_a_remedy(
    refused: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: object) -> None:
        raise RunError(refused)

    monkeypatch.setattr("emu.lab.machines.lab.Lab.__enter__", start)

    (said,) = missing_needs()

    assert said.startswith(refused)
    assert remedy in said


def test_calls_are_left_out_where_some_found_no_room() -> None:
    """Packets behind the last note would be taken for what that one sent."""
    notes = call_notes.CallNotes()
    folder = Path(notes.environment["EMU_CALLS"])
    note = np.zeros(1, call_notes.NOTE)
    note["end"], note["peer"], note["kind"] = 2, (10 << 24) + (77 << 16) + 2, 1
    note["host"] = 1
    for name, count in (("7.a.some", 1), ("8.b.more", call_notes.MOST_NOTES + 5)):
        head = count.to_bytes(call_notes.NOTE.itemsize, "little")
        (folder / name).write_bytes(head + note.tobytes())

    calls, programs = notes.read(0.0)

    assert (len(calls), programs) == (0, [])
    assert notes.problem({"some"}).startswith("5 socket calls found no room")
