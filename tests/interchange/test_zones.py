"""Zones of SimGrid: ways over gateways, bypasses, stars, clusters and cabinets."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import DataError
from emu.interchange import topology
from emu.interchange.simgrid import read_platform
from emu.interchange.simgrid_zones import Leg, TableZone, _find_bypass
from emu.interchange.topology import Topology, Wire
from tests.interchange.platforms import cluster, platform

pytestmark = pytest.mark.usefixtures("read_here")


def zone(name: str, inside: str, routing: str = "Full") -> str:
    return f'<zone id="{name}" routing="{routing}">{inside}</zone>'


def hosts(names: str) -> str:
    return "".join(f'<host id="{name}" speed="1Gf"/>' for name in names)


def links(names: str, more: str = "") -> str:
    """Return links of 1 MB/s more each, from 1 MB/s on."""
    return "".join(
        f'<link id="{name}" bandwidth="{rate}MBps" latency="{rate}ms" {more}/>'
        for rate, name in enumerate(names, 1)
    )


def route(source: str, destination: str, wires: str, more: str = "") -> str:
    hops = "".join(f'<link_ctn id="{wire}"/>' for wire in wires)
    return f'<route src="{source}" dst="{destination}" {more}>{hops}</route>'


def zone_route(
    ends: tuple[str, str], gateways: tuple[str, str], wires: str, tag: str = "zoneRoute"
) -> str:
    text = route(*ends, wires, 'gw_src="{}" gw_dst="{}"'.format(*gateways))
    return text.replace("<route", f"<{tag}").replace("</route", f"</{tag}")


def read(folder: Path, *parts: str) -> Topology:
    path = folder / "p.xml"
    path.write_text(platform("".join(parts)))
    return read_platform(path)


def test_of_several_bypasses_the_one_of_the_innermost_zones_is_taken() -> None:
    """As far out, the one that is lower at the source; each is taken in its turn."""
    sources = ["a", "za", "ya"]
    destinations = ["b", "zb", "yb"]
    order = [
        ("a", "b"),
        ("a", "zb"),
        ("za", "b"),
        ("za", "zb"),
        ("a", "yb"),
        ("za", "yb"),
        ("ya", "b"),
        ("ya", "zb"),
        ("ya", "yb"),
    ]
    outer = TableZone("w", None)
    outer.bypasses |= {ends: Leg(["-".join(ends)]) for ends in reversed(order)}
    outer.bypasses["b", "a"] = Leg(["back"])
    for ends in order:
        assert _find_bypass(sources, destinations, outer) == outer.bypasses.pop(ends)
    assert _find_bypass(sources, destinations, outer) is None


#: Gateways of a zone lie within the zones of it; B has no way out of its own.
LEFT = zone(
    "L",
    zone(
        "P",
        hosts("AB")
        + '<router id="R"/>'
        + links("ab")
        + route("A", "R", "a")
        + route("R", "B", "b", 'symmetrical="no"'),
    )
    + zone("I", hosts("C") + '<router id="Q"/>' + links("c") + route("C", "Q", "c"))
    + links("d")
    + zone_route(("I", "P"), ("Q", "R"), "d"),
)
RIGHT = zone("O", hosts("DE") + links("ef") + route("D", "E", "ef"))


def test_a_way_goes_through_the_gateways_of_every_zone(tmp_path: Path) -> None:
    """The way back is turned round, with its gateways."""
    found = read(
        tmp_path,
        zone(
            "w",
            LEFT + RIGHT + links("xy") + zone_route(("L", "O"), ("R", "D"), "xy"),
        ),
    )
    assert found.routes["A", "D"] == ["a", "x", "y"]
    assert found.routes["C", "E"] == ["c", "d", "x", "y", "e", "f"]
    assert found.routes["E", "C"] == ["f", "e", "y", "x", "d", "c"]
    assert found.routes["D", "B"] == ["y", "x", "b"]
    assert ("B", "D") not in found.routes
    assert ("A", "B") not in found.routes
    assert found.machines == ["A", "B", "C", "D", "E"]
    assert found.wires["y"] == Wire(2e6, 0.002)


def test_a_bypass_goes_before_the_ways_of_zones_below(tmp_path: Path) -> None:
    bypass = zone_route(("O", "L"), ("E", "A"), "z", "bypassZoneRoute")
    inside = LEFT + RIGHT + links("xyz")
    way = zone_route(("L", "O"), ("R", "D"), "x")
    found = read(tmp_path, zone("w", inside + way + bypass))
    assert found.routes["D", "A"] == ["e", "f", "z"]
    assert found.routes["A", "D"] == ["a", "x"]
    with pytest.raises(DataError, match="two bypasses lead from O to L"):
        read(tmp_path, zone("w", inside + bypass + bypass))


def test_routes_join_within_a_zone_that_they_enter_and_leave(tmp_path: Path) -> None:
    """They enter the middle at D and leave it at E; a way that is missing is none."""
    ends = zone("L", hosts("A")) + zone("N", hosts("B"))
    ways = zone_route(("L", "O"), ("A", "D"), "x") + zone_route(
        ("O", "N"), ("E", "B"), "y"
    )
    found = read(tmp_path, zone("w", ends + RIGHT + links("xy") + ways, "Floyd"))
    assert found.routes["A", "B"] == ["x", "e", "f", "y"]
    assert found.routes["B", "A"] == ["y", "f", "e", "x"]
    assert found.left_out == {"speed of a host": 4}
    apart = zone("O", hosts("DE"))
    cut = read(tmp_path, zone("w", ends + apart + links("xy") + ways, "Floyd"))
    assert ("A", "B") not in cut.routes
    assert cut.routes["A", "D"] == ["x"]


def test_ways_as_short_as_another_are_counted_for_each_pair(tmp_path: Path) -> None:
    """Over C or D there are as many links; a direct route of three is longer."""
    square = route("A", "C", "i") + route("A", "D", "j")
    square += route("C", "B", "k") + route("D", "B", "l")
    direct = links("xyz") + route("A", "B", "xyz")
    inside = hosts("ABCD") + links("ijkl") + square + direct
    found = read(tmp_path, zone("w", inside, "Dijkstra"))
    assert found.routes["A", "B"] == ["i", "k"]
    assert found.left_out[topology.TIE] == 4
    full = read(tmp_path, zone("w", inside))
    assert full.routes["A", "B"] == ["x", "y", "z"]
    assert topology.TIE not in full.left_out


def test_a_star_joins_over_links_of_hosts_and_its_backbone(tmp_path: Path) -> None:
    """Each host of a cabinet has a link of its own in each direction."""
    inside = (
        '<cabinet id="k" prefix="p" suffix=".k" radical="3,5" speed="1Gf" bw="7MBps" '
        'lat="8us"/>'
        + hosts("AB")
        + links("ab")
        + '<host_link id="A" up="a" down="b"/>'
        + '<backbone id="bb" bandwidth="4MBps" latency="1ms"/>'
    )
    found = read(tmp_path, zone("s", inside, "Star"))
    assert found.routes["A", "p3.k"] == ["a", "bb", "p3.k link_DOWN"]
    assert found.routes["p5.k", "p3.k"] == ["p5.k link_UP", "bb", "p3.k link_DOWN"]
    assert found.routes["p3.k", "A"] == ["p3.k link_UP", "bb", "b"]
    assert found.wires["p5.k link_UP"] == Wire(7e6, 8e-6)
    assert found.wires["bb"] == Wire(4e6, 0.001)
    assert found.machines == ["A", "B", "p3.k", "p5.k"]
    for more, problem in (
        ('<host_link id="A" up="b" down="a"/>', "A has two of host_link"),
        ('<host_link id="Z" up="b" down="a"/>', "a route ends at 'Z', which"),
        ('<host_link id="B" up="b" down="q"/>', "names link 'q', which is not there"),
        (route("A", "B", "ab"), "zone s states a route of 2 links, A to B: its"),
    ):
        with pytest.raises(DataError, match=problem):
            read(tmp_path, zone("s", inside + more, "Cluster"))


@pytest.mark.parametrize(
    ("policy", "way", "is_shared"),
    [
        ("", ["n0.x link_UP", "n1.x link_DOWN"], True),
        ("SPLITDUPLEX", ["n0.x link_UP", "n1.x link_DOWN"], True),
        ("FULLDUPLEX", ["n0.x link_UP", "n1.x link_DOWN"], True),
        ("SHARED", ["n0.x link", "n1.x link"], True),
        ("FATPIPE", ["n0.x link", "n1.x link"], False),
    ],
)
def test_links_of_a_cluster_have_a_wire_each_way_or_one(
    policy: str,
    way: list[str],
    is_shared: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """The limiter is next to the host, whichever way."""
    more = f'sharing_policy="{policy}"' if policy else ""
    found = read(tmp_path, cluster(2, more))
    assert found.routes["n0.x", "n1.x"] == way
    assert {found.wires[name] for name in way} == {Wire(125e6, 50 * 1e-6, is_shared)}
    assert found.left_out == {"speed of a cluster": 1}

    limited = read(tmp_path, cluster(2, f'limiter_link="3MBps" bb_bw="9MBps" {more}'))
    first, last = way
    assert limited.routes["n0.x", "n1.x"] == [
        "n0.x limiter",
        first,
        "c backbone",
        last,
        "n1.x limiter",
    ]
    assert limited.wires["n1.x limiter"] == Wire(3e6)
    assert limited.wires["c backbone"] == Wire(9e6, 0.0)


@pytest.mark.parametrize(
    ("more", "gateway"), [("", "nc_router.x"), ('router_id="door"', "door")]
)
def test_routes_to_a_cluster_end_at_its_router(
    more: str, gateway: str, tmp_path: Path
) -> None:
    """Beyond the router a route crosses the backbone, if any, and the host's link."""
    inside = zone("h", hosts("A")) + links("x") + cluster(2, f'bb_bw="1MBps" {more}')
    way = zone_route(("h", "c"), ("A", gateway), "x")
    found = read(tmp_path, zone("w", inside + way))
    assert found.routes["A", "n1.x"] == ["x", "c backbone", "n1.x link_DOWN"]
    assert found.routes["n0.x", "A"] == ["n0.x link_UP", "c backbone", "x"]
    with pytest.raises(DataError, match="'gone' is no host or router within 'c'"):
        read(tmp_path, zone("w", inside + way.replace(gateway, "gone")))


@pytest.mark.parametrize(
    ("hop", "wire", "back"),
    [
        ('id="d" direction="UP"', "d_UP", "d_DOWN"),
        ('id="d" direction="DOWN"', "d_DOWN", "d_UP"),
        ('id="d_DOWN"', "d_DOWN", "d_UP"),
        ('id="d"', "d_UP", "d_DOWN"),
        ('id="d" direction="NONE"', "d_UP", "d_DOWN"),
        ('id="x" direction="DOWN"', "x", "x"),
        ('id="y_UP"', "y_UP", "y_UP"),
    ],
)
def test_a_hop_is_in_the_direction_that_is_stated(
    hop: str, wire: str, back: str, tmp_path: Path
) -> None:
    """Only a link of two directions that states none is counted."""
    two_ways = links("d", 'sharing_policy="SPLITDUPLEX"')
    plain = links("x") + links("y").replace('"y"', '"y_UP"')
    way = f'<route src="A" dst="B"><link_ctn {hop}/></route>'
    found = read(tmp_path, zone("w", hosts("AB") + two_ways + plain + way))
    assert (found.routes["A", "B"], found.routes["B", "A"]) == ([wire], [back])
    guesses = found.left_out["direction of a SPLITDUPLEX link, not stated: UP"]
    assert guesses == (hop in ('id="d"', 'id="d" direction="NONE"'))


AB = hosts("AB") + links("ab")
ZONES = AB + zone("z", hosts("C")) + zone("v", hosts("D"))


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        (AB + route("A", "B", "a", 'symmetrical="maybe"'), "symmetrical is 'MAYBE'"),
        (AB + route("A", "B", "a").replace('"a"/', '"a" direction="X"/'), "is 'X', w"),
        (AB + links("a"), "two links are called 'a'"),
        (AB + hosts("A"), "two hosts, routers or zones are called 'A'"),
        (AB + zone("A", ""), "two hosts, routers or zones are called 'A'"),
        (AB + '<router id="B"/>', "two hosts, routers or zones are called 'B'"),
        (AB + links("c", 'latency_file="f"'), "latency_file of link c, which changes"),
        (AB + links("c", 'bandwidth_file="f"'), "bandwidth_file of link c, which"),
        ('<host id="A" speed="1f" state_file="f"/>', "state_file of host A, which"),
        ('<trace id="t"/>' + AB, "has <trace id='t'>, which is not read"),
        ('<peer id="p" bw="1"/>' + AB, "has <peer id='p' bw='1'>, which is not"),
        (
            ZONES + zone_route(("v", "z"), ("D", "B"), "a"),
            "'B' is no host or router within 'z'",
        ),
        (
            ZONES + zone_route(("v", "z"), ("D", "z"), "a"),
            "'z' is no host or router within 'z'",
        ),
        (cluster(2, "").replace("0-1", "3-1"), "write the lower number first"),
        (cluster(2, "").replace("0-1", "0-x"), "radical is '0-x', write 0-7 or 0-3"),
    ],
)
def test_a_zone_that_cannot_be_is_refused(
    inside: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=problem):
        read(tmp_path, zone("w", inside))


def test_machines_of_all_kinds_are_counted_before_any_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts, a cluster of four in two parts, one of a cabinet and of a zone."""
    inside = (
        AB
        + cluster(2, "").replace('"0-1"', '" 0 - 2 , 7"')
        + zone("s", '<cabinet id="k" radical="9" bw="1Bps" lat="0"/>', "Cluster")
        + zone("z", hosts("C"))
    )
    parts = ('<config id="c"><prop id="p" value="1"/></config>', zone("w", inside))
    monkeypatch.setattr(topology, "MOST_MACHINES", 8)
    found = read(tmp_path, *parts)
    assert found.machines == ["A", "B", *(f"n{n}.x" for n in (0, 1, 2, 7)), "9", "C"]
    assert found.left_out["config p"] == 1
    monkeypatch.setattr(topology, "MOST_MACHINES", 7)
    with pytest.raises(DataError, match="has 8 machines, 1 to 7 are read"):
        read(tmp_path, *parts)


def test_a_link_goes_before_a_direction_of_another_of_that_name(tmp_path: Path) -> None:
    both = links("d") + links("e", 'sharing_policy="SPLITDUPLEX"')
    way = zone("w", hosts("AB") + both.replace('"e"', '"f"') + route("A", "B", "d"))
    with_up = way.replace('id="f"', 'id="d_UP"').replace("SPLITDUPLEX", "SHARED")
    assert read(tmp_path, with_up).routes["A", "B"] == ["d"]


def test_a_backbone_may_have_a_latency_alone(tmp_path: Path) -> None:
    """Then it has no rate, which is refused where a route crosses it."""
    found = read(tmp_path, cluster(2, 'bb_lat="5s"'))
    assert found.routes["n0.x", "n1.x"][1] == "c backbone"
    assert found.wires["c backbone"] == Wire(0.0, 5.0)


def test_a_gateway_is_no_zone_within_another(tmp_path: Path) -> None:
    outer = zone("o", zone("i", hosts("A")) + hosts("C")) + zone("p", hosts("B"))
    for gateway, is_place in (("A", True), ("C", True), ("i", False), ("o", False)):
        way = zone_route(("o", "p"), (gateway, "B"), "x")
        text = zone("w", outer + links("x") + way)
        if is_place:
            assert read(tmp_path, text).routes[gateway, "B"] == ["x"]
            continue
        with pytest.raises(DataError, match=f"'{gateway}' is no host or router within"):
            read(tmp_path, text)


@pytest.mark.parametrize("latency", ["", "ms", "5 parsec", "5MS", "-1", "1 2"])
def test_a_latency_is_a_number_and_a_unit(latency: str, tmp_path: Path) -> None:
    link = f'<link id="l" bandwidth="1Bps" latency="{latency}"/>'
    problem = f"found '{latency}' for a latency, write 50us or 1ms"
    with pytest.raises(DataError, match=problem):
        read(tmp_path, zone("w", AB + link))
    for rate in (latency, "5iBps", "5kbs", "."):
        with pytest.raises(DataError, match="for a bandwidth, write 125MBps or 1Gbps"):
            read(tmp_path, zone("w", AB + f'<link id="l" bandwidth="{rate}"/>'))
