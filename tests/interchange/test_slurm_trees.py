"""Trees of switches of Slurm: names, links, ways and what a file cannot say."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import DataError
from emu.interchange import slurm_switches
from emu.interchange.slurm_switches import read_switches
from emu.interchange.topology import Answers, Topology, Wire

pytestmark = pytest.mark.usefixtures("read_here")

RATES = Answers(nic=3.0, uplink=7.0)


def tree(folder: Path, *lines: str, answers: Answers = RATES) -> Topology:
    """Return the topology of a file of such lines."""
    path = folder / "topology.conf"
    path.write_text("\n".join(lines))
    return read_switches(path, answers)


def test_a_way_goes_up_to_the_lowest_switch_above_both(tmp_path: Path) -> None:
    """Node d hangs at the root itself, a and b at a leaf two levels below it."""
    read = tree(
        tmp_path,
        "SwitchName=leaf Nodes=a,b LinkSpeed=100 Kind=x",
        "SwitchName=side Nodes=c LinkSpeed=100",
        "SwitchName=middle Switches=leaf",
        "SwitchName=root Switches=middle,side Nodes=d",
        "SwitchName=island Nodes=e",
    )
    assert read.machines == ["a", "b", "c", "d", "e"]
    assert read.routes["a", "b"] == ["a up", "b down"]
    assert read.routes["a", "c"] == [
        "a up",
        "leaf up",
        "middle up",
        "side down",
        "c down",
    ]
    assert read.routes["d", "b"] == ["d up", "middle down", "leaf down", "b down"]
    assert read.routes["b", "d"] == ["b up", "leaf up", "middle up", "d down"]
    # Nothing joins the island.
    assert len(read.routes) == 12
    nodes = {name: wire for name, wire in read.wires.items() if name[0] in "abcde "}
    assert {*nodes.values()} == {Wire(3.0)}
    rest = {name: wire for name, wire in read.wires.items() if name not in nodes}
    assert rest == {
        f"{switch} {way}": Wire(7.0)
        for switch in ("leaf", "side", "middle")
        for way in ("up", "down")
    }
    assert read.left_out == {"linkspeed of a switch": 2, "kind of a switch": 1}


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("tux[08-10]", ["tux08", "tux09", "tux10"]),
        ("tux[9-10,3],login", ["tux9", "tux10", "tux3", "login"]),
        ("r[1-2]n[0,5]x", ["r1n0x", "r1n5x", "r2n0x", "r2n5x"]),
        ("a,,b", ["a", "b"]),
        ("n[7-7]", ["n7"]),
    ],
)
def test_names_of_a_list_stand_in_its_order(
    hostlist: str, names: list[str], tmp_path: Path
) -> None:
    answers = Answers(nic=1.0)
    assert (
        tree(tmp_path, f"SwitchName=s Nodes={hostlist}", answers=answers).machines
        == names
    )


@pytest.mark.parametrize(
    ("hostlist", "problem"),
    [
        ("tux[5-3],login", "found [5-3], write the lower number first"),
        ("tux[0-1", "found 'tux[0-1', write names as tux[0-5,12]"),
        ("tux0-1]", "found 'tux0-1]', write names as tux[0-5,12]"),
        ("tux[0-1][2", "found 'tux[0-1][2', write names as"),
        (",", "found ',', write names as tux[0-5,12]"),
        ("tux[0,]", "found [0,], write [0-5,12]"),
    ],
)
def test_a_list_that_is_damaged_is_refused(
    hostlist: str, problem: str, tmp_path: Path
) -> None:
    """A bracket that stayed open parted a name in two; a falling range had no name."""
    with pytest.raises(DataError) as caught:
        tree(tmp_path, "", f"SwitchName=s Nodes={hostlist}")
    assert f"line 2: {problem}" in str(caught.value)


def test_a_list_may_have_twice_as_many_names_as_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list may have 6 names where 3 machines are read: switches may be more."""
    monkeypatch.setattr(slurm_switches, "MOST_MACHINES", 3)
    assert len(tree(tmp_path, "SwitchName=s Nodes=n[1-6]").machines) == 6
    assert len(tree(tmp_path, "SwitchName=s Nodes=n[1-2][1-3]").machines) == 6
    for hostlist in ("n[1-7]", "n[1-9]", "n[1-2][1-4]"):
        with pytest.raises(DataError, match="more machines than are read"):
            tree(tmp_path, f"SwitchName=s Nodes={hostlist}")


def test_rates_that_are_missing_are_named_together(tmp_path: Path) -> None:
    """A single level of switches has no link between two, and needs no rate of one."""
    leaf = "SwitchName=s Nodes=a,b"
    levels = (leaf, "SwitchName=t Switches=s")
    for lines, answers, missing in (
        (levels, Answers(), "nic: 100 Gbit/s, uplink: 400 Gbit/s}"),
        (levels, Answers(nic=1.0), "topology.conf, uplink: 400 Gbit/s}"),
        (levels, Answers(uplink=1.0), "topology.conf, nic: 100 Gbit/s}"),
        ((leaf,), Answers(), "topology.conf, nic: 100 Gbit/s}"),
    ):
        with pytest.raises(DataError) as caught:
            tree(tmp_path, *lines, answers=answers)
        assert str(caught.value).endswith(missing)
    assert len(tree(tmp_path, leaf, answers=Answers(nic=1.0)).routes) == 2


def test_a_line_that_goes_on_has_the_number_of_its_first(tmp_path: Path) -> None:
    lines = ("SwitchName=s \\", "Nodes=a # more \\", "", "", "Nodes=b")
    with pytest.raises(DataError, match="line 5: Nodes=b is no SwitchName"):
        tree(tmp_path, *lines)
    with pytest.raises(DataError, match="line 2: Nodes=b is no SwitchName"):
        tree(tmp_path, "SwitchName=s Nodes=a", "Nodes=b \\", "", "x=[")


def test_a_circle_of_switches_is_found_in_any_chain(tmp_path: Path) -> None:
    """A chain may be as long as there are switches; one that comes back is none."""
    chain = [f"SwitchName=s{n + 1} Switches=s{n}" for n in range(3)]
    leaf = "SwitchName=s0 Nodes=a"
    assert tree(tmp_path, leaf, *chain).routes == {}
    with pytest.raises(DataError, match="switches above a run in a circle"):
        tree(tmp_path, f"{leaf} Switches=s3", *chain)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("SwitchName=s0 Nodes=b", "line 2: s0 is there twice, write all below it in"),
        ("SwitchName=s1 Nodes=a", "line 2: a is below s0, and below s1"),
        ("SwitchName=s1 Nodes=b nodes=c", "line 2: nodes is there twice, write one"),
        ("SwitchName=s1 LinkSpeed=9 LinkSpeed=8", "LinkSpeed is there twice, keep one"),
        ("SwitchName=s1 Nodes=s0", "has s0 as a node, and as a switch"),
    ],
)
def test_what_is_stated_twice_is_refused(
    line: str, problem: str, tmp_path: Path
) -> None:
    """Refuse two lists of nodes, of which the last counted, and switches as nodes."""
    with pytest.raises(DataError) as caught:
        tree(tmp_path, "SwitchName=s0 Nodes=a", line)
    assert problem in str(caught.value)
