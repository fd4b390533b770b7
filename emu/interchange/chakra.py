"""Chakra execution traces as one job: a machine and a process per rank.

A node is a task that begins when all that it depends on has ended. A send hands its
bytes over and ends, as ``isend`` does; a receive ends when they have come. Sends and
receives of two ranks with one tag go together in the order of their files. A collective
begins when the node of every rank has, and its duration is left out: what it takes is
for the network to say, unless there is one rank alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from emu.errors import DataError
from emu.host.input_file import one_error
from emu.interchange.chakra_nodes import (
    COLLECTIVES,
    VERSION_IN_NAME,
    Node,
    Trace,
    rank_files,
    read_nodes,
    whole,
)
from emu.interchange.workload import (
    Data,
    Workload,
    equal_machines,
    order_nodes,
    plain_name,
    reduce_edges,
)
from emu.names import printable
from emu.prediction.rate_policies import RATE_POLICIES
from emu.units import DURATION, RATE

#: Attributes that are read. Seconds, control and channel are those of `chakra_out`, for
#: which et_def.proto has no word.
_USED = {
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "root",
    "pg_name",
    "seconds",
    "control",
    "channel",
}
#: Metadata that are read or change no number: from machine to latencies those of
#: `chakra_out`, and the collective of MSCCLang's converter.
_METADATA = {
    "machine",
    "nic_in",
    "nic_out",
    "latency_in",
    "latency_out",
    "collective",
    "schema",
    "version",
    "task",
    "gate",
    "rule",
}
#: Those that place a rank and give its machine a NIC.
_PLACE = {"machine", "nic_in", "nic_out"}
_ROOTED = ("REDUCE", "GATHER", "SCATTER", "BROADCAST")


#: From, to and tag.
_Way: TypeAlias = tuple[int, int, int]


class _Message(NamedTuple):
    """One end of a message."""

    task: str
    size: float
    """Bytes; 0 of a receive that does not say."""
    channel: str
    """Messages of one go one after the other; of none, those of one tag do."""
    control: bool
    """True where it is order alone."""


class _Sizes(NamedTuple):
    """Contents of the file of a rank, counted."""

    nodes: int
    dependencies: int
    taken: int
    """Dependencies that no longer way stands for."""


class _Exchange(NamedTuple):
    """Part of one rank in a collective."""

    kind: str
    """One of `COLLECTIVES`."""
    size: float
    """Bytes that the rank brings."""
    root: int
    task: str
    """The task that brings them; ``TASK.done`` has the outcome."""


def read_chakra(
    path: Path,
    *,
    copies: int = 0,
    large: bool = False,
) -> Workload:
    """Return the traces of all ranks as one job.

    Raises DataError when one is damaged or missing, a receive has no send, collectives
    of ranks differ, or nodes wait for each other.
    """
    files = rank_files(path, copies)
    size = len(files)
    machines = equal_machines("m", size)
    workload = Workload(str(path), [machines])
    if VERSION_IN_NAME.search(path.name) and not copies:
        note = "numbers in the file's name are of a version: ranks are NAME.0.et, ..."
        workload.notes.append(note)

    job = _Job(workload, files)
    distinct_files = dict.fromkeys(files)  # copies are read once
    for place, file in enumerate(distinct_files):
        with one_error(file):
            trace = read_nodes(file, large=large)
            needs = job.order_edges(trace.nodes, str(file))
            ranks = range(size) if copies else [place]
            for rank in ranks:
                job.add_rank(rank, trace, needs)
    job.note_sizes()
    job.join_messages()
    job.join_collectives()
    places = len(workload.places)
    if 0 < places < size:
        problem = f"metadata name the machine of {places} of {size} ranks: "
        raise workload.error(problem + "write that of each, or of none")
    for rank in range(size):
        # Ranks whose metadata name their machine have been put there already.
        workload.places.setdefault(f"r{rank}", f"m{rank}")
    return workload


class _Job:
    """The ranks so far, and what they do together."""

    def __init__(self, workload: Workload, files: list[Path]) -> None:
        self.workload = workload
        self._files = files
        # Ends of messages by (from, to, tag).
        self._sends: dict[_Way, list[_Message]] = defaultdict(list)
        self._receives: dict[_Way, list[_Message]] = defaultdict(list)
        # Of each group the collectives of each rank, in order.
        self._groups: dict[str, dict[int, list[_Exchange]]] = {}
        # Of every file that was read.
        self._sizes: list[_Sizes] = []

    def add_rank(
        self,
        rank: int,
        trace: Trace,
        needed: list[tuple[int, int]],
    ) -> None:
        """Add the nodes of a rank, and the orders that no longer way stands for."""
        left_out = self.workload.left_out
        left_out.update(trace.left_out)
        for name in trace.metadata.keys() - _METADATA:
            left_out[f"metadata {name}"] += 1
        nodes = trace.nodes
        if "machine" in trace.metadata:
            self._add_machine(rank, trace.metadata)
        if "rule" in trace.metadata:
            self._take_rule(str(trace.metadata["rule"]))
        if "collective" in trace.metadata:
            # MSCCLang's converter makes up the time of a sum, at 50 bytes per ns.
            timeless_nodes = []
            for node in nodes:
                timeless_node = node
                if node.kind == "COMP" and node.micros > 0:
                    left_out["made-up time of a sum in a collective"] += 1
                    timeless_node = node._replace(micros=0)
                timeless_nodes.append(timeless_node)
            nodes = timeless_nodes

        ends = [self._add_node(rank, node) for node in nodes]
        for source, destination in needed:
            number = nodes[destination].number
            self.workload.add_flow(ends[source], f"r{rank}.{number}")
        for node in nodes:
            for name in node.attributes.keys() - _USED:
                left_out[f"attribute {name}"] += 1

    def _take_rule(self, rule: str) -> None:
        # A scenario may also name a file of code as its rule: a trace must not.
        if rule in RATE_POLICIES:
            self.workload.rule = rule
        else:
            self.workload.left_out[f"metadata rule {printable(rule)}"] += 1

    def _add_machine(self, rank: int, metadata: Data) -> None:
        """Take the machine of a rank as its metadata name it, with its NIC."""
        if not metadata.keys() >= _PLACE:
            # Of another tool, which states no NIC of it.
            self.workload.leave_out("metadata machine")
            return
        name = str(metadata["machine"])
        machines = self.workload.machines
        # The first machine that is named replaces the equal ones that were assumed.
        if all("nic" not in machine for machine in machines):
            machines.clear()
        self.workload.places[f"r{rank}"] = name
        machine = _machine_of(metadata)
        # Several ranks may run on one machine.
        by_name = {row["name"]: row for row in machines}
        if name not in by_name:
            machines.append(machine)
        elif by_name[name] != machine:
            problem = f"rank {rank} states another NIC of machine {printable(name)}"
            raise self.workload.error(problem)

    def order_edges(self, nodes: list[Node], origin: str) -> list[tuple[int, int]]:
        """Return the dependencies of a rank, by places in the file.

        Raises DataError when those of data run in a circle.
        """
        left_out = self.workload.left_out
        places = {node.number: place for place, node in enumerate(nodes)}
        # Dicts, as ordered sets: the same file has to give the same job.
        data = dict[tuple[int, int], None]()
        edges = dict[tuple[int, int], None]()
        for place, node in enumerate(nodes):
            numbers_before = (*node.data, *node.control)
            for number in numbers_before:
                if number == node.number:
                    left_out["dependency of a node on itself"] += 1
                elif number not in places:
                    left_out["dependency on a node that is not there"] += 1
                else:
                    edges[places[number], place] = None
            for number in node.data:
                if number in places:
                    data[places[number], place] = None

        names = [f"node {node.number}" for node in nodes]
        # Data have to be free of circles; calls need not be, as below.
        order_nodes(names, data, origin)
        forward = [*edges]
        try:
            order = order_nodes(names, edges, origin)
        except DataError:  # a converter's calls contradict its data
            numbers = [node.number for node in nodes]
            places_in_file = range(len(nodes))
            # Ids are the one order left that has no circle.
            order = sorted(places_in_file, key=numbers.__getitem__)
            forward = [
                (source, destination)
                for source, destination in edges
                if numbers[source] < numbers[destination]
            ]
            kind = "dependency against the order of ids, where they contradict"
            unused_count = len(edges) - len(forward)
            left_out[kind] += unused_count
        needs = reduce_edges(order, forward)
        sizes = _Sizes(len(nodes), dependencies=len(edges), taken=len(needs))
        self._sizes.append(sizes)
        return needs

    def note_sizes(self) -> None:
        """Note what the files hold: of all ranks in one line."""
        first = self._files[0].name
        files = first
        each = ""
        if len(self._sizes) > 1:
            files = f"{first} to {self._files[-1].name}"
            each = " each"
        columns = zip(*self._sizes, strict=True)
        nodes, dependencies, taken = map(_write_span, columns)
        self.workload.notes.append(
            f"{files}: {nodes} nodes{each}; {dependencies} dependencies, "
            f"of which {taken} are taken: the others follow from them"
        )

    def _add_node(self, rank: int, node: Node) -> str:
        """Add the task of a node; return the one that ends with it."""
        if node.kind in ("COMM_SEND", "COMM_RECV"):
            return self._add_message(rank, node)
        if node.kind == "COMM_COLL":
            # An operator that calls a collective is of its type, and has no size.
            # A barrier (9 in et_def.proto) moves nothing and may do without.
            comm_type = node.attributes.get("comm_type")
            is_barrier = comm_type in (9, "9", "BARRIER")
            if not is_barrier and "comm_size" not in node.attributes:
                kind = "collective without comm_size, as long as it took"
                self.workload.leave_out(kind)
            # No other rank is there, so that no network can say how long it takes.
            elif len(self._files) == 1:
                self.workload.leave_out("collective of one rank, as long as it took")
            else:
                return self._add_exchange(rank, node)

        return self._add_timed(rank, node)

    def _add_exchange(self, rank: int, node: Node) -> str:
        name = f"r{rank}.{node.number}"
        attributes = node.attributes
        if "comm_type" not in attributes:
            raise DataError(
                f"node {node.number} is a collective without comm_type",
                path=self._files[rank],
            )
        kind = _collective_of(attributes["comm_type"], name)
        if kind in _ROOTED and "root" not in attributes:
            self.workload.leave_out(f"root of a {kind}, taken to be the first")

        outcome = f"{name}.done"
        self._add_task(rank, name=name, kind=node.kind, seconds=0)
        # What depends on the node waits for the outcome, and not for its begin.
        self._add_task(rank, name=outcome, kind=node.kind, seconds=0)
        exchange = _Exchange(
            kind=kind,
            size=self._size_of(rank, node),
            root=whole(attributes.get("root", 0), "root"),
            task=name,
        )
        # No name stands for the group of all ranks.
        group_name = str(attributes.get("pg_name", ""))
        exchanges_of = self._groups.setdefault(group_name, {})
        exchanges = exchanges_of.setdefault(rank, [])
        exchanges.append(exchange)
        return outcome

    def _add_message(self, rank: int, node: Node) -> str:
        name = f"r{rank}.{node.number}"
        attributes = node.attributes
        sends = node.kind == "COMM_SEND"
        peer_key = "comm_dst" if sends else "comm_src"
        keys = [peer_key, "comm_size"] if sends else [peer_key]
        for key in keys:
            if key not in attributes:
                raise DataError(
                    f"node {node.number} is a {node.kind} without {key}",
                    path=self._files[rank],
                )
        peer = whole(attributes[peer_key], peer_key)
        size = len(self._files)
        if not 0 <= peer < size:
            raise DataError(
                f"node {node.number} names rank {peer}, whose file is missing: "
                f"{size} are there",
                path=self._files[rank],
            )
        if "comm_size" not in attributes:
            kind = "receive without comm_size, which takes that of its send"
            self.workload.leave_out(kind)

        self._add_task(rank, name=name, kind=node.kind, seconds=0)
        is_control = int(attributes.get("control", 0))
        message = _Message(
            task=name,
            size=self._size_of(rank, node),
            channel=str(attributes.get("channel", "")),
            control=bool(is_control),
        )
        tag = whole(attributes.get("comm_tag", 0), "comm_tag")
        if sends:
            self._sends[rank, peer, tag].append(message)
        else:
            self._receives[peer, rank, tag].append(message)
        return name

    def _size_of(self, rank: int, node: Node) -> float:
        stated_size = node.attributes.get("comm_size", 0)
        size = float(stated_size)
        if size < 0:
            raise DataError(
                f"node {node.number} has comm_size {size:g}",
                path=self._files[rank],
            )
        return size

    def _add_timed(self, rank: int, node: Node) -> str:
        name = f"r{rank}.{node.number}"
        left_out = self.workload.left_out
        if node.kind not in ("COMP", "COMM_COLL"):
            left_out[f"all but the time of {node.kind}_NODE"] += 1
        # Chakra counts whole microseconds, which many short tasks feel: `chakra_out`
        # states the seconds beside them.
        measured_seconds = node.micros / 1e6
        stated_seconds = node.attributes.get("seconds", measured_seconds)
        seconds = float(stated_seconds)
        # Operations become a time by a rate of the machine, which no trace states.
        if not node.micros and "num_ops" in node.attributes:
            left_out["time of a node that states num_ops alone"] += 1
        elif node.kind == "COMP" and not seconds:
            left_out["node without a time, which takes 0 s"] += 1

        self._add_task(rank, name=name, kind=node.kind, seconds=seconds)
        return name

    def _add_task(
        self,
        rank: int,
        name: str,
        kind: str,
        seconds: float,
    ) -> None:
        process = f"r{rank}"
        self.workload.add_task(name, seconds, kind=kind.lower(), process=process)

    def join_messages(self) -> None:
        """Add the flow of every message.

        Raises DataError when one has no other end, or another size there.
        """
        keys = {**self._sends, **self._receives}
        for key in keys:
            sends = self._sends[key]
            receives = self._receives[key]
            # Messages of one tag go one after the other, which a channel sees to.
            route = ""
            if len(sends) > 1:
                route = "-".join(map(str, key))
            pairs = self.workload.pair_messages(sends, receives, key)
            for send, receive in pairs:
                self._join_message(send, receive, route)

    def _join_message(
        self,
        send: _Message,
        receive: _Message,
        route: str,
    ) -> None:
        workload = self.workload
        # 0 stands for a receive that does not say its bytes.
        if receive.size not in (0, send.size):
            raise workload.error(
                f"{receive.task} receives {receive.size:g} bytes of "
                f"{send.size:g} of {send.task}"
            )
        if send.control:  # over a gate nothing goes
            gate = workload.add_gate(send.task, "order")
            workload.add_flow(send.task, gate)
            workload.add_flow(gate, receive.task)
            return

        workload.add_flow(send.task, receive.task, send.size)
        if channel := (send.channel or route):
            last_flow = workload.flows[-1]
            last_flow["channel"] = plain_name(channel)

    def join_collectives(self) -> None:
        """Add the collectives: of a group the first of each rank, the second, ...

        Raises DataError when they differ between ranks.
        """
        for name, ranks in self._groups.items():
            if not name:  # of all ranks
                for rank in range(len(self._files)):
                    # A rank that takes part in none has to show as one that lacks them.
                    ranks.setdefault(rank, [])
            elif len(ranks) == 1:
                (exchanges,) = ranks.values()
                kind = "collective of one rank alone in its group, without bytes"
                self.workload.leave_out(kind, len(exchanges))
            counts = {len(exchanges): rank for rank, exchanges in ranks.items()}
            few = min(counts)
            many = max(counts)
            if few < many:
                raise self.workload.error(
                    f"rank {counts[few]} takes part in {few} collectives, rank "
                    f"{counts[many]} of its group in {many}"
                )

            members = [*ranks]
            exchanges_of_ranks = ranks.values()
            for companions in zip(*exchanges_of_ranks, strict=True):
                self._join_collective(companions, members)

    def _join_collective(
        self, companions: Sequence[_Exchange], members: Sequence[int]
    ) -> None:
        first = companions[0]
        for exchange in companions:
            alike = exchange._replace(task=first.task)
            if alike != first:
                raise self.workload.error(
                    f"{first.task} is {first.kind} of {first.size:g} bytes, "
                    f"{exchange.task} beside it {exchange.kind} of "
                    f"{exchange.size:g}"
                )
            self.workload.add_flow(exchange.task, f"{exchange.task}.done")

        # Alone, or without bytes, nobody sends; a barrier never has any and holds all.
        is_waited_for = first.size or first.kind == "BARRIER"
        if len(companions) > 1 and is_waited_for:
            self.workload.add_collective(
                first.kind,
                size=first.size,
                ranks=[exchange.task for exchange in companions],
                root=self._place_of_root(first, members),
            )

    def _place_of_root(self, exchange: _Exchange, members: Sequence[int]) -> int:
        """Return the place of a root among the ranks of its group.

        No schema says whether ``root`` counts all ranks or those of the group. Raises
        DataError when both fit, and name two ranks, or neither does.
        """
        if exchange.kind not in _ROOTED:
            return 0
        root = exchange.root
        places = _places_of(root, members)
        if len(places) == 1:
            return places.pop()

        group = printable(", ".join(map(str, members)), limit=60)
        problem = f"{exchange.task} has root {root} in a group of ranks {group}"
        if places:
            problem += f", a place or a rank there: {_clear_roots(places, members)}"
        raise self.workload.error(problem)


def _places_of(root: int, members: Sequence[int]) -> set[int]:
    """Return the places in a group that a root may name, as a place and as a rank."""
    places = set[int]()
    if 0 <= root < len(members):
        places.add(root)
    if root in members:
        places.add(members.index(root))
    return places


def _clear_roots(places: Collection[int], members: Sequence[int]) -> str:
    """Return which root to write for each place; some have none that is read."""
    remedies = []
    for place in sorted(places):
        rank = members[place]
        roots = [root for root in (place, rank) if len(_places_of(root, members)) == 1]
        remedy = f"no root names rank {rank} alone"
        if roots:
            remedy = f"write {roots[0]} for rank {rank}"
        remedies.append(remedy)
    return ", ".join(remedies)


def _machine_of(metadata: Data) -> Data:
    """Return the machine that metadata name, with its NIC."""
    name = str(metadata["machine"])
    # `chakra_out` writes 0 for a machine that has no NIC.
    nic_rate = float(metadata["nic_in"])
    if not nic_rate > 0:
        return {"name": name, "nic": "none"}

    nic: Data = {"latency": {}}
    for direction in ("in", "out"):
        rate = float(metadata[f"nic_{direction}"])
        latency = float(metadata[f"latency_{direction}"])
        nic[direction] = RATE.exact(rate)
        nic["latency"][direction] = DURATION.exact(latency)
    return {"name": name, "nic": nic}


def _write_span(counts: Sequence[int]) -> str:
    """Return a count, or the least and the greatest of several."""
    least = min(counts)
    greatest = max(counts)
    if least == greatest:
        return f"{least:,}"
    return f"{least:,} to {greatest:,}"


def _collective_of(stated: Any, name: str) -> str:
    """Return the collective of an attribute, by number or name.

    Raises DataError when there is none such.
    """
    text = str(stated).upper()
    plain = text.replace("_", "")
    for number, kind in enumerate(COLLECTIVES):
        plain_kind = kind.replace("_", "")
        if text == str(number) or plain == plain_kind:
            return kind
    raise DataError(f"is a collective of type {stated!r:.40}", path=name)
