"""The job of a virtual run, as a scenario: it can be simulated at other NICs.

Tasks are what a rank computed from one call or wait to the next, ``r0.5`` the sixth of
rank 0, and the steps of its calls (`emu.virtual.recorded_messages`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from emu.interchange.workload import Workload
from emu.problem.fields.cluster_section import ClusterSection, MachineSection
from emu.virtual.call_group import CallGroup
from emu.virtual.calls import Call
from emu.virtual.cluster_server import RankRecord
from emu.virtual.recorded_messages import MessageTasks, RecordedCall


def describe_job(
    name: str,
    cluster: ClusterSection,
    machine_of: Sequence[int],
    records: Sequence[RankRecord],
    groups: Mapping[str, CallGroup],
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
        Every process group, by its name.
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
        self._ends = {
            event["name"]: event for event in record.events if event["kind"] == "end"
        }
        self._calls: dict[str, RecordedCall] = {}
        """Calls so far, by name."""
        self._awaited: list[str] = []
        """Calls of which the next task waits for the end, by name."""
        self._former = ""
        self._count = 0

    def add(self) -> None:
        """Add all of them."""
        resumed = 0.0
        waits = False
        events = [event for event in self._record.events if event["kind"] != "end"]
        for event in [*events, {"kind": "leave", "time": self._record.end}]:
            if event["kind"] != "go":
                self._add_task(event["time"] - resumed)
                resumed = event["time"]
            match event["kind"]:
                case "go":
                    # What no call ends, as a sleep, is time of its own.
                    resumed = event["time"] if waits else resumed
                    waits = False
                    self._awaited = [
                        name
                        for name in self._awaited
                        if self._ends[name]["time"] <= event["time"]
                    ]
                case "wait":
                    self._awaited = [
                        name for name in event["names"] if name in self._calls
                    ]
                    waits = bool(self._awaited)
                case "post":
                    self._add_call(event)
                case _:
                    pass

    def _add_task(self, seconds: float) -> None:
        """Add a task behind the one before, and behind the calls that it waits for."""
        task = f"r{self._rank}.{self._count}"
        self._count += 1
        fields: dict[str, Any] = {"process": f"r{self._rank}", "kind": "compute"}
        if not self._former:
            fields["demands"] = {"cpu": self._cores}
        self._workload.add_task(task, max(0.0, seconds) * self._speed, **fields)
        if self._former:
            self._workload.add_flow(self._former, task)

        for name in self._awaited:
            recorded = self._calls[name]
            self._workload.add_flow(recorded.end, task)
            self._messages.note_wait(self._rank, recorded)

        self._awaited = []
        self._former = task

    def _add_call(self, event: Mapping[str, Any]) -> None:
        end = self._ends.get(event["name"])
        result = end["result"] if end else None
        if event["call"] == "recv_anysource" and result is None:
            return  # nobody ever sent

        figures = event["figures"]
        is_message = "tag" in figures
        recorded = RecordedCall(
            call=Call(event["call"], figures, ""),
            group=event["group"],
            slot=figures["tag"] if is_message else event["slot"],
            task=self._former,
            end=f"r{self._rank}.end{self._count - 1}",
            ended=end["time"] if end else math.inf,
            source=result["peer"] if result else None,
        )
        self._messages.add_call(self._rank, recorded)
        if end:
            self._calls[event["name"]] = recorded
