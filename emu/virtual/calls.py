"""Calls of c10d as scripts of gloo, and what must be alike among those who make one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from emu.errors import RunError
from emu.virtual import gloo_operations as gloo
from emu.virtual.gloo_operations import Script

#: What a call says of itself; see `Call`.
Figures: TypeAlias = Mapping[str, Any]
#: Calls of two ranks, which gloo begins in the thread of the caller.
MESSAGES = {"send", "recv", "recv_anysource"}
_SUMS = {"allreduce", "reduce", "reduce_scatter", "reduce_scatter_list"}
#: Figures in which the members' calls have to be alike.
_ALIKE = (
    "size",
    "dtype",
    "operation",
    "root",
    "parts",
)


class Mismatch(RunError):
    """Ranks of one group that make calls which do not go together."""


@dataclass(frozen=True)
class Call:
    """A call of a rank."""

    kind: str
    """``allreduce``, ``send`` and so on."""
    figures: Figures
    """``size`` in bytes, ``element`` likewise of one, ``root``, ``peer``; of an
    alltoall ``given`` and ``taken``, bytes to and from each member; of a list that is
    summed ``parts``, bytes for each."""
    where: str
    """File and line of the program."""

    def describe(self) -> str:
        """Return the call with its place in the program."""
        words = [self.kind]
        if "size" in self.figures:
            size = self.figures["size"]
            words.append(f"of {size:,} bytes")
        if "dtype" in self.figures:
            dtype = self.figures["dtype"]
            words.append(f"({dtype})")
        if "peer" in self.figures:
            side = "to" if self.kind == "send" else "from"
            peer = self.figures["peer"]
            tag = self.figures["tag"]
            words.append(f"{side} member {peer} with tag {tag}")
        if "root" in self.figures:
            root = self.figures["root"]
            words.append(f"with root {root}")

        text = " ".join(words)
        return f"{text} at {self.where}"


def script_of(call: Call, member: int, ranks: int) -> Script:
    """Return what gloo has a member of a group of so many ranks do in a call.

    Raises KeyError for a call that is not modelled.
    """
    if call.kind in MESSAGES:
        return _carry_message(call)
    if ranks == 1:
        return _do_nothing()
    if call.kind in _SUMS:
        return _sum_by_ring(call, member, ranks)
    return _move(call, member, ranks)


def _sum_by_ring(call: Call, member: int, ranks: int) -> Script:
    size = call.figures["size"]
    element = call.figures["element"]
    ring = gloo.Ring(ranks=ranks, size=size, element=element)
    if call.kind == "reduce":
        root = call.figures["root"]
        return gloo.reduce(member, ring, root)
    if call.kind == "reduce_scatter_list":
        return _sum_parts(call, member, ranks)
    # torch's reduce_scatter is an allreduce of everything, then a slice.
    return gloo.all_reduce(member, ring)


def _sum_parts(call: Call, member: int, ranks: int) -> Script:
    """Sum what every member is to have by a ring of its own, one after the other.

    torch queues them all, and two run at once: pauses between the two halves of a ring
    overlap there.
    """
    element = call.figures["element"]
    for size in call.figures["parts"]:
        ring = gloo.Ring(ranks=ranks, size=size, element=element)
        yield from gloo.all_reduce(member, ring)


def _move(call: Call, member: int, ranks: int) -> Script:
    size = call.figures.get("size", 0)
    root = call.figures.get("root", 0)
    match call.kind:
        case "broadcast":
            script = gloo.broadcast(member, ranks, root, size)
        case "allgather":
            script = gloo.all_gather(member, ranks, size)
        case "gather":
            script = gloo.gather(member, ranks, root, size)
        case "scatter":
            script = gloo.scatter(member, ranks, root, size)
        case "alltoall":
            given = call.figures["given"]
            taken = call.figures["taken"]
            script = gloo.all_to_all(member, given, taken)
        case "barrier":
            script = gloo.barrier(member, ranks)
        case kind:
            raise KeyError(kind)
    return script


def _carry_message(call: Call) -> Script:
    size = call.figures["size"]
    peer = call.figures["peer"]
    if call.kind == "send":
        transfer = yield gloo.Send(peer, size)
    else:
        transfer = yield gloo.Receive(peer, size)
    yield gloo.Wait((transfer,))
    return transfer


def _do_nothing() -> Script:
    yield from ()


def check_alike(call: Call, member: int, others: Mapping[int, Call]) -> None:
    """Check a call against those that other members of its group made in its place.

    Raises Mismatch where they do not go together; says which members, and where.
    """
    # What is like one of those that are alike is like all; an exchange is of pairs.
    count = len(others) if call.kind == "alltoall" else 1
    compared = islice(others.items(), count)
    for other, made in compared:
        problem = _compare(call, made)
        if not problem and call.kind == "alltoall":
            goes = _agree(call, member, taking=made, taker=other)
            comes = _agree(made, other, taking=call, taker=member)
            if not (goes and comes):
                problem = "an exchange of which one expects other bytes than the other "
                problem += "has"
        if problem:
            raise Mismatch(
                f"members of a group make {problem}: member {other} {made.describe()}, "
                f"member {member} {call.describe()}"
            )


def _compare(call: Call, made: Call) -> str:
    """Return what differs between two calls; empty where they are alike."""
    if call.kind != made.kind:
        return "different calls"
    for key in _ALIKE:
        if call.figures.get(key) != made.figures.get(key):
            return f"calls that differ in {key}"
    return ""


def _agree(
    giving: Call,
    giver: int,
    *,
    taking: Call,
    taker: int,
) -> bool:
    """Return True where the taker expects as many bytes as the giver has for it."""
    given = giving.figures["given"][taker]
    taken = taking.figures["taken"][giver]
    return bool(given == taken)
