"""Rate boards of all hosts of a run: near ones are written, others get messages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Ints
from emu.emulation.coordinator.desk import Desk
from emu.emulation.coordinator.membership import Membership
from emu.emulation.coordinator.outcome import Recorder
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.wire.messages import RateUpdate
from emu.problem import Problem


class RunBoards:
    """Boards of the agents of a membership.

    Parameters
    ----------
    problem
        Its edges leave from the machines whose boards show their rates.
    membership
        Has the agents, once they have joined.
    settings
        Of the run: whether NICs of the kernel keep to the rates.
    desk
        Counts what was published.
    recorder
        Keeps what near boards have shown.
    """

    def __init__(
        self,
        problem: Problem,
        membership: Membership,
        settings: RunSettings,
        desk: Desk,
        recorder: Recorder,
    ) -> None:
        self._membership = membership
        self._nics = settings.kernel_nics
        self._desk = desk
        self._record = recorder.board
        self._sender_machine = _machines_of_senders(problem)

    def near(self) -> list[RateBoard]:
        """Return the boards of all hosts, none where one is elsewhere or has NICs."""
        if self._nics is not None:
            return []
        agents = self._membership.agents
        boards = [agent.board for agent in agents if agent.board is not None]
        return boards if len(boards) == len(agents) else []

    def publish(self, desk: Desk) -> None:
        """Put changed segments on the boards of all hosts."""
        nics = self._nics
        segments = desk.rates
        if nics is not None:
            segments = nics.for_senders(segments)
        # In the order of the parameters of `RateBoard.publish` and `RateUpdate`.
        columns = [
            segments.edge,
            segments.iteration,
            segments.served,
            segments.rate,
            segments.since,
            desk.published[segments.edge],
        ]
        message: RateUpdate | None = None

        for agent in self._membership.agents:
            if agent.board is None:
                if message is None:
                    message = RateUpdate(*(column.tobytes() for column in columns))
                self._membership.send_to_agent(agent, message)
            elif nics is None:
                agent.board.publish(*columns)
                self._record.note(agent.board, segments.edge, len(segments))
            else:  # of each machine's own senders alone: all boards are near
                is_local = self._sender_machine[segments.edge] == agent.host_name
                agent.board.publish(*(column[is_local] for column in columns))

    def missing_rates(self) -> Ints:
        """Return per edge how many segments never came to the boards of this host."""
        published_counts = self._desk.published
        missing: Ints = np.zeros_like(published_counts)
        if self._nics is not None:  # each gets those of its machine
            return missing
        for agent in self._membership.agents:
            if agent.board is not None:  # else it is of another host
                arrivals = agent.board.counts.astype(np.int64)
                np.maximum(missing, published_counts - arrivals, out=missing)
        return missing


def _machines_of_senders(problem: Problem) -> NDArray[np.str_]:
    """Return the name of the machine from which each edge leaves."""
    machine_of = problem.machine_of_task
    job = problem.job
    names = []
    for edge in job.edges:
        sender = job.tasks[edge.source].name
        names.append(machine_of[sender])
    return np.array(names, dtype=np.str_)
