"""`cluster.topology` stands for machines, links and routes."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from emu.errors import ScenarioError
from emu.problem import Cluster
from emu.scenario.scenario_file import load, loads
from emu.scenario.topology_file import read_mapping
from tests.interchange.platforms import BACKBONE
from tests.interchange.test_boxes import matrix

TEXT = """
cluster: {{topology: {}}}
job:
  system: custom
  iterations: 1
  tasks: [{{name: a, time: 1 s}}]
"""


def cluster_of(word: str) -> Cluster:
    return loads(TEXT.format(word)).to_cluster()


@pytest.mark.parametrize(
    ("word", "devices", "links"),
    [("dgx1", 8, 16 + 2 + 32), ("two_dgx1", 16, 32 + 4 + 4 + 64), ("pcie_8", 8, 18)],
)
def test_boxes_have_their_links(word: str, devices: int, links: int) -> None:
    cluster = cluster_of(word)

    assert len(cluster.machines) == devices
    assert len(cluster.links) == links
    for pair in itertools.permutations(range(devices), 2):
        assert cluster.links.route(*pair)


def test_every_two_devices_of_a_dgx1_are_within_two_nvlinks() -> None:
    links = cluster_of("dgx1").links
    nvlink = {
        pair: links[links.route(*pair)[0]]
        for pair in itertools.permutations(range(8), 2)
        if links[links.route(*pair)[0]].name.startswith("nv")
    }
    assert len(nvlink) == 32
    lanes = [
        sum(1 + (link.capacity > 30e9) for pair, link in nvlink.items() if pair[0] == d)
        for d in range(8)
    ]
    assert lanes == [6] * 8  # a V100 has six
    for a, b in itertools.permutations(range(8), 2):
        assert (a, b) in nvlink or any(
            (a, c) in nvlink and (c, b) in nvlink for c in range(8)
        )


@pytest.mark.parametrize(
    ("pair", "through"),
    [
        ((0, 3), ["nv2 0-3"]),
        ((0, 5), ["pcie0 up", "qpi0", "pcie5 down"]),
        ((6, 1), ["pcie6 up", "qpi1", "pcie1 down"]),
        ((8, 13), ["pcie8 up", "qpi2", "pcie13 down"]),
        ((0, 8), ["pcie0 up", "ib0 out", "ib1 in", "pcie8 down"]),
    ],
)
def test_routes_of_two_boxes(pair: tuple[int, int], through: list[str]) -> None:
    links = cluster_of("two_dgx1").links
    assert [links[port].name for port in links.route(*pair)] == through


def test_a_box_whose_rows_are_swapped_has_its_memory_as_a_machine() -> None:
    more = "{{topology: {}}}\njob: {{system: dgcl, plan: swap, dataset: products-like,"
    text = more + (
        " model: {{hidden: 4, layers: 2}}, epochs: 1, times: {{forward: 1 s,"
        " backward: 1 s}}}}"
    )
    cluster = loads("cluster: " + text.format("pcie_8")).to_cluster()

    assert [machine.name for machine in cluster.machines][8:] == ["host"]
    for device in range(8):
        for pair, way in (((device, 8), "up"), ((8, device), "down")):
            (port,) = cluster.links.route(*pair)
            assert cluster.links[port].name == f"pcie{device} {way}"


def test_a_file_of_links(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(
        "machines: [{name: a, nic: none}, {name: b, nic: none}]\n"
        "links: [{name: x, bandwidth: 1 GB/s}]\n"
        "routes: [{from: a, to: b, through: [x]}, {from: b, to: a, through: [x]}]\n"
    )
    (tmp_path / "one.yaml").write_text(TEXT.format("ring.yaml"))
    cluster = load(tmp_path / "one.yaml").to_cluster()

    assert [machine.name for machine in cluster.machines] == ["a", "b"]
    assert cluster.links.route(0, 1) == cluster.links.route(1, 0)
    assert load(tmp_path / "one.yaml", ["cluster.topology=dgx1"]).to_cluster() == (
        cluster_of("dgx1")
    )


def test_what_is_wrong_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(
        ScenarioError, match=r"cluster.topology: found .*write dgx1, two"
    ):
        loads(TEXT.format("dgx2"))
    with pytest.raises(ScenarioError, match="states links already: remove one"):
        loads(TEXT.format("dgx1, links: []"))
    bad = tmp_path / "bad.yaml"
    bad.write_text("machine: []\n")
    with pytest.raises(
        ScenarioError, match="has a key 'machine', it can have machines"
    ):
        loads(TEXT.format(bad))


@pytest.mark.parametrize("name", ["empty.yaml", "empty.json", "empty.txt"])
@pytest.mark.parametrize("content", ["", " \n\n", "# machines\n\n  # links\n"])
def test_an_empty_file_is_no_empty_scenario(
    name: str, content: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(content)

    with pytest.raises(ScenarioError, match=r"empty\..* is empty: a topology has mach"):
        loads(TEXT.format(file))


@pytest.mark.parametrize("boxes", ["0", "-2", "401", "2.0", "true"])
def test_boxes_are_a_whole_number_within_limits(tmp_path: Path, boxes: str) -> None:
    path = tmp_path / "box.txt"
    path.write_text("")
    with pytest.raises(ScenarioError, match=r"boxes: found .*, write 1 to 400"):
        loads(TEXT.format(f"{{file: {path}, boxes: {boxes}}}"))


def test_links_have_the_rates_of_their_kind() -> None:
    """Links of five kinds have the rates of DGCL's Table 1."""
    rates = {"nv2": 48.35, "nv1": 24.22, "pcie": 11.13, "qpi": 9.56, "ib": 6.37}
    links = cluster_of("two_dgx1").links
    found = dict.fromkeys(rates, 0)
    for link in links:
        (kind,) = (kind for kind in rates if link.name.startswith(kind))
        assert link.capacity == pytest.approx(1e9 * rates[kind])
        found[kind] += 1
    # Of a box 8 pairs of either NVLink, both ways; both boxes have a card each way.
    assert found == {"nv2": 32, "nv1": 32, "pcie": 32, "qpi": 4, "ib": 4}
    assert not any(link.name.startswith("ib") for link in cluster_of("dgx1").links)


def test_answers_on_a_file_are_counts_and_rates(tmp_path: Path) -> None:
    path = tmp_path / "box.txt"
    path.write_text("")
    for answer, words in (
        ("nic: 5", "nic: a bare number"),
        ("uplink: x", "uplink: "),
        ("box: 2", "box: is no key of a topology"),
        # What is right is passed on to who reads the file, which is empty.
        ("boxes: 400", "is empty"),
        ("boxes: 1", "is empty"),
        ("nic: 5 GB/s", "is empty"),
    ):
        with pytest.raises(ScenarioError, match=words):
            loads(TEXT.format(f"{{file: {path}, {answer}}}"))
    with pytest.raises(ScenarioError, match="states no file"):
        loads(TEXT.format("{boxes: 2}"))


@pytest.mark.parametrize(
    ("name", "text", "answer", "words"),
    [
        (
            "own.yaml",
            "machines: [{nic: 1 B/s}]",
            "nic: 5 GB/s",
            "takes no nic here: st",
        ),
        ("p.xml", BACKBONE, "boxes: 2", "takes no boxes here: state it in the"),
        ("t.conf", "SwitchName=s Nodes=a,b", "boxes: 2", "takes no boxes here"),
        ("m.txt", matrix(2, "NV4"), "nic: 5 GB/s", "is of one box, which nic joins"),
        ("m.txt", matrix(2, "NV4"), "uplink: 5 GB/s", "takes no uplink here"),
        ("m.txt", matrix(2, "NV4", above="V100 H100"), "boxes: 1", "V100 and H100 bes"),
    ],
)
def test_an_answer_that_a_file_does_not_ask_for_is_refused(
    name: str, text: str, answer: str, words: str, tmp_path: Path
) -> None:
    """It was passed over; of two GPUs beside a matrix one was taken."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ScenarioError, match=words):
        loads(TEXT.format(f"{{file: {path}, {answer}}}"))


def test_a_nic_stays_where_one_box_is_compared_with_several(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    path.write_text(matrix(2, "NV4"))
    counts = []
    for boxes in (1, 2, 4):
        answers = f"{{file: {path}, boxes: {boxes}, nic: 100 Gbit/s}}"
        cluster = loads(TEXT.format(answers)).to_cluster()
        counts.append(len(cluster.machines))
    assert counts == [2, 4, 8]


def test_json_of_others_that_is_packed_is_as_long_as_plain_json(tmp_path: Path) -> None:
    """It was read as YAML, of which 300,000 characters are read."""
    content = json.dumps({"npus_count": [4], "gap": " " * 400_000})
    for path in (tmp_path / "big.json", tmp_path / "big.json.gz"):
        data = content.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        assert read_mapping(path)["npus_count"] == [4]
