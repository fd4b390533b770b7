"""Copies of graphs for hosts that lack them, without sockets and graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.emulation.coordinator import graph_copies
from emu.emulation.coordinator.graph_copies import bring_graphs
from emu.emulation.wire.messages import (
    Beat,
    GraphPiece,
    Graphs,
    GraphsKept,
    GraphWanted,
)


class Graph:
    """A graph of so many bytes."""

    def __init__(self, name: str, size: int) -> None:
        self.dataset = {"name": name, "scale": 1.0}
        self.fingerprint = f"print of {name}"
        self.size = size

    def piece(self, position: int) -> tuple[str, bytes, bool]:
        """Return a piece from a byte on."""
        return f"file of {self.dataset['name']}", b"%d" % position, position > 5


@pytest.mark.parametrize("here", [[], [("a", 3e6), ("b", 1e6)]])
async def test_hosts_get_the_pieces_that_they_want(
    here: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three jobs, one without a data set; copies of 4 MB to 2 hosts may take 8 s."""
    listed: list[Any] = []
    graphs = [Graph(name, int(size)) for name, size in here]

    def list_graphs(datasets: Any) -> list[Graph]:
        listed.extend(datasets)
        return graphs

    monkeypatch.setattr(graph_copies, "list_graphs", list_graphs)
    settings: dict[str, Any] = {"x": {"dataset": 1}, "y": {}, "z": {"dataset": 2}}
    job: Any = SimpleNamespace(job_names=[*settings], settings_of=settings.get)
    sent: list[Any] = []
    orders: list[Any] = []
    waits: list[Any] = []

    async def until(missing: Any, purpose: str, answer: Any, **limits: float) -> None:
        waits.append((purpose, limits["patience"], sorted(missing())))
        orders.extend(sent)
        sent.clear()
        answer("agent 1", GraphWanted("b", 4))
        answer("agent 2", GraphWanted("a", 6))
        answer("agent 2", GraphWanted("stranger", 0))
        answer("agent 2", Beat())
        waits.append({*missing()})
        answer("agent 2", GraphsKept())
        waits.append({*missing()})

    agents = [SimpleNamespace(name=f"agent {number}") for number in (1, 2)]
    first, second = agents
    membership: Any = SimpleNamespace(
        agents=agents,
        send_to_agent=lambda *given: sent.append(given),
        barrier=SimpleNamespace(until=until),
    )
    await bring_graphs(membership, job)

    assert listed == [1, 2]
    if not here:
        assert sent == waits == []
        return
    described = [[graph.dataset, graph.fingerprint] for graph in graphs]
    assert orders == [(first, Graphs(described)), (second, Graphs(described))]
    assert sent == [
        (first, GraphPiece("b", "file of b", b"4", last=False)),
        (second, GraphPiece("a", "file of a", b"6", last=True)),
    ]
    both = ["agent 1", "agent 2"]
    assert waits == [("get the graphs of the job", 8.0, both), {*both}, {"agent 1"}]
