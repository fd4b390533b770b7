"""Messages that the calls of a process group become: gloo's, or NCCL's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from emu.errors import EmulatorError, ScenarioError
from emu.virtual import nccl_operations as nccl
from emu.virtual.calls import MESSAGES, Call, script_of
from emu.virtual.gloo_transport import GLOO_WIRE, WORKERS, Steps, Wire, write_steps
from emu.virtual.nccl_operations import Lane

#: Connections of NCCL: its notices of room travel beside the data, and NICs copy.
NCCL_WIRE = Wire(header=0.0, buffer=float(nccl.BUFFER), is_offloaded=True)
#: Algorithms that a run may ask for.
ALGORITHMS = ("ring", "tree")
#: Reductions that NCCL has.
_REDUCTIONS = {"SUM", "AVG", "PRODUCT", "MIN", "MAX"}
#: Bytes that NCCL sums for a barrier.
_BARRIER = 4
#: Bits of a slot below the number of a channel.
_CHANNEL_BITS = 48


class NoAlgorithm(EmulatorError):
    """A call that NCCL does not have, or not by the algorithm that was asked for."""


@dataclass(frozen=True)
class WrittenLane:
    """Steps of a member in a call that wait for no others of it."""

    steps: Steps
    channel: int = 0

    def slot(self, slot: int) -> int:
        """Return the slot of its messages in the call of a slot."""
        return slot + (self.channel << _CHANNEL_BITS)


@dataclass(frozen=True)
class Transport:
    """Rules by which a group's calls become messages."""

    algorithms: tuple[str, ...] = ()
    """Those of NCCL, the preferred one first; none: the messages are gloo's."""

    @property
    def is_nccl(self) -> bool:
        """True where messages are NCCL's."""
        return bool(self.algorithms)

    @property
    def wire(self) -> Wire:
        """Properties of its connections."""
        return NCCL_WIRE if self.is_nccl else GLOO_WIRE

    @property
    def workers(self) -> int:
        """Collectives of a rank that are under way at once."""
        return 1 if self.is_nccl else WORKERS

    def describe(self) -> str:
        """Return whose messages they are: ``NCCL's ring``."""
        if not self.is_nccl:
            return "gloo's"
        names = ", ".join(self.algorithms)
        return f"NCCL's {names}"

    def check(self, call: Call) -> None:
        """Raise NoAlgorithm for a call that it does not have."""
        if not self.is_nccl or call.kind in {"send", "recv"}:
            return
        if call.kind not in nccl.ALGORITHMS:
            raise NoAlgorithm(
                f"NCCL has no {call.describe()}: the backend gloo has, whose messages "
                "are modelled without --algorithm"
            )
        operation = call.figures.get("operation", "SUM")
        if operation not in _REDUCTIONS:
            problem = f"NCCL has no reduction {operation}, asked of {call.describe()}"
            raise NoAlgorithm(problem)
        if len({*call.figures.get("parts", ())}) > 1:
            raise NoAlgorithm(
                f"messages of NCCL for a list of several sizes, {call.describe()}, are "
                "not modelled: leave out --algorithm, and they are gloo's"
            )
        self._algorithm(call)

    def _algorithm(self, call: Call) -> str:
        """Return the first algorithm that a call has; empty where it needs none."""
        found = nccl.ALGORITHMS[call.kind]
        for algorithm in self.algorithms:
            if algorithm in found:
                return algorithm
        if not found:
            return ""
        (asked,) = self.algorithms
        first = found[0]
        raise NoAlgorithm(
            f"NCCL has no {asked} for {call.describe()}: --algorithm {asked},"
            f"{first} takes its {first} there"
        )

    def lanes(
        self,
        call: Call,
        member: int,
        ranks: int,
    ) -> tuple[WrittenLane, ...]:
        """Return what a member of a group of so many ranks does in a call.

        Raises NoAlgorithm as `check`, KeyError for a call that is not modelled.
        """
        is_own = self.is_nccl and call.kind not in MESSAGES and ranks > 1
        if is_own:
            lanes = self._list_nccl_lanes(call, member, ranks)
        else:
            script = script_of(call, member, ranks)
            lanes = [Lane(script)]

        written: list[WrittenLane] = []
        for lane in lanes:
            steps = write_steps(lane.script)
            written_lane = WrittenLane(steps, lane.channel)
            written.append(written_lane)
        return tuple(written)

    def _list_nccl_lanes(
        self,
        call: Call,
        member: int,
        ranks: int,
    ) -> list[Lane]:
        algorithm = self._algorithm(call)
        size = call.figures.get("size", _BARRIER)
        root = call.figures.get("root", 0)
        match call.kind:
            case "allreduce" | "barrier" if algorithm == "tree":
                return nccl.tree_all_reduce(member, ranks, size)
            case "allreduce" | "barrier":
                script = nccl.ring_all_reduce(member, ranks, size)
            case "reduce":
                script = nccl.ring_reduce(member, ranks, root, size)
            case "broadcast":
                script = nccl.ring_broadcast(member, ranks, root, size)
            case "allgather":
                script = nccl.ring_all_gather(member, ranks, size)
            case "reduce_scatter" | "reduce_scatter_list":
                script = nccl.ring_reduce_scatter(member, ranks, size)
            case _:
                given, taken = _list_messages(call, member, ranks)
                script = nccl.exchange(member, given, taken)
        return [Lane(script)]


def _list_messages(
    call: Call,
    member: int,
    ranks: int,
) -> tuple[list[int], list[int]]:
    """Return the bytes that a member gives to each, and takes from each."""
    figures = call.figures
    if call.kind == "alltoall":
        return figures["given"], figures["taken"]

    size = figures["size"]
    root = figures["root"]
    nothing = [0] * ranks
    if member == root:
        carried = [size] * ranks
    else:
        carried = [0] * ranks
        carried[root] = size
    # The root of a gather takes, and so do all but the root of a scatter.
    takes = (call.kind == "gather") == (member == root)
    return (nothing, carried) if takes else (carried, nothing)


#: Messages of groups unless a run asks for NCCL's.
GLOO = Transport()


def read_algorithms(text: str) -> tuple[str, ...]:
    """Return the algorithms that a command line asks for: ``tree,ring``.

    Raises ScenarioError for one that is not modelled.
    """
    names: list[str] = []
    for word in text.split(","):
        name = word.strip().lower()
        if name not in ALGORITHMS:
            problem = f"found {name!r}, write ring, tree, or tree,ring"
            raise ScenarioError(problem, file="--algorithm")
        if name not in names:
            names.append(name)
    return tuple(names)


class CallsInOrder:
    """Collectives that a member has made, of which one at a time is under way."""

    def __init__(self) -> None:
        self._begins: deque[Callable[[], None]] = deque()

    def add(self, begin: Callable[[], None]) -> None:
        """Begin a call when all before it have ended."""
        self._begins.append(begin)
        is_alone = len(self._begins) == 1
        if is_alone:
            begin()

    def end(self) -> None:
        """Take in that the first has ended."""
        self._begins.popleft()
        if self._begins:
            begin = self._begins[0]
            begin()
