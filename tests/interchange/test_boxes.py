"""Boxes, trees of switches and dimensions of NPUs: flows by hand in each."""

from __future__ import annotations

import tempfile
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import DataError, ScenarioError
from emu.interchange.gpu_matrix import GPUS, read_matrix
from emu.interchange.slurm_switches import read_switches
from emu.interchange.topology import Answers
from tests.interchange.platforms import Flow, makespan

pytestmark = pytest.mark.usefixtures("read_here")

#: Bytes that 18 NVLinks of 25 GB/s carry in a millisecond.
SIZE = 450e6


#: GB/s of all NVLinks of a GPU, both ways together, as its maker sums them up.
NVLINK = {
    "P100": 160, "V100": 300, "A100": 600, "A800": 400, "H800": 400, "H100": 900,
    "H200": 900, "H20": 900, "B200": 1800, "B300": 1800,
}  # fmt: skip


def test_gpus_have_the_nvlink_that_their_maker_states() -> None:
    both_ways = {name: 2e-9 * gpu.lanes * gpu.lane for name, gpu in GPUS.items()}
    assert both_ways == pytest.approx(NVLINK)
    # 16 lanes of 8, 16 and 32 GT/s, 130 bits for 128.
    lanes = {name: round(gpu.pcie * 8 * 130 / 128 / 16e9) for name, gpu in GPUS.items()}
    assert {*lanes.values()} == {8, 16, 32}
    assert (lanes["V100"], lanes["A100"], lanes["H100"]) == (8, 16, 32)


def matrix(gpus: int, word: str, nics: int = 2, above: str = "") -> str:
    """Return a matrix in which GPUs of the first half are at NIC0, others at NIC1."""
    names = [f"GPU{n}" for n in range(gpus)] + [f"NIC{n}" for n in range(nics)]
    lines = [above, "\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    for row, name in enumerate(names):
        cells = []
        for column in range(len(names)):
            is_second_half = min(row, column) * 2 >= gpus
            is_second_nic = max(row, column) > gpus
            near = "PIX" if is_second_half == is_second_nic else "SYS"
            is_gpus = max(row, column) < gpus
            cells.append(" X " if row == column else word if is_gpus else near)
        lines.append("\t".join([name, *cells, "0-55", "0"]))
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self"])


@pytest.fixture
def h100(tmp_path: Path) -> Path:
    """Return the file of a box of eight GPUs with a switch between."""
    path = tmp_path / "h100.txt"
    path.write_text(matrix(8, "NV18"))
    return path


def all_to_all(gpus: int) -> list[Flow]:
    pairs = permutations(range(gpus), 2)
    return [(f"GPU{a}", f"GPU{b}", SIZE) for a, b in pairs]


@pytest.mark.parametrize(
    ("flows", "milliseconds"),
    [
        ([(f"GPU{n}", f"GPU{(n + 1) % 8}", SIZE) for n in range(8)], 1),
        (all_to_all(8), 7),
        ([(f"GPU{n}", "GPU0", SIZE) for n in range(1, 8)], 7),
        # Down of GPU0 and up of GPU1 have nothing to do with each other.
        ([("GPU1", "GPU0", SIZE), ("GPU0", "GPU1", 2 * SIZE)], 2),
        ([("GPU0", f"GPU{n}", n * SIZE) for n in range(1, 8)], 28),
    ],
)
def test_a_switch_has_one_link_up_and_one_down(
    h100: Path, flows: list[Flow], milliseconds: float
) -> None:
    assert makespan(h100, flows) == pytest.approx(milliseconds / 1e3)


@pytest.mark.parametrize(
    ("gpus", "word", "above", "milliseconds"),
    [
        # 18 lanes in all, as four H100 without a switch have: each pair has its own.
        (4, "NV6", "", 3),
        (4, "NV6", "Tesla V100-SXM3-32GB", 9),  # six in all: a switch
        (8, "NV12", "", 7 * 450 / 300),
        (8, "NV18", "NVIDIA B200", 3.5),
        (8, "NV18", "root@box:~# nvidia-smi topo -m", 7),
        (2, "NV4", "", 4.5),
        (2, "SYS", "", 450 / 15.754),
        (2, "SYS", "NVIDIA H100 PCIe", 450 / 63.015),
    ],
)
def test_lanes_and_rates_are_those_of_the_gpu(
    tmp_path: Path, gpus: int, word: str, above: str, milliseconds: float
) -> None:
    (tmp_path / "box.txt").write_text(matrix(gpus, word, above=above))
    found = makespan(tmp_path / "box.txt", all_to_all(gpus))
    assert found == pytest.approx(milliseconds / 1e3)


def test_colours_and_prompts_are_read_past(tmp_path: Path) -> None:
    text = matrix(3, "NV18").replace("GPU0", "\x1b[4mGPU0\x1b[0m", 1)
    (tmp_path / "box.txt").write_text(f"$ nvidia-smi topo -m\n{text}\n$ exit\n")
    assert makespan(tmp_path / "box.txt", all_to_all(3)) == pytest.approx(2e-3)


def test_a_nic_of_an_unknown_name_moves_no_other(h100: Path) -> None:
    """Refuse it between others: their words were those of the column before."""
    text = h100.read_text()
    h100.write_text(text.replace("NIC0", "ib0"))
    with pytest.raises(DataError, match="column ib0 before NIC1 is no GPU or NIC"):
        read_matrix(h100, Answers())
    # Behind all others it is left out, as affinities are.
    h100.write_text(text.replace("NIC1", "ib1"))
    assert read_matrix(h100, Answers()).left_out["column ib1"] == 1


def test_boxes_are_joined_by_the_nearest_nic(h100: Path) -> None:
    topology = {"file": str(h100), "boxes": 2, "nic": "8 Gbit/s"}
    # GPUs 0 to 3 share NIC0 of 1 GB/s, 4 to 7 share NIC1.
    one = [("box0.GPU0", "box1.GPU0", 1e9)]
    four = [(f"box0.GPU{n}", f"box1.GPU{n}", 1e9) for n in range(4)]
    both = [("box0.GPU3", "box1.GPU3", 1e9), ("box0.GPU4", "box1.GPU4", 1e9)]
    crossed = [("box0.GPU0", "box1.GPU7", 1e9), ("box0.GPU7", "box1.GPU6", 2e9)]

    assert makespan(topology, one) == pytest.approx(1)
    assert makespan(topology, four) == pytest.approx(4)
    assert makespan(topology, both) == pytest.approx(1)
    assert makespan(topology, crossed) == pytest.approx(3)  # down of NIC1
    assert makespan(topology, [("box1.GPU0", "box1.GPU7", SIZE)]) == pytest.approx(1e-3)
    with pytest.raises(
        ScenarioError, match=r"has no rates of NICs: write topology: \{"
    ):
        makespan({"file": str(h100), "boxes": 2}, one)


def test_a_route_between_boxes_has_the_nic_of_each_of_its_ends(h100: Path) -> None:
    topology = read_matrix(h100, Answers(boxes=2, nic=1e9))
    assert topology.routes["box0.GPU0", "box1.GPU7"] == [
        "box0.GPU0 pcie up",
        "box0.NIC0 out",
        "box1.NIC1 in",
        "box1.GPU7 pcie down",
    ]


TREE = """\
# two leaves, one of them with a switch more below
SwitchName=s0 Nodes=tux[00-02]
SwitchName=s1 Nodes=tux[03,05] Switches=s3 LinkSpeed=100
switchname=s3 nodes=login
SwitchName=s2 Switches=s[0-1]
"""


@pytest.mark.parametrize(
    ("flows", "seconds"),
    [
        ([("tux00", "tux02", 10e9)], 1),
        ([("tux00", "tux05", 10e9)], 2),
        ([("tux00", "tux05", 10e9), ("tux01", "login", 10e9)], 4),
        ([("tux00", "tux05", 10e9), ("login", "tux01", 10e9)], 2),
        ([("tux03", "tux05", 10e9), ("tux00", "tux01", 10e9)], 1),
    ],
)
def test_routes_go_over_the_lowest_switch(
    tmp_path: Path, flows: list[Flow], seconds: float
) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    rates = {"nic": "80 Gbit/s", "uplink": "40 Gbit/s"}
    topology: dict[str, object] = {"file": str(tmp_path / "topology.conf"), **rates}
    assert makespan(topology, flows) == pytest.approx(seconds)


#: A line of the tree, as Slurm's own parser takes it as well.
SPELLINGS = [
    ("SwitchName=s0 Nodes", "SwitchName=s0 \\  # goes on\n  Nodes"),
    ("s0 Nodes=tux[00-02]", '"s0" Nodes="tux[00-02]"'),
    ("Nodes=tux[00-02]", 'Nodes="tux00, tux[01-02]"'),
    ("SwitchName=s0 Nodes=", "SwitchName = s0  Nodes\t= "),
    ("# two", "\ufeff# two"),
    ("\n", "\r\n"),
]


@pytest.mark.parametrize(("plain", "other"), SPELLINGS)
def test_a_tree_is_the_same_as_slurm_may_have_it(
    tmp_path: Path, plain: str, other: str
) -> None:
    """Quotes were part of names, which no route led to; the others were refused."""
    path = tmp_path / "topology.conf"
    answers = Answers(nic=1.0, uplink=1.0)
    path.write_text(TREE)
    expected = read_switches(path, answers)
    assert plain in TREE
    path.write_text(TREE.replace(plain, other), newline="")
    assert read_switches(path, answers) == expected


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=4),
    st.integers(0, 3),
)
def test_host_lists_are_expanded(ranges: list[tuple[int, int]], width: int) -> None:
    texts = []
    names = []
    for number, (first, more) in enumerate(ranges):
        start = str(first).zfill(width)
        last = first + more
        texts.append(f"r{number}n[{start}-{last}]x" if more else f"r{number}n{start}x")
        names += [f"r{number}n{n:0{len(start)}}x" for n in range(first, last + 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "topology.conf"
        path.write_text(f"SwitchName=s Nodes={','.join(texts)}\n")
        topology = read_switches(path, Answers(nic=1.0))
    assert topology.machines == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            TREE,
            "has no rates: write topology: {file: topology.conf, nic: 100 Gbit/s, up",
        ),
        (
            TREE + "SwitchName=s9 Nodes=tux00\n",
            "line 6: tux00 is below s0, and below s9",
        ),
        (TREE.replace("nodes=login", "nodes=login switches=s2"), "circle"),
        (TREE.replace("[00-02]", "[00-x]"), "line 2: found [00-x], write [0-5,12]"),
        (TREE.replace("[00-02]", "[0-99999999]"), "more machines than are read"),
        ("SwitchName=s0 Nodes\n", "line 1: found 'Nodes'"),
        (TREE + "SwitchName=s9 \\\nNodes=tux00=7\n", "line 6: found 'Nodes=tux00=7'"),
        (TREE.replace("tux", "t\0"), "name that is refused: 't\\\\x0000' holds what"),
        (TREE.replace("tux", "t" * 99), "has a name of 101 characters, at most 100"),
        (TREE.replace("tux", "t" * 399), "has a name of 401 characters, at most 100"),
        (TREE + "SwitchName=s9 Nodes=[0-x] \\", "line 6: found [0-x], write [0-5,12]"),
        (TREE + "Nodes=tux00\n", "line 6: Nodes=tux00 is no SwitchName"),
    ],
)
def test_a_tree_that_cannot_be(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(text)
    answers = (
        {} if problem.startswith("has no") else {"nic": "1 GB/s", "uplink": "1 GB/s"}
    )
    with pytest.raises(ScenarioError) as caught:
        makespan({"file": str(path), **answers}, [("tux00", "tux01", 1.0)])
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


NETWORK = """\
topology: [ {} ]
npus_count: [ {} ]
bandwidth: [ {} ]  # GB/s
latency: [ {} ]  # ns
"""


@pytest.mark.parametrize(
    ("row", "flows", "seconds"),
    [
        (("Ring", "8", "1", "5e8"), [("npu0", "npu3", 1e9)], 1 + 1.5),
        (("Ring", "8", "1", "5e8"), [("npu0", "npu6", 1e9)], 1 + 1.0),
        (("Ring", "4", "1", "0"), [("npu0", "npu2", 1e9), ("npu1", "npu2", 1e9)], 2),
        (("Ring", "4", "1", "0"), [("npu0", "npu1", 1e9), ("npu1", "npu0", 1e9)], 1),
        (("Switch", "4", "2", "5e8"),
         [("npu0", "npu1", 2e9), ("npu2", "npu1", 2e9)], 3),
        (("FullyConnected", "4", "2", "0"),
         [("npu0", "npu1", 2e9), ("npu2", "npu1", 2e9)], 1),
        # npu0 to npu11 = 1 + 2 * 5: a hop of dimension 0, then up and down a switch.
        (("Ring, Switch", "2, 6", "4, 1", "1e9, 1e8"), [("npu0", "npu11", 1e9)],
         1 + 1.2),
    ],
)  # fmt: skip
def test_dimensions_by_hand(
    tmp_path: Path, row: tuple[str, str, str, str], flows: list[Flow], seconds: float
) -> None:
    (tmp_path / "network.yml").write_text(NETWORK.format(*row))
    assert makespan(tmp_path / "network.yml", flows) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("Ring", "4, 4", "1", "0"), "differ in length"),
        (("Mesh", "4", "1", "0"), "topology has 'Mesh', write Ring"),
        (
            ("Ring", "4", "tbd", "0"),
            "bandwidth of a dimension is 'tbd', write a number",
        ),
        (("Ring, Ring", "9000, 9000", "1, 1", "0, 0"), "has 81,000,000 machines"),
        (("Ring", "4", "1", "-5"), "link dim0 npu0-npu1 has a latency of -5e-09 s"),
    ],
)
def test_dimensions_that_cannot_be(
    tmp_path: Path, row: tuple[str, str, str, str], problem: str
) -> None:
    (tmp_path / "network.yml").write_text(NETWORK.format(*row))
    with pytest.raises(ScenarioError) as caught:
        makespan(tmp_path / "network.yml", [("npu0", "npu1", 1.0)])
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
