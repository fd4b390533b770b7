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
from pathlib import Path
from typing import Any

from emu.errors import DataError
from emu.interchange.chakra_exchanges import (
    Exchange,
    Message,
    collective_of,
    join_collectives,
    join_messages,
)
from emu.interchange.chakra_nodes import Node, Trace, read_nodes
from emu.interchange.workload import Data, Workload, order_nodes, reduce_edges
from emu.units import DURATION, RATE

_USED = {
    "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "root", "pg_name",
    "seconds", "control", "channel",
}  # fmt: skip


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
        raise DataError(f"{problem}missing", path=str(path))
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
    join_messages(job.workload, job.sends, job.receives)
    join_collectives(job.workload, [*job.groups.values()])
    for rank in range(size):
        job.workload.places.setdefault(f"r{rank}", f"m{rank}")
    return job.workload


class _Job:
    """The ranks so far, and what they do together."""

    def __init__(self, workload: Workload, files: list[Path]) -> None:
        self.workload, self._files = workload, files
        # Ends of messages by (from, to, tag): sends with their bytes, and receives.
        self.sends = defaultdict[Any, list[Message]](list)
        self.receives = defaultdict[Any, list[Message]](list)
        # Of each group the collectives of each rank, in order.
        self.groups = defaultdict[str, dict[int, list[Exchange]]](
            lambda: defaultdict(list)
        )

    def add_rank(self, rank: int, trace: Trace, needed: list[tuple[int, int]]) -> None:
        """Add the nodes of a rank, and the orders that no longer way stands for."""
        left_out, nodes = self.workload.left_out, trace.nodes
        if "machine" in trace.metadata:
            self._own_machine(rank, trace.metadata)
        if "collective" in trace.metadata:
            # MSCCLang's converter makes up the time of a sum, at 50 bytes per ns.
            sums = {
                node.number for node in nodes if node.kind == "COMP" and node.micros
            }
            nodes = [n._replace(micros=0) if n.number in sums else n for n in nodes]
            left_out["made-up time of a sum in a collective"] += len(sums)
        ends = [self._add_node(rank, node) for node in nodes]
        for source, destination in needed:
            name = f"r{rank}.{nodes[destination].number}"
            self.workload.add_flow(ends[source], name)
        for node in nodes:
            left_out.update(f"attribute {name}" for name in {*node.attributes} - _USED)

    def _own_machine(self, rank: int, about: Data) -> None:
        """Put a rank on the machine that its trace names, with the NIC it states."""
        name, machines = str(about["machine"]), self.workload.machines
        if all("nic" not in one for one in machines):
            machines.clear()
        self.workload.places[f"r{rank}"] = name
        if all(one["name"] != name for one in machines):
            nic: Data = {w: RATE.exact(float(about[f"nic_{w}"])) for w in ("in", "out")}
            nic["latency"] = {
                way: DURATION.exact(float(about[f"latency_{way}"]))
                for way in ("in", "out")
            }
            has_nic = float(about["nic_in"]) > 0
            machines.append({"name": name, "nic": nic if has_nic else "none"})

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
        is_whole = node.kind == "COMM_COLL"
        # An operator that calls a collective is of its type, and has no size.
        if is_whole and not attributes.keys() & {"comm_size"} and not _is_barrier(node):
            is_whole = False
        elif is_whole and len(self._files) == 1:
            self.workload.left_out["collective of one rank, as long as it took"] += 1
            is_whole = False
        if not is_whole and node.kind not in ("COMM_SEND", "COMM_RECV"):
            return self._add_timed(rank, node, name)
        size = float(attributes.get("comm_size", 0))
        if size < 0:
            problem = f"node {node.number} has comm_size {size:g}"
            raise DataError(problem, path=str(self._files[rank]))
        self._task(rank, name, node.kind, 0)
        if is_whole:
            self._task(rank, f"{name}.done", node.kind, 0)
            kind = collective_of(attributes.get("comm_type", 0), name)
            row = Exchange(kind, size, int(attributes.get("root", 0)), name)
            self.groups[str(attributes.get("pg_name", ""))][rank].append(row)
            return f"{name}.done"
        sends = node.kind == "COMM_SEND"
        other = int(attributes.get("comm_dst" if sends else "comm_src", 0))
        tag = int(attributes.get("comm_tag", 0))
        if not 0 <= other < len(self._files):
            problem = f"node {node.number} names rank {other}, whose file is missing: "
            problem += f"{len(self._files)} are there"
            raise DataError(problem, path=str(self._files[rank]))
        key = (rank, other, tag) if sends else (other, rank, tag)
        about = (str(attributes.get("channel", "")), bool(attributes.get("control")))
        table = self.sends if sends else self.receives
        table[key].append(Message(name, size, *about))
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


def _is_barrier(node: Node) -> bool:
    return node.attributes.get("comm_type") in (9, "9", "BARRIER")
