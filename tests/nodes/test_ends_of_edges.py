"""Ends of the edges of a process: who connects, who is named when it does not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from emu.emulation.network.inbox import Handoff
from emu.emulation.wire.process_spec import HostSide
from emu.errors import DeadlineExceeded, NodeMisbehaved
from emu_nodes import task_runner
from emu_nodes.task_runner import EdgeEnds
from tests.emulation.launch.specs import edge_end, process_spec, process_task

HOST = HostSide(certificate=b"", coordinator=("there", 1), bind="", board="")


def ends_of(*tasks: Any) -> Any:
    """Return the ends of edges of the process ``w0``, without any socket."""
    spec = replace(process_spec("w0", *tasks), host=HOST)
    ends: Any = EdgeEnds(spec, lambda _: None, lambda _: None)
    ends._settings = replace(ends._settings, deadline=4.0)
    return ends


async def test_edges_to_others_have_connections_and_those_within_have_none() -> None:
    """Edges 7 and 9 lead to two others, edge 8 to a task of the same process."""
    outputs = (
        edge_end(7, peer_process="p1"),
        edge_end(8, peer_process="w0"),
        edge_end(9, peer_process="p2"),
    )
    inputs = (edge_end(3, key=b"k3"), edge_end(8, peer_process="w0", key=b"k8"))
    ends = ends_of(process_task("x:X", outputs=outputs, inputs=inputs))
    connected: list[Any] = []
    waited: list[float] = []

    async def connect(end: Any, address: Any, pacer: Any) -> str:
        connected.append((end.edge, address, pacer.name))
        return f"edge {end.edge}"

    async def wait_connected(*, within: float) -> None:
        waited.append(within)

    assert ends.server.keys == {3: b"k3"}
    ends._connect = connect
    ends.server.wait_connected = wait_connected
    pacer: Any = SimpleNamespace(name="pacer", departures=object())
    await ends.meet({"p1": ["h1", 1], "p2": ["h2", 2], "p0": ["h0", 0]}, pacer)

    assert connected == [(7, ["h1", 1], "pacer"), (9, ["h2", 2], "pacer")]
    assert ends.connections == {7: "edge 7", 9: "edge 9"}
    assert {edge: ends.outputs[edge] for edge in (7, 9)} == ends.connections
    handoff = ends.outputs[8]
    assert isinstance(handoff, Handoff)
    assert handoff.edge == 8
    assert handoff.departures is pacer.departures
    assert handoff.inbox is ends.inbox
    assert handoff.arrivals is ends.server.log
    assert waited == [4.0]


async def test_peers_that_do_not_connect_are_named_the_first_five_of_many() -> None:
    """The third and the last of eight edges have come, and five others are named."""
    ends = ends_of(process_task("x:X", inputs=tuple(map(edge_end, range(8)))))

    async def wait_connected(**_: float) -> None:
        raise TimeoutError

    ends.server.wait_connected = wait_connected
    ends.server.connected = {2: None, 7: None}
    with pytest.raises(DeadlineExceeded) as caught:
        await ends.meet({}, None)
    names = "edge 0, edge 1, edge 3, edge 4, edge 5"
    words = f"w0 waited 4 s for {names} to connect; iteration 0 cannot start"
    assert str(caught.value) == words


async def test_who_refuses_a_connection_is_named_with_the_edge() -> None:
    ends = ends_of(process_task("x:X", outputs=(edge_end(7),)))

    async def connect(*_: object) -> None:
        raise NodeMisbehaved("no such edge")

    ends._connect = connect
    with pytest.raises(NodeMisbehaved, match=r"^flow edge 7: no such edge$"):
        await ends.meet({"p0": ["h", 1]}, None)


async def test_a_connection_that_breaks_is_told_to_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its key, its deadline and its pacer are those of the run; TLS where all is."""
    opened: list[dict[str, Any]] = []

    async def open_edge(*_: object, **options: Any) -> Any:
        opened.append(options)
        return SimpleNamespace(on_failure=None)

    monkeypatch.setattr(task_runner, "open_edge", open_edge)
    for tls in ("control", "all"):
        ends = ends_of(process_task("x:X"))
        ends._settings = replace(ends._settings, tls=tls)
        edge = await ends._connect(edge_end(7, key=b"secret"), ("h", 1), "pacer")
        assert edge.on_failure is ends._fail
    assert [options["encrypted"] for options in opened] == [False, True]
    for options in opened:
        given = (options["key"], options["within"], options["pacer"])
        assert given == (b"secret", 4.0, "pacer")
