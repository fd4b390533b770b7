"""Calls of c10d as scripts of gloo, and what must be alike among those who make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from emu.errors import EmulatorError
from emu.virtual import gloo_operations as gloo
from emu.virtual.gloo_operations import Script

#: What a call says of itself; see `Call`.
Figures: TypeAlias = Mapping[str, Any]
#: Calls of two ranks, which gloo begins in the thread of the caller.
MESSAGES = {"send", "recv", "recv_anysource"}


class Mismatch(EmulatorError):
    """Ranks of one group that make calls which do not go together."""


@dataclass(frozen=True)
class Call:
    """A call of a rank."""

    kind: str
    """``allreduce``, ``send`` and so on."""
    figures: Figures
    """``size`` in bytes, ``element`` likewise of one, ``root``, ``peer``; of an
    alltoall ``given`` and ``taken``, bytes to and from each member."""
    where: str
    """File and line of the program."""

    def describe(self) -> str:
        """Return the call with its place in the program."""
        words = [self.kind]
        if "size" in self.figures:
            words.append(f"of {self.figures['size']:,} bytes")
        if "dtype" in self.figures:
            words.append(f"({self.figures['dtype']})")
        if "peer" in self.figures:
            side = "to" if self.kind == "send" else "from"
            words.append(f"{side} member {self.figures['peer']}")
            words.append(f"with tag {self.figures['tag']}")
        if "root" in self.figures:
            words.append(f"with root {self.figures['root']}")
        return f"{' '.join(words)} at {self.where}"


def script_of(call: Call, member: int, ranks: int) -> Script:
    """Return what a member of a group of so many ranks does in a call.

    Raises KeyError for a call that is not modelled.
    """
    if call.kind in MESSAGES:
        return _carry_message(call)
    if ranks == 1:
        return _do_nothing()
    return _SCRIPTS[call.kind](call.figures, member, ranks)


def _ring(figures: Figures, ranks: int) -> gloo.Ring:
    return gloo.Ring(ranks=ranks, size=figures["size"], element=figures["element"])


def _reduce_parts(figures: Figures, member: int, ranks: int) -> Script:
    """Sum what every member is to have by a ring of its own, one after the other.

    torch queues them all, and two run at once: pauses between the two halves of a ring
    overlap there.
    """
    size = figures["size"] // ranks
    ring = gloo.Ring(ranks=ranks, size=size, element=figures["element"])
    for _ in range(ranks):
        yield from gloo.all_reduce(member, ring)


def _barrier_by_first(_: Figures, member: int, ranks: int) -> Script:
    """Report to the first member, which answers when all have (ProcessGroupGloo)."""
    yield from gloo.gather(member, ranks, 0, 0)
    yield from gloo.scatter(member, ranks, 0, 0)


def _carry_message(call: Call) -> Script:
    size = call.figures["size"]
    peer = call.figures["peer"]
    kind = gloo.Send if call.kind == "send" else gloo.Receive
    transfer = yield kind(peer, size)
    yield gloo.Wait((transfer,))
    return transfer


def _do_nothing() -> Script:
    yield from ()


#: Collectives by name: figures, member and number of members -> script.
_SCRIPTS: dict[str, Callable[[Figures, int, int], Script]] = {
    "allreduce": lambda f, member, n: gloo.all_reduce(member, _ring(f, n)),
    # torch's is an allreduce of everything, then a slice.
    "reduce_scatter": lambda f, member, n: gloo.all_reduce(member, _ring(f, n)),
    "reduce_scatter_list": _reduce_parts,
    "reduce": lambda f, member, n: gloo.reduce(member, _ring(f, n), f["root"]),
    "broadcast": lambda f, member, n: gloo.broadcast(member, n, f["root"], f["size"]),
    "allgather": lambda f, member, n: gloo.all_gather(member, n, f["size"]),
    "gather": lambda f, member, n: gloo.gather(member, n, f["root"], f["size"]),
    "scatter": lambda f, member, n: gloo.scatter(member, n, f["root"], f["size"]),
    "alltoall": lambda f, member, _: gloo.all_to_all(member, f["given"], f["taken"]),
    "barrier": lambda _, member, n: gloo.barrier(member, n),
    "monitored_barrier": _barrier_by_first,
}


def check_alike(call: Call, member: int, others: Mapping[int, Call]) -> None:
    """Check a call against those that other members of its group made in its place.

    Raises Mismatch where they do not go together; says which members, and where.
    """
    for other, made in others.items():
        if made.kind != call.kind:
            problem = "different calls"
        elif (key := _unlike(call.figures, made.figures)) is not None:
            problem = f"calls that differ in {key}"
        elif call.kind == "alltoall" and not _is_exchange(
            (call.figures, made.figures), (member, other)
        ):
            problem = "an exchange of which one expects other bytes than the other has"
        else:
            continue
        raise Mismatch(
            f"members of a group make {problem}: member {other} {made.describe()}, "
            f"member {member} {call.describe()}"
        )


def _unlike(figures: Figures, others: Figures) -> str | None:
    for key in ("size", "dtype", "operation", "root"):
        if figures.get(key) != others.get(key):
            return key
    return None


def _is_exchange(figures: tuple[Figures, Figures], members: Sequence[int]) -> bool:
    """Return True where two members expect of each other what the other gives."""
    own, peer = figures
    own_place, peer_place = members
    goes = own["given"][peer_place] == peer["taken"][own_place]
    comes = own["taken"][peer_place] == peer["given"][own_place]
    return bool(goes and comes)
