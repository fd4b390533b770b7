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

#: Collectives of gloo -> those of custom jobs that move as much as long.
_KINDS = {
    "allreduce": "ALL_REDUCE",
    "reduce_scatter": "ALL_REDUCE",
    "reduce_scatter_list": "ALL_REDUCE",
    "reduce": "ALL_REDUCE",
    "broadcast": "BROADCAST",
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
            self._workload.add_flow(sender, f"{task}.done", size)
        for (group, _), made in self._calls.items():
            rows = [made[rank] for rank in self._groups[group]]
            self._join_call([task for task, _ in rows], [event for _, event in rows])

    def _join_call(
        self, tasks: Sequence[str], events: Sequence[dict[str, Any]]
    ) -> None:
        call = events[0]["call"]
        figures = events[0]["figures"]
        for task in tasks:
            self._workload.add_flow(task, f"{task}.done")
        if call == "alltoall":
            for source, destination, size in _pairs([e["figures"] for e in events]):
                target = f"{tasks[destination]}.done"
                self._workload.add_flow(tasks[source], target, size)
        elif call == "scatter":
            root = figures["root"]
            for member, task in enumerate(tasks):
                if member != root:
                    self._workload.add_flow(
                        tasks[root], f"{task}.done", figures["size"]
                    )
        elif len(tasks) > 1:
            size = figures.get("size", 0)
            self._workload.add_collective(
                _KINDS[call], size, tasks, root=figures.get("root", 0), segments=2
            )


def _pairs(figures: Sequence[dict[str, Any]]) -> Iterator[tuple[int, int, int]]:
    """Yield sender, receiver and bytes of an exchange."""
    for source, row in enumerate(figures):
        for destination, size in enumerate(row["given"]):
            if destination != source:
                yield source, destination, size
