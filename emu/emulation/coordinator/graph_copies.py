"""Copies of graphs for hosts that lack them."""

from __future__ import annotations

import asyncio

from emu.emulation.coordinator.membership import Membership
from emu.emulation.wire.messages import (
    GraphPiece,
    Graphs,
    GraphsKept,
    GraphWanted,
    Message,
)
from emu.graph_data.copied_graphs import list_graphs
from emu.problem import Job

#: Bytes per wall second below which the copy of a graph to a host is given up.
_SLOWEST_COPY = 1e6


async def bring_graphs(membership: Membership, job: Job) -> None:
    """Have every host get the graphs of the job that it lacks.

    Raises RunError when a host has another graph of that name, or cannot keep it;
    DataError when it is not here.
    """
    settings = [job.settings_of(name) for name in job.job_names]
    datasets = [of_job["dataset"] for of_job in settings if "dataset" in of_job]
    copies = await asyncio.to_thread(lambda: [*list_graphs(datasets)])
    graphs = {graph.dataset["name"]: graph for graph in copies}
    if not graphs:
        return

    order = Graphs(
        [[{**graph.dataset}, graph.fingerprint] for graph in graphs.values()]
    )
    agents = {agent.name: agent for agent in membership.agents}
    for agent in agents.values():
        membership.send_to_agent(agent, order)

    waiting = {*agents}

    def answer(name: str, message: Message) -> None:
        if isinstance(message, GraphsKept):
            waiting.discard(name)
        elif isinstance(message, GraphWanted) and message.name in graphs:
            graph = graphs[message.name]
            file, data, is_last = graph.piece(message.position)
            piece = GraphPiece(
                name=message.name,
                file=file,
                data=data,
                last=is_last,
            )
            membership.send_to_agent(agents[name], piece)

    size = sum(graph.size for graph in graphs.values())
    await membership.barrier.until(
        lambda: waiting,
        "get the graphs of the job",
        answer,
        patience=size * len(agents) / _SLOWEST_COPY,
    )
