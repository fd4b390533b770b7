"""The job of a virtual run, as a scenario: it can be simulated at other NICs.

Tasks are what a rank computed from one call or wait to the next, ``r0.5`` the sixth of
rank 0, and the steps of its calls (`emu.virtual.recorded_messages`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from emu.interchange.workload import Workload
from emu.problem.fields.cluster_section import ClusterSection, MachineSection
from emu.virtual.call_group import CallGroup, MadeCall
from emu.virtual.cluster_server import RankRecord
from emu.virtual.recorded_messages import MessageTasks, RecordedCall


def describe_job(
    name: str,
    cluster: ClusterSection,
    machine_of: Sequence[int],
    records: Sequence[RankRecord],
    groups: Collection[CallGroup],
) -> dict[str, Any]:
    """Return the scenario of a run.

    Parameters
    ----------
    name
        Of the scenario.
    machine_of
        Machine of every rank, by its number.
    records
        What every rank did.
    groups
        Every process group.
    """
    workload = Workload(name, [])
    messages = MessageTasks(workload, groups)
    sections = [*cluster.by_name.items()]
    for rank, record in enumerate(records):
        machine, section = sections[machine_of[rank]]
        workload.places[f"r{rank}"] = machine
        tasks = _RankTasks(workload, messages, rank, record, section)
        tasks.add()
    messages.join()

    scenario = workload.scenario(name, "1 Gbit/s")
    scenario["cluster"] = _with_cores(cluster, machine_of)
    # Seconds of this computer, which a machine takes over its speed.
    scenario["job"]["times"] = "measured"
    # As TCP shares links, and as the run did.
    scenario["schedule"] = {"policy": "maxmin"}
    return scenario


def _with_cores(cluster: ClusterSection, machine_of: Sequence[int]) -> dict[str, Any]:
    """Return the section of a cluster whose machines have cores for their ranks.

    Ranks keep one each, so that no search for a placement puts several on it.
    """
    content = cluster.model_dump(mode="json", by_alias=True, exclude_none=True)
    most_ranks = max(map(machine_of.count, machine_of))
    for machine in content["machines"]:
        machine.setdefault("cpu", most_ranks)
    return content


class _RankTasks:
    """Tasks of one rank, one after the other."""

    def __init__(
        self,
        workload: Workload,
        messages: MessageTasks,
        rank: int,
        record: RankRecord,
        machine: MachineSection,
    ) -> None:
        self._workload = workload
        self._messages = messages
        self._rank = rank
        self._record = record
        self._speed = machine.speed
        self._cores = min(1.0, machine.cpu or 1.0)
        self._calls: dict[int, RecordedCall] = {}
        """Calls so far that ended, by name."""
        self._awaited: list[RecordedCall] = []
        """Calls of which the next task waits for the end."""
        self._former = ""
        self._count = 0

    def add(self) -> None:
        """Add all of them."""
        resumed = 0.0
        waits = False
        for event in self._record.events:
            if event.kind != "go":
                self._add_task(event.time - resumed)
                resumed = event.time
            match event.kind:
                case "go":
                    # What no call ends, as a sleep, is time of its own.
                    if waits:
                        resumed = event.time
                    waits = False
                    awaited = self._awaited
                    # Others go on: the wait passed its timeout.
                    self._awaited = [
                        call for call in awaited if call.made.ended <= event.time
                    ]
                case "wait":
                    calls = self._calls
                    names = [name for name in event.names if name in calls]
                    self._awaited = [calls[name] for name in names]
                    waits = bool(names)
                case _ if event.call is not None:
                    self._add_call(event.call)
                case _:
                    pass
        end = self._record.end or 0.0
        self._add_task(end - resumed)

    def _add_task(self, seconds: float) -> None:
        """Add a task behind the one before, and behind the calls that it waits for."""
        process = f"r{self._rank}"
        task = f"{process}.{self._count}"
        self._count += 1
        fields: dict[str, Any] = {"process": process, "kind": "compute"}
        if not self._former:
            fields["demands"] = {"cpu": self._cores}
        work = max(0.0, seconds) * self._speed
        self._workload.add_task(task, work, **fields)
        if self._former:
            self._workload.add_flow(self._former, task)

        for recorded in self._awaited:
            self._workload.add_flow(recorded.end, task)
            self._messages.note_wait(recorded)

        self._awaited = []
        self._former = task

    def _add_call(self, made: MadeCall) -> None:
        has_ended = made.ended < math.inf
        if made.form.call.kind == "recv_anysource" and not has_ended:
            return  # nobody ever sent

        number = self._count - 1
        end = f"r{self._rank}.end{number}"
        recorded = RecordedCall(made=made, task=self._former, end=end)
        self._messages.add_call(recorded)
        if has_ended:
            self._calls[made.name] = recorded
