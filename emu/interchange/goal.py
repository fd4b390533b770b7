"""GOAL schedules of LogGOPSim and ATLAHS as text: a machine and a process per rank.

``calc`` takes its nanoseconds, one at a time on each cpu of its rank. A send hands its
bytes over and ends; a receive ends when they have come. Sends and receives of two
ranks with one tag go together in the order of the file. ``requires`` waits for the end
of an operation; ``irequires`` for its start, which is taken to be when all that it
requires has ended. The costs of LogGOPS are not in the file, and none is added.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from emu.errors import DataError
from emu.host.input_file import one_error, read_packed_text
from emu.interchange.workload import Workload, equal_machines

#: Both forms of C; those within stars may run over several lines.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SIZE = re.compile(r"\s*num_ranks\s+(\d+)\s*")
_RANK = re.compile(r"rank\s+(\d+)\s*\{")
_AFTER = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)")
_OPERATION = re.compile(
    r"(?:(\w+)\s*:\s*)?(?:calc\s+(?P<time>\d+)"
    r"|send\s+(?P<sent>\d+)\s*b\s+to\s+(?P<to>\d+)"
    r"|recv\s+(?P<came>\d+)\s*b\s+from\s+(?P<source>-?\d+))"
    r"(?P<more>(?:\s+(?:tag|cpu|nic)\s+-?\d+)*)"
)


_OPTION = re.compile(r"(tag|cpu|nic)\s+(-?\d+)")
#: From, to and tag.
_Way: TypeAlias = tuple[int, int, int]
#: Numbers behind ``tag``, ``cpu`` and ``nic`` of an operation.
Options: TypeAlias = dict[str, int]


class _End(NamedTuple):
    """A send or a receive."""

    task: str
    size: int
    """Bytes."""


def read_schedule(path: Path) -> Workload:
    """Return the operations of all ranks as one job.

    Raises DataError when a line is no GOAL, a rank is missing or named twice, or a
    receive has no send; names the line.
    """
    with one_error(path):
        text = read_packed_text(path)
    # Their newlines stay, so that errors name the lines of the file.
    text = _COMMENT.sub(_newlines_of, text)
    rows = enumerate(text.splitlines(), 1)
    lines = [*rows]
    # Comments may have stood above the number of ranks.
    while lines:
        _, first_line = lines[0]
        if first_line.strip():
            break
        del lines[0]

    count = 0
    if lines:
        _, first_line = lines[0]
        size = _SIZE.fullmatch(first_line)
        if size:
            count = int(size[1])
    if not count:
        raise DataError("begins without num_ranks N", path=path)

    schedule = _Schedule(path, count)
    for number, line in lines[1:]:
        try:
            schedule.add(line.strip())
        except ValueError as error:
            raise DataError(f"line {number}: {error}", path=path) from error
    schedule.end()
    return schedule.workload


def _newlines_of(comment: re.Match[str]) -> str:
    """Return the newlines of a comment alone."""
    newlines = comment[0].count("\n")
    return "\n" * newlines


class _Schedule:
    """Operations and messages of the ranks so far."""

    def __init__(self, path: Path, size: int) -> None:
        machines = equal_machines("m", size)
        self.workload = Workload(str(path), [machines])
        self._size = size
        self._rank: int | None = None
        self._ranks = set[int]()
        self._labels: dict[str, str] = {}
        #: Of each task those whose end, and those whose start, it waits for.
        self._waits: dict[str, list[str]] = defaultdict(list)
        self._starts: dict[str, list[str]] = defaultdict(list)
        #: By (from, to, tag), in the order of the file.
        self._sends: dict[_Way, list[_End]] = defaultdict(list)
        self._receives: dict[_Way, list[_End]] = defaultdict(list)

    def add(self, line: str) -> None:
        """Take a line in; raises ValueError with what is wrong of it."""
        if not line:
            return

        if rank := _RANK.fullmatch(line):
            self._begin(int(rank[1]))
        elif self._rank is None:
            raise ValueError(f"{line:.40} is in no rank")
        elif line == "}":
            self._rank = None
        elif match := _OPERATION.fullmatch(line):
            self._add_operation(match)
        elif match := _AFTER.fullmatch(line):
            self._add_need(*match.groups())
        else:
            raise ValueError(f"{line:.40} is no calc, send, recv, (i)requires of GOAL")

    def _add_need(self, label: str, kind: str, needed_label: str) -> None:
        table = self._starts
        if kind == "requires":
            table = self._waits
        task = self._task_of(label)
        requirement = self._task_of(needed_label)
        table[task].append(requirement)

    def end(self) -> None:
        """Join what was read; raises DataError when ranks or sends are missing."""
        if self._rank is not None:
            raise self.workload.error(f"ends within rank {self._rank}")
        for rank in range(self._size):
            # A file may announce a billion ranks: the first that is missing ends this.
            if rank not in self._ranks:
                problem = f"announces {self._size} ranks, rank {rank} is missing"
                raise self.workload.error(problem)

        # Only now: what an operation starts with may be told later what it waits for.
        waiting_tasks = {**self._waits, **self._starts}
        for task in waiting_tasks:
            self._add_order(task)
        routes = {**self._sends, **self._receives}
        for route in routes:
            sends = self._sends[route]
            receives = self._receives[route]
            self._join(route, sends, receives)

        workload = self.workload
        starts = self._starts.values()
        start_count = sum(map(len, starts))
        if start_count:
            name = "irequires of a start, by what that requires"
            workload.leave_out(name, start_count)
        for rank in range(self._size):
            workload.places[f"r{rank}"] = f"m{rank}"
        count = len(workload.tasks)
        workload.notes.append(f"{count:,} operations of {self._size} ranks")
        workload.notes.append("o, g, G and L of LogGOPS are not in the file")

    def _add_order(self, task: str) -> None:
        """Add what a task waits for: also what those require that start before it."""
        members = [task]
        waits: dict[str, None] = {}
        for member in members:  # grows while it is walked
            later_waits = self._waits[member]
            waits |= dict.fromkeys(later_waits)
            for requirement in self._starts[member]:
                # Each once, or two that start with each other would never end this.
                if requirement not in members:
                    members.append(requirement)
        for requirement in waits:
            self.workload.add_flow(requirement, task)

    def _join(
        self,
        route: _Way,
        sends: Sequence[_End],
        receives: Sequence[_End],
    ) -> None:
        sent_sizes = [send.size for send in sends]
        received_sizes = [receive.size for receive in receives]
        # The n-th send meets the n-th receive, so that order counts.
        if sent_sizes != received_sizes:
            source, destination, tag = route
            raise self.workload.error(
                f"from rank {source} to {destination} with tag {tag} {len(sends)} "
                f"sends and {len(receives)} receives differ in number or size"
            )
        for send, receive in zip(sends, receives, strict=True):
            self.workload.add_flow(send.task, receive.task, send.size)

    def _begin(self, rank: int) -> None:
        is_within = self._rank is not None
        is_known = rank in self._ranks
        if is_within or is_known or rank >= self._size:
            raise ValueError(f"rank {rank} is one too many, or within another")
        self._ranks.add(rank)
        self._rank = rank
        # Labels of one rank mean nothing in another.
        self._labels = {}

    def _task_of(self, label: str) -> str:
        if label not in self._labels:
            raise ValueError(f"rank {self._rank} has no operation {label} so far")
        return self._labels[label]

    def _add_operation(self, found: re.Match[str]) -> None:
        count = len(self.workload.tasks)
        label = found[1] or f"op{count}"
        if label in self._labels:
            raise ValueError(f"{label} is there twice in rank {self._rank}")
        options: Options = {}
        found_options = _OPTION.findall(found["more"])
        for name, number in found_options:
            if name in options:
                raise ValueError(f"{label} has {name} twice")
            options[name] = int(number)
        if "nic" in options:
            self.workload.leave_out("nic of an operation")

        task = f"r{self._rank}.{label}"
        self._labels[label] = task
        if found["time"]:
            nanoseconds = int(found["time"])
            self._add_calc(task, nanoseconds, options)
        else:
            self._add_message(task, found, options)

    def _add_calc(
        self,
        task: str,
        nanoseconds: int,
        options: Options,
    ) -> None:
        if "tag" in options:
            self.workload.leave_out("tag of a calc")
        number = options.get("cpu", 0)
        core = f"cpu{number}"
        # `equal_machines` has one entry for all ranks.
        machines = self.workload.machines[0]
        slots = machines.setdefault("slots", {})
        slots[core] = 1

        self.workload.add_task(
            task,
            seconds=nanoseconds / 1e9,
            kind="calc",
            process=f"r{self._rank}",
            slot=core,
        )

    def _add_message(
        self,
        task: str,
        found: re.Match[str],
        options: Options,
    ) -> None:
        _, _, label = task.partition(".")
        tag = options.get("tag", 0)
        # Of MPI's wildcards only a run says what comes first.
        if tag < 0 or found["source"] == "-1":
            raise ValueError(f"{label} takes any source or tag: not known before")
        receives = found["came"] is not None
        peer_name = found["source"] if receives else found["to"]
        peer = int(peer_name)
        if not 0 <= peer < self._size:
            raise ValueError(f"{label} is with rank {peer} of {self._size}")
        if "cpu" in options:
            self.workload.leave_out("cpu of a send or receive, which takes none")

        # Operations stand within a rank, which `add` has seen to: 0 is for the type.
        rank = self._rank or 0
        kind = "recv" if receives else "send"
        self.workload.add_task(task, seconds=0, kind=kind, process=f"r{rank}")
        if receives:
            size = int(found["came"])
            end = _End(task, size)
            route = (peer, rank, tag)
            self._receives[route].append(end)
        else:
            size = int(found["sent"])
            end = _End(task, size)
            route = (rank, peer, tag)
            self._sends[route].append(end)
