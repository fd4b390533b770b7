"""The drawing of links: their ends follow from routes, their load from flows."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.report.html.link_drawing import _arrow, link_ends, link_graph
from emu.runs.result import port_rows
from emu.scenario import prepare
from emu.scenario.scenario_file import loads

BOX = """
cluster: {{topology: {}}}
job:
  system: custom
  iterations: 1
  tasks: [{{name: a, time: 1 s}}, {{name: b, time: 1 s}}]
  flows: [{{from: a, to: b, volume: 1 GB}}]
placement: {{policy: explicit, tasks: {{a: {}, b: {}}}}}
"""


@pytest.mark.parametrize("word", ["dgx1", "pcie_8"])
def test_ends_of_the_links_of_a_box(word: str) -> None:
    cluster = loads(BOX.format(word, "d0", "d1")).to_cluster()
    ends, spokes = link_ends(cluster)
    of = {link.name: pair for link, pair in zip(cluster.links, ends, strict=True)}

    for name, (tail, head) in of.items():
        if name.startswith("nv"):
            pair = re.findall(r"\d+", name)[1:]
            assert [tail, head] == [(int(device), 0) for device in pair]
    for device in range(8):
        socket = 4 * (device // 4)
        assert of[f"pcie{device} up"][0] == (device, 0) == of[f"pcie{device} down"][1]
        assert of[f"pcie{device} up"][1] == of[f"pcie{socket} up"][1]
        assert of[f"pcie{device} down"][0] == of[f"pcie{socket} down"][0]
    assert of["qpi0"] == (of["pcie0 up"][1], of["pcie4 down"][0])
    assert of["qpi1"] == (of["pcie4 up"][1], of["pcie0 down"][0])
    assert not spokes


def test_a_link_that_several_machines_share_hangs_on_all_of_them() -> None:
    text = """
cluster:
  machines: [{name: a, nic: none}, {name: b, nic: none}]
  links: [{name: bus, bandwidth: 1 GB/s}]
  routes:
    - {from: a, to: b, through: [bus]}
    - {from: b, to: a, through: [bus]}
job: {system: custom, iterations: 1, tasks: [{name: t, time: 1 s}]}
"""
    ends, spokes = link_ends(loads(text).to_cluster())

    (tail, head), *others = ends
    assert not others
    assert tail != head
    assert spokes == {((m, 0), node) for m in (0, 1) for node in (tail, head)}


def test_every_link_is_drawn_with_its_load() -> None:
    experiment = prepare(loads(BOX.format("dgx1", "d0", "d5")))
    schedule = experiment.simulate()
    cluster = experiment.problem.cluster
    drawn = ET.fromstring(link_graph(cluster, schedule))  # noqa: S314 - ours

    links = {one.findtext("title", ""): one for one in drawn.iter("g")}
    rows = {row["port"]: row for row in port_rows(schedule)}
    assert {said.partition(":")[0] for said in links} == {*rows}
    for said, one in links.items():
        crossed = rows[said.partition(":")[0]]["bytes"]
        assert ("unused" in one.get("class", "")) == (not crossed)
        assert ("1 GB at" in said) == bool(crossed)
    widths = [one.get("stroke-width") for one in links.values()]
    assert widths.count("6.0") == 1  # qpi0, the slowest of its way
    texts = [one for one in drawn.iter("text") if one.get("class") == "name"]
    names = {one.text for one in texts}
    assert names == {port for port, row in rows.items() if row["bytes"]}


def test_nics_alone_are_not_drawn() -> None:
    text = """
cluster: {machines: [{name: m, count: 2, nic: 1 Gbit/s}]}
job: {system: custom, iterations: 1, tasks: [{name: t, time: 1 s}]}
"""
    experiment = prepare(loads(text))

    assert link_graph(experiment.problem.cluster, experiment.simulate()) == ""


@given(
    st.tuples(*[st.floats(-500, 500)] * 2),
    st.floats(0.0, 6.28),
    st.floats(5.0, 400.0),
)
def test_an_arrow_points_along_its_course_about_the_middle(
    middle: tuple[float, float], angle: float, length: float
) -> None:
    """Its tip is ahead of the middle, its two other corners as far behind it."""
    ahead = np.array([np.cos(angle), np.sin(angle)])
    drawn = _arrow(np.array(middle), length * ahead, "red")
    (points,) = re.findall(r'points="([^"]+)"', drawn)
    corners = [[float(x) for x in corner.split(",")] for corner in points.split()]

    offsets = np.array(corners) - middle
    along = offsets @ ahead
    across = offsets @ np.array([-ahead[1], ahead[0]])
    assert along == pytest.approx([6.0, -4.0, -4.0], abs=0.1)
    assert across == pytest.approx([0.0, 4.0, -4.0], abs=0.1)
