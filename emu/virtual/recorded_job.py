"""The job of a virtual run, as a scenario: it can be simulated at other NICs.

Tasks are what a rank computed from one call or wait to the next, ``r0.5`` the sixth of
rank 0. Collectives are those of custom jobs, so that an all-to-all has both directions
of its NICs: gloo's half duplex is in the run, and not in its job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from emu.interchange.workload import Workload
from emu.virtual.calls import MESSAGES
from emu.virtual.cluster_server import RankRecord
from emu.virtual.gloo_operations import parent_in_broadcast

#: Collectives of gloo -> those of custom jobs that move as much as long.
_KINDS = {
    "allreduce": "ALL_REDUCE",
    "reduce_scatter": "ALL_REDUCE",
    "reduce_scatter_list": "ALL_REDUCE",
    "reduce": "ALL_REDUCE",
    "allgather": "ALL_GATHER",
    "gather": "GATHER",
    "barrier": "BARRIER",
    "monitored_barrier": "BARRIER",
}


def describe_job(
    name: str,
    cluster: dict[str, Any],
    machines: Sequence[str],
    records: Sequence[RankRecord],
    groups: dict[str, Sequence[int]],
) -> dict[str, Any]:
    """Return the scenario of a run.

    Parameters
    ----------
    name
        Of the scenario.
    cluster
        Section of the cluster.
    machines
        Machine of every rank.
    records
        What every rank did.
    groups
        Ranks of every process group.
    """
    workload = Workload(name, [])
    recorder = _Recorder(workload, groups)
    for rank, record in enumerate(records):
        workload.places[f"r{rank}"] = machines[rank]
        recorder.add_rank(rank, record)
    recorder.join()
    scenario = workload.scenario(name, "1 Gbit/s")
    scenario["cluster"] = cluster
    return scenario


class _Recorder:
    """Tasks of ranks, and the calls that join them."""

    def __init__(self, workload: Workload, groups: dict[str, Sequence[int]]) -> None:
        self._workload = workload
        self._groups = groups
        # Names of groups are torch's, with any signs in them.
        self._group_numbers = {name: number for number, name in enumerate(groups)}
        self._calls: defaultdict[tuple[str, int], dict[int, tuple[str, Any]]]
        self._calls = defaultdict(dict)
        """Group and slot -> rank -> the task that made the call, and the call."""
        self._sends: dict[tuple[str, int, int, int, int], tuple[str, int]] = {}
        """Group, sender, receiver, tag and number -> task and bytes."""
        self._receives: list[tuple[tuple[str, int, int, int, int], str]] = []

    def add_rank(self, rank: int, record: RankRecord) -> None:
        """Add the tasks of a rank."""
        ends = {
            event["name"]: event for event in record.events if event["kind"] == "end"
        }
        sent: defaultdict[tuple[str, int, int], int] = defaultdict(int)
        task = ""
        resumed = 0.0
        awaited: list[str] = []
        makers: dict[str, str] = {}
        number = 0
        events = [event for event in record.events if event["kind"] != "end"]
        for event in [*events, {"kind": "leave", "time": record.end}]:
            if event["kind"] == "go":
                slept = not awaited
                awaited = [
                    name for name in awaited if ends[name]["time"] <= event["time"]
                ]
                # What no call ends, as a sleep, is time of its own.
                resumed = resumed if slept else event["time"]
                continue

            former = task
            task = f"r{rank}.{number}"
            number += 1
            seconds = max(0.0, event["time"] - resumed)
            self._workload.add_task(task, seconds, process=f"r{rank}")
            if former:
                self._workload.add_flow(former, task)
            for name in awaited:
                self._workload.add_flow(f"{makers[name]}.done", task)
            awaited = []
            resumed = event["time"]
            if event["kind"] == "wait":
                awaited = [name for name in event["names"] if name in makers]
            elif event["kind"] == "post" and event["name"] in ends:
                makers[event["name"]] = task
                self._workload.add_task(f"{task}.done", 0.0, process=f"r{rank}")
                self._note_call(rank, event, task, ends[event["name"]]["result"], sent)

    def _note_call(
        self,
        rank: int,
        event: dict[str, Any],
        task: str,
        result: Any,
        sent: defaultdict[tuple[str, int, int], int],
    ) -> None:
        group = event["group"]
        if event["call"] not in MESSAGES:
            self._calls[group, event["slot"]][rank] = (task, event)
            return
        member = self._groups[group].index(rank)
        tag = event["figures"]["tag"]
        if event["call"] == "send":
            peer = event["figures"]["peer"]
            count = sent[group, peer, tag]
            sent[group, peer, tag] += 1
            size = event["figures"]["size"]
            self._sends[group, member, peer, tag, count] = (task, size)
            self._workload.add_flow(task, f"{task}.done")
        else:
            key = (group, result["peer"], member, tag, result["number"])
            self._receives.append((key, task))

    def join(self) -> None:
        """Add the flows between ranks."""
        for key, task in self._receives:
            self._workload.add_flow(task, f"{task}.done")
            sender, size = self._sends[key]
            self._send(key[0], sender, task, size)
        for (group, _), made in self._calls.items():
            rows = [made[rank] for rank in self._groups[group]]
            tasks = [task for task, _ in rows]
            events = [event for _, event in rows]
            for task in tasks:
                self._workload.add_flow(task, f"{task}.done")
            self._join_call(group, tasks, events)

    def _send(self, group: str, source: str, task: str, size: int) -> None:
        """Add what goes to the end of a task, in the line of its group and ranks.

        It goes when both ends have made their call.
        """
        sender = source.partition(".")[0]
        receiver = task.partition(".")[0]
        number = self._group_numbers[group]
        channel = f"group{number}.{sender}.{receiver}"
        ready = self._add_ready(f"{task}.from.{sender}", source, task)
        self._workload.add_flow(ready, f"{task}.done", size, channel=channel)

    def _add_ready(self, name: str, source: str, receiver: str) -> str:
        """Add a task on the sender that ends when the receiver's notice is there, too.

        Returns its name.
        """
        self._workload.add_task(name, 0.0, process=source.partition(".")[0])
        self._workload.add_flow(source, name)
        self._workload.add_flow(receiver, name)
        return name

    def _join_call(
        self, group: str, tasks: Sequence[str], events: Sequence[dict[str, Any]]
    ) -> None:
        call = events[0]["call"]
        figures = events[0]["figures"]
        root = figures.get("root", 0)
        size = figures.get("size", 0)
        if call == "alltoall":
            for sender, receiver, part in _pairs([e["figures"] for e in events]):
                self._send(group, tasks[sender], tasks[receiver], part)
        elif call == "scatter":
            for member, task in enumerate(tasks):
                if member != root:
                    self._send(group, tasks[root], task, size)
        elif call == "broadcast":
            self._join_broadcast(group, [*tasks[root:], *tasks[:root]], size)
        elif len(tasks) > 1:
            kind = _KINDS[call]
            if kind == "ALL_REDUCE":
                self._join_ring(tasks, size)
            else:
                self._workload.add_collective(kind, size, tasks, root=root)

    def _join_ring(self, tasks: Sequence[str], size: int) -> None:
        """Join an all-reduce: gloo's ring goes to the rank before."""
        downwards = tasks[::-1]
        receivers = [*downwards[1:], downwards[0]]
        begins = [
            self._add_ready(f"{task}.ready", task, receiver)
            for task, receiver in zip(downwards, receivers, strict=True)
        ]
        ends = [f"{task}.done" for task in downwards]
        self._workload.add_collective(
            "ALL_REDUCE", size, begins, segments=2, outcomes=ends
        )

    def _join_broadcast(self, group: str, tasks: Sequence[str], size: int) -> None:
        """Join a broadcast from the first task by gloo's tree.

        Who has the tensor sends to all its children at once: the tree of custom jobs
        sends to one after the other, and is done earlier.
        """
        for place in range(1, len(tasks)):
            parent = parent_in_broadcast(place)
            holder = f"{tasks[parent]}.done" if parent else tasks[0]
            self._send(group, holder, tasks[place], size)


def _pairs(figures: Sequence[dict[str, Any]]) -> Iterator[tuple[int, int, int]]:
    """Yield sender, receiver and bytes of an exchange."""
    for source, row in enumerate(figures):
        for destination, size in enumerate(row["given"]):
            if destination != source:
                yield source, destination, size
