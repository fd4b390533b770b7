"""Chakra execution traces as one job: a machine and a process per rank.

A node is a task that begins when all that it depends on has ended. A send hands its
bytes over and ends, as ``isend`` does; a receive ends when they have come. Sends and
receives of two ranks with one tag go together in the order of their files. A collective
begins when the node of every rank has, and its duration is left out: what it takes is
for the network to say, unless there is one rank alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import DataError
from emu.interchange.chakra_nodes import COLLECTIVES, Node, Trace, read_nodes
from emu.interchange.workload import (
    Data,
    Workload,
    order_nodes,
    plain_name,
    reduce_edges,
)
from emu.units import DURATION, RATE

_USED = {
    "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "root", "pg_name",
    "seconds", "control", "channel",
}  # fmt: skip
_SECTIONS = {
    "ALL_REDUCE": "allreduce", "ALL_GATHER": "allgather", "BROADCAST": "broadcast",
    "ALL_TO_ALL": "alltoall", "REDUCE_SCATTER": "reduce_scatter",
    "REDUCE_SCATTER_BLOCK": "reduce_scatter",
}  # fmt: skip


class _Message(NamedTuple):
    """One end of a message."""

    task: str
    size: float
    """Bytes."""
    channel: str
    """Messages of one go one after the other; of none, those of one tag do."""
    control: bool
    """True where it is order alone."""


class _Exchange(NamedTuple):
    """Part of one rank in a collective."""

    kind: str
    """One of `COLLECTIVES`."""
    size: float
    """Bytes that the rank brings."""
    root: int
    task: str
    """The task that brings them; ``TASK.done`` has the outcome."""


def rank_files(path: Path, copies: int = 0) -> list[Path]:
    """Return the file of every rank: NAME.0.et, NAME.1.et, ... of one, or copies of it.

    Raises DataError when one between them is missing.
    """
    if copies:
        return [path] * copies
    match = re.fullmatch(r"(.*\.)(\d+)(\.\w+)", path.name)
    if match is None:
        return [path]
    begin, _, end = match.groups()
    ranks = dict[int, Path]()
    for other in path.parent.iterdir():
        rank = other.name[len(begin) : len(other.name) - len(end)]
        if other.name == f"{begin}{rank}{end}" and rank.isdecimal():
            ranks[int(rank)] = other
    missing = [rank for rank in range(max(ranks)) if rank not in ranks]
    if missing:
        problem = f"is one of ranks 0 to {max(ranks)}, {begin}{missing[0]}{end} is "
        raise DataError(f"{problem}missing", path=path)
    return [ranks[rank] for rank in sorted(ranks)]


def read_chakra(path: Path, *, copies: int = 0, large: bool = False) -> Workload:
    """Return the traces of all ranks as one job.

    Raises DataError when one is damaged or missing, a receive has no send, collectives
    of ranks differ, or nodes wait for each other.
    """
    files = rank_files(path, copies)
    size = len(files)
    machine = {"name": "m", "count": size} if size > 1 else {"name": "m0"}
    job = _Job(Workload(str(path), [machine]), files)
    for place, file in enumerate(dict.fromkeys(files)):  # copies are read once
        trace = read_nodes(file, large=large)
        needs = job.order_edges(trace.nodes, str(file))
        for rank in range(size) if copies else [place]:
            job.add_rank(rank, trace, needs)
    job.join_messages()
    job.join_collectives()
    for rank in range(size):
        job.workload.places.setdefault(f"r{rank}", f"m{rank}")
    return job.workload


class _Job:
    """The ranks so far, and what they do together."""

    def __init__(self, workload: Workload, files: list[Path]) -> None:
        self.workload, self._files = workload, files
        # Ends of messages by (from, to, tag).
        self._sends = defaultdict[Any, list[_Message]](list)
        self._receives = defaultdict[Any, list[_Message]](list)
        # Of each group the collectives of each rank, in order.
        self._groups = defaultdict[str, dict[int, list[_Exchange]]](
            lambda: defaultdict(list)
        )

    def add_rank(self, rank: int, trace: Trace, needed: list[tuple[int, int]]) -> None:
        """Add the nodes of a rank, and the orders that no longer way stands for."""
        left_out, nodes, about = self.workload.left_out, trace.nodes, trace.metadata
        if "machine" in about:  # it names one, and states its NIC
            name, machines = str(about["machine"]), self.workload.machines
            if all("nic" not in one for one in machines):
                machines.clear()
            self.workload.places[f"r{rank}"] = name
            if all(one["name"] != name for one in machines):
                ways = "in", "out"
                nic: Data = {w: RATE.exact(float(about[f"nic_{w}"])) for w in ways}
                lags = {w: DURATION.exact(float(about[f"latency_{w}"])) for w in ways}
                has_nic = float(about["nic_in"]) > 0
                nic |= {"latency": lags}
                machines.append({"name": name, "nic": nic if has_nic else "none"})
        if "collective" in about:
            # MSCCLang's converter makes up the time of a sum, at 50 bytes per ns.
            sums = {n.number for n in nodes if n.kind == "COMP" and n.micros}
            nodes = [n._replace(micros=0) if n.number in sums else n for n in nodes]
            left_out["made-up time of a sum in a collective"] += len(sums)
        ends = [self._add_node(rank, node) for node in nodes]
        for source, destination in needed:
            name = f"r{rank}.{nodes[destination].number}"
            self.workload.add_flow(ends[source], name)
        for node in nodes:
            left_out.update(f"attribute {name}" for name in {*node.attributes} - _USED)

    def order_edges(self, nodes: list[Node], origin: str) -> list[tuple[int, int]]:
        """Return the dependencies of a rank, by places in the file.

        Raises DataError when those of data run in a circle.
        """
        places = {node.number: at for at, node in enumerate(nodes)}
        data, every = dict[tuple[int, int], None](), dict[tuple[int, int], None]()
        left_out = self.workload.left_out
        for at, node in enumerate(nodes):
            for number in (*node.data, *node.control):
                if number == node.number:
                    left_out["dependency of a node on itself"] += 1
                elif number not in places:
                    left_out["dependency on a node that is not there"] += 1
                else:
                    every[places[number], at] = None
            own = ((places[n], at) for n in node.data if n in places)
            data.update(dict.fromkeys(own))
        names = [f"node {node.number}" for node in nodes]
        order_nodes(names, data, origin)
        try:
            order = order_nodes(names, every, origin)
        except DataError:  # a converter's calls contradict its data
            order = sorted(range(len(nodes)), key=lambda at: nodes[at].number)
            rank = {node: at for at, node in enumerate(order)}
            forward = {e: None for e in every if rank[e[0]] < rank[e[1]]}
            kind = "dependency against the order of ids, where they contradict"
            left_out[kind] += len(every) - len(forward)
        else:
            forward = every
        needs = reduce_edges(order, forward)
        self.workload.notes.append(
            f"{Path(origin).name}: {len(nodes):,} nodes; {len(every):,} dependencies, "
            f"of which {len(needs):,} are taken: the others follow from them"
        )
        return needs

    def _add_node(self, rank: int, node: Node) -> str:
        """Add the task of a node; return the one that ends with it."""
        name, attributes = f"r{rank}.{node.number}", node.attributes
        # An operator that calls a collective is of its type, and has no size.
        has_size = "comm_size" in attributes
        has_size |= attributes.get("comm_type") in (9, "9", "BARRIER")
        is_whole = node.kind == "COMM_COLL" and has_size
        if is_whole and len(self._files) == 1:
            self.workload.left_out["collective of one rank, as long as it took"] += 1
            is_whole = False
        if not is_whole and node.kind not in ("COMM_SEND", "COMM_RECV"):
            return self._add_timed(rank, node, name)
        size = float(attributes.get("comm_size", 0))
        if size < 0:
            problem = f"node {node.number} has comm_size {size:g}"
            raise DataError(problem, path=self._files[rank])
        self._task(rank, name, node.kind, 0)
        if is_whole:
            self._task(rank, f"{name}.done", node.kind, 0)
            kind = _collective_of(attributes.get("comm_type", 0), name)
            row = _Exchange(kind, size, int(attributes.get("root", 0)), name)
            self._groups[str(attributes.get("pg_name", ""))][rank].append(row)
            return f"{name}.done"
        sends = node.kind == "COMM_SEND"
        other = int(attributes.get("comm_dst" if sends else "comm_src", 0))
        tag = int(attributes.get("comm_tag", 0))
        if not 0 <= other < len(self._files):
            problem = f"node {node.number} names rank {other}, whose file is missing: "
            problem += f"{len(self._files)} are there"
            raise DataError(problem, path=self._files[rank])
        key = (rank, other, tag) if sends else (other, rank, tag)
        about = (str(attributes.get("channel", "")), bool(attributes.get("control")))
        table = self._sends if sends else self._receives
        table[key].append(_Message(name, size, *about))
        return name

    def _add_timed(self, rank: int, node: Node, name: str) -> str:
        left_out = self.workload.left_out
        if node.kind not in ("COMP", "COMM_COLL"):
            left_out[f"all but the time of {node.kind}_NODE"] += 1
        if not node.micros and "num_ops" in node.attributes:
            left_out["time of a node that states num_ops alone"] += 1
        seconds = node.attributes.get("seconds", node.micros / 1e6)
        self._task(rank, name, node.kind, float(seconds))
        return name

    def _task(self, rank: int, name: str, kind: str, seconds: float) -> None:
        self.workload.add_task(name, seconds, kind=kind.lower(), process=f"r{rank}")

    def _add_gate(self, task: str, kind: str) -> str:
        """Add the gate of a task; return its name."""
        gate, process = f"{task}.gate", task.partition(".")[0]
        self.workload.add_task(gate, 0, kind=kind, gate=True, process=process)
        return gate

    def join_messages(self) -> None:
        """Add the flow of every message.

        Raises DataError when one has no other end, or another size there.
        """
        workload = self.workload
        for key in {**self._sends, **self._receives}:
            sends, receives = self._sends[key], self._receives[key]
            if len(sends) != len(receives):
                source, destination, tag = key
                problem = f"rank {source} sends {len(sends)} messages of tag {tag} to "
                problem += f"rank {destination}, which receives {len(receives)}"
                raise DataError(problem, path=workload.origin)
            way = "-".join(map(str, key)) if len(sends) > 1 else ""
            for send, got in zip(sends, receives, strict=True):
                if got.size not in (0, send.size):
                    problem = f"{got.task} receives {got.size:g} bytes of "
                    problem += f"{send.size:g} of {send.task}"
                    raise DataError(problem, path=workload.origin)
                if send.control:  # over a gate nothing goes
                    gate = self._add_gate(send.task, "order")
                    workload.add_flow(send.task, gate)
                    workload.add_flow(gate, got.task)
                    continue
                workload.add_flow(send.task, got.task, send.size)
                if channel := (send.channel or way):
                    workload.flows[-1]["channel"] = plain_name(channel)

    def join_collectives(self) -> None:
        """Add the collectives: of a group the first of each rank, the second, ...

        Raises DataError when they differ between ranks.
        """
        for ranks in self._groups.values():
            counts = {len(some): rank for rank, some in ranks.items()}
            if len(counts) > 1:
                few, many = min(counts), max(counts)
                problem = f"rank {counts[few]} takes part in {few} collectives, rank "
                problem += f"{counts[many]} of its group in {many}"
                raise DataError(problem, path=self.workload.origin)
            for together in zip(*ranks.values(), strict=True):
                first = together[0]
                for row in together:
                    if row[:3] != first[:3]:
                        problem = f"{first.task} is {first.kind} of {first.size:g} "
                        problem += f"bytes, {row.task} beside it {row.kind} of "
                        problem += f"{row.size:g}"
                        raise DataError(problem, path=self.workload.origin)
                    self.workload.add_flow(row.task, f"{row.task}.done")
                if len(together) > 1 and (first.size or first.kind == "BARRIER"):
                    self._join(together)

    def _join(self, together: Sequence[_Exchange]) -> None:
        kind, size, root, task = together[0]
        root %= len(together)
        ranks = [row.task for row in (*together[root:], *together[:root])]
        ends_of, workload = [f"{name}.done" for name in ranks], self.workload
        if kind in _SECTIONS:
            section: Data = {"among": ranks, "volume": f"{size!r} B", "then": ends_of}
            section |= {"lag": 0, **({"segments": 1} if kind == "ALL_REDUCE" else {})}
            workload.collectives.append({_SECTIONS[kind]: section})
        elif kind == "BARRIER":
            gate = self._add_gate(task, "barrier")
            for name, end in zip(ranks, ends_of, strict=True):
                workload.add_flow(name, gate)
                workload.add_flow(gate, end)
        elif kind == "SCATTER":
            for end in ends_of[1:]:
                workload.add_flow(ranks[0], end, size / len(ranks))
        else:  # REDUCE, GATHER
            for name in ranks[1:]:
                workload.add_flow(name, ends_of[0], size)


def _collective_of(stated: Any, name: str) -> str:
    """Return the collective of an attribute, by number or name.

    Raises DataError when there is none such.
    """
    text = str(stated).upper().replace("_", "")
    for number, kind in enumerate(COLLECTIVES):
        if text in (str(number), kind.replace("_", "")):
            return kind
    raise DataError(f"is a collective of type {stated!r:.40}", path=name)
