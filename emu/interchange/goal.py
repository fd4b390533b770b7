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
from pathlib import Path
from typing import TypeAlias

from emu.errors import DataError
from emu.host.input_file import read_text
from emu.interchange.workload import Data, Workload

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_RANK = re.compile(r"rank\s+(\d+)\s*\{")
_AFTER = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)")
_OPERATION = re.compile(
    r"(?:(\w+)\s*:\s*)?(?:calc\s+(?P<time>\d+)"
    r"|send\s+(?P<sent>\d+)\s*b\s+to\s+(?P<to>\d+)"
    r"|recv\s+(?P<came>\d+)\s*b\s+from\s+(?P<source>-?\d+))"
    r"(?P<more>(?:\s+(?:tag|cpu|nic)\s+-?\d+)*)"
)


#: Tasks that send or receive, and their bytes, in the order of the file.
_Ends: TypeAlias = list[tuple[str, int]]


def is_schedule(head: str) -> bool:
    """Return True where a text begins as a schedule does: ``num_ranks N``."""
    return re.match(r"\s*num_ranks\s+\d+", _COMMENT.sub("", head)) is not None


def read_schedule(path: Path) -> Workload:
    """Return the operations of all ranks as one job.

    Raises DataError when a line is no GOAL, a rank is missing or named twice, or a
    receive has no send; names the line.
    """
    text = _COMMENT.sub(lambda part: "\n" * part[0].count("\n"), read_text(path))
    first, *lines = [*enumerate((line.strip() for line in text.splitlines()), 1)]
    while not first[1]:
        first = lines.pop(0)
    size = int(first[1].split()[1])
    machine: Data = {"name": "m", "count": size} if size > 1 else {"name": "m0"}
    schedule = _Schedule(Workload(str(path), [machine]), size)
    for number, line in lines:
        try:
            schedule.add(line)
        except ValueError as error:
            raise DataError(f"line {number}: {error}", path=path) from error
    schedule.end()
    return schedule.workload


class _Schedule:
    """Operations and messages of the ranks so far."""

    def __init__(self, workload: Workload, size: int) -> None:
        self.workload, self._size = workload, size
        self._rank, self._ranks = -1, set[int]()
        self._labels: dict[str, str] = {}
        #: Of each task those whose end, and those whose start, it waits for.
        self._waits = defaultdict[str, list[str]](list)
        self._starts = defaultdict[str, list[str]](list)
        #: By (from, to, tag) tasks and bytes: sends, receives.
        self._ends = defaultdict[tuple[int, int, int], tuple[_Ends, _Ends]](
            lambda: ([], [])
        )

    def add(self, line: str) -> None:
        """Take a line in; raises ValueError with what is wrong of it."""
        if rank := _RANK.fullmatch(line):
            self._begin(int(rank[1]))
        elif line == "}" and self._rank >= 0:
            self._rank = -1
        elif line and self._rank < 0:
            raise ValueError(f"{line:.40} is in no rank")
        elif match := _OPERATION.fullmatch(line):
            self._add_operation(match)
        elif match := _AFTER.fullmatch(line):
            one, other = (self._task_of(match[at]) for at in (1, 3))
            of = self._waits if match[2] == "requires" else self._starts
            of[one].append(other)
        elif line:
            raise ValueError(f"{line:.40} is no calc, send, recv, (i)requires of GOAL")

    def end(self) -> None:
        """Join what was read; raises DataError when ranks or sends are missing."""
        for rank in range(self._size):
            if rank not in self._ranks:
                problem = f"announces {self._size} ranks, rank {rank} is missing"
                raise DataError(problem, path=self.workload.origin)
        for task in {**self._waits, **self._starts}:
            together = [task]  # they start when all that these wait for has ended
            for one in together:  # grows while it is walked
                together += [o for o in self._starts.get(one, ()) if o not in together]
            waits = [end for one in together for end in self._waits.get(one, ())]
            for other in dict.fromkeys(waits):
                self.workload.add_flow(other, task)
        for way, (sends, receives) in self._ends.items():
            if [size for _, size in sends] != [size for _, size in receives]:
                problem = "from rank {} to {} with tag {}".format(*way)
                problem += f" {len(sends)} sends and {len(receives)} receives differ "
                raise DataError(
                    f"{problem}in number or size", path=self.workload.origin
                )
            for (send, size), (receive, _) in zip(sends, receives, strict=True):
                self.workload.add_flow(send, receive, size)
        count = len(self.workload.tasks)
        self.workload.places = {f"r{rank}": f"m{rank}" for rank in range(self._size)}
        self.workload.notes.append(f"{count:,} operations of {self._size} ranks")
        self.workload.notes.append("o, g, G and L of LogGOPS are not in the file")

    def _begin(self, rank: int) -> None:
        if self._rank >= 0 or rank in self._ranks or rank >= self._size:
            raise ValueError(f"rank {rank} is one too many, or within another")
        self._ranks.add(rank)
        self._rank, self._labels = rank, {}

    def _task_of(self, label: str) -> str:
        if label not in self._labels:
            raise ValueError(f"rank {self._rank} has no operation {label} so far")
        return self._labels[label]

    def _add_operation(self, found: re.Match[str]) -> None:
        label = found[1] or f"op{len(self.workload.tasks)}"
        if label in self._labels:
            raise ValueError(f"{label} is there twice in rank {self._rank}")
        task = self._labels[label] = f"r{self._rank}.{label}"
        words = found["more"].split()
        more = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        process = f"r{self._rank}"
        if found["time"]:
            core = f"cpu{more.get('cpu', 0)}"
            self.workload.machines[0].setdefault("slots", {})[core] = 1
            seconds = int(found["time"]) / 1e9
            own = {"kind": "calc", "process": process, "slot": core}
            self.workload.add_task(task, seconds, **own)
            return
        tag = more.get("tag", 0)
        if tag < 0 or found["source"] == "-1":
            raise ValueError(f"{label} takes any source or tag: not known before")
        receives = found["came"] is not None
        peer = int(found["source"] if receives else found["to"])
        if peer >= self._size:
            raise ValueError(f"{label} is with rank {peer} of {self._size}")
        kind = "recv" if receives else "send"
        self.workload.add_task(task, 0, kind=kind, process=process)
        way = (peer, self._rank, tag) if receives else (self._rank, peer, tag)
        size = int(found["came"] if receives else found["sent"])
        self._ends[way][receives].append((task, size))
