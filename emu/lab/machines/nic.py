"""Compute the kernel settings by which a NIC carries what a scenario states.

Pure arithmetic: payload rates become wire rates, bursts, queues and leaf classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from emu.units import format_duration, format_size

#: Bytes of an Ethernet header; the kernel counts them against a rate.
ETHERNET = 14
#: Bytes of IP and TCP headers with time stamps.
HEADERS = 52
#: Seconds of the rate that may go at once. The usual 64 kB are 50 ms of a 10 Mbit/s
#: NIC, and every flow after a pause gets them as a gift. With 0.5 ms single flows of 50
#: Mbit/s to 1 Gbit/s end 0.3 to 0.7 ms before bytes / rate, with 2 ms 2 ms before.
#: Slow NICs had two packets instead: at 5 Mbit/s flows ended 8 ms before, now 1.7 ms.
BURST = 0.5e-3
#: Least segment, bytes: a packet of the usual MTU.
SMALLEST_SEGMENT = 1514
#: Largest segment that the kernel hands a device, bytes.
SEGMENT = 65536
#: Leaf classes that connections are spread over; a power of two. With 64, two of six
#: connections met in one leaf in every fifth lab.
LEAVES = 512
#: Machines of a lab from which its NICs have half as many. The kernel looks at every
#: class of this computer before it makes one: with 512 sixteen machines took 1.4 s to
#: start, with 256 0.4 s.
MANY = 9
#: Lengths up to this are acknowledgements, ARP and the like, bytes with all headers.
#: They have a class of their own: counted, they cost 1 % of a duplex NIC.
SMALL = 120
#: Payload rates that a NIC can have, bytes per second: 100 kbit/s and 100 Gbit/s, of
#: which a host carries what `Lab.check_nics` finds.
SLOWEST = 12_500.0
FASTEST = 12.5e9

#: Bytes of the deepest queue: the kernel has 32 bits for them.
DEEPEST = 2**32 - 1

#: Least rate of a leaf, as a share of its NIC's. What waits in a leaf does so at the
#: rate of then, whatever has been set since: a segment over that rate.
SLOWEST_LEAF = 0.02
#: With assigned rates: seconds of the NIC's rate that may go at once, and that a
#: program may hand the kernel ahead. Both bound how late a change of a rate holds.
BURST_ASSIGNED = 0.2e-3
UNSENT = 10e-3

ROOT = 0x10000
TOP = 0x10001
SMALL_CLASS = 0x10009
SHARED = 0x10010
FIRST_LEAF = 0x10011

_MIX = 7919
Instruction = tuple[int, int, int, int]


class Sharing(StrEnum):
    """Policy by which connections share a NIC."""

    FAIR = "fair"
    """A leaf per connection, equal quanta: max-min."""
    TCP = "tcp"
    """One drop-tail queue, as in a plain NIC and switch port."""
    ASSIGNED = "assigned"
    """A leaf per connection, out of a machine at a rate that `Lab.paces` sets."""


#: Seconds of the NIC's rate that one queue holds, and with `Sharing.FAIR` that it may
#: hold for the sake of `START`.
QUEUE = 0.02
LONGEST_QUEUE = 0.05
#: Bytes that TCP sends before it notices a full queue. A leaf of a slow NIC with 20 ms
#: held eight packets: 241 were lost, a connection waited 200 ms, and a run of 4 s took
#: 6 % longer; with 50 ms 0.3 %. Fast NICs need no more than 20 ms: forty flows of 20
#: and 100 Mbit/s had 0.97 to 1.01 of their shares, and 0.95 to 1.00 with 50 ms.
START = 48_000
#: Packets that a window has room for: half of it may be the kernel's own overhead.
FEWEST_PACKETS = 8
#: Packets that a leaf may send in its turn, but for one. With one of slow NICs flows
#: that have no faster NIC at either end got 0.8 of their shares, with three 0.99.
FEWEST_IN_TURN = 3


@dataclass(frozen=True)
class NicPlan:
    """One direction of one NIC, as the kernel's hierarchical token bucket takes it."""

    rate: int
    """Bytes per second on the wire."""
    burst: int
    queue: int
    quantum: int
    segment: int
    """Bytes: what may go at once, what one queue holds, what a leaf sends in its turn,
    the largest segment of the device."""
    packets: int
    """Packets of that segment: TCP makes it of two, however short it is to be."""
    leaves: int
    """Number of leaves that `classifier` names; 0 for one queue."""
    numbered: tuple[int, ...] | None = None
    """Those of them that there are, where source ports name leaves; None for all."""
    wire: float = 1.0
    """Bytes on the wire per byte of payload, in full packets."""
    unsent: int | None = None
    window: int | None = None
    """Bytes that a connection takes from its program ahead, and that a receiver behind
    this NIC has room for; None for as many as the kernel likes."""


def plan_nic(
    payload: float,
    sharing: Sharing,
    *,
    mtu: int = 1500,
    queue: float | None = None,
    connections: int = 0,
    own: Iterable[int] = (),
    leaves: int = LEAVES,
    time_scale: float = 1.0,
) -> NicPlan:
    """Return the kernel's plan for ``payload`` bytes per second of TCP payload.

    Parameters
    ----------
    mtu
        Bytes of a packet without its Ethernet header.
    queue
        Seconds of the rate that one queue holds; default as the kind of sharing needs.
    connections
        Number of connections with consecutive source ports, each of which gets a leaf
        of its own; 0 where ports are arbitrary, and there are ``leaves``, a power of
        two.
    own
        Those of them that cross this NIC: others need no leaf. The kernel looks at all
        classes of this computer before it makes one, so many take seconds.
    time_scale
        Wall seconds in which it carries that. Queues and bursts keep their bytes: with
        those of a NIC as slow as this one is then, who sends has less of an all-reduce
        in the kernel when it goes on, and iterations of 0.80 s took 0.87.

    Raises
    ------
    ValueError
        When no kernel here carries such a rate, or has such a queue.
    """
    if not SLOWEST <= (real := payload / time_scale) <= FASTEST:
        raise ValueError(
            f"{real:g} B/s is no NIC for this lab, "
            f"which has {SLOWEST:g} to {FASTEST:g} B/s"
        )
    if connections:
        leaves = 1 << (connections - 1).bit_length()

    frame = mtu + ETHERNET
    wire = frame / (mtu - HEADERS)
    rate = payload * wire
    by_rates = sharing is Sharing.ASSIGNED
    gift = BURST_ASSIGNED if by_rates else BURST
    depth = rate * (QUEUE if queue is None else queue)
    if queue is None and sharing is Sharing.FAIR:
        depth = max(depth, min(START, rate * LONGEST_QUEUE))

    # With assigned rates no flow ends before these carried it: nothing is a gift there.
    least = 2 * frame if by_rates else frame
    segment = int(min(SEGMENT, max(least, rate * gift)))
    shallowest = max(4 * frame, 2 * segment)
    if queue is not None and not shallowest <= depth <= DEEPEST:
        # Rounded, both still hold.
        shortest = format_duration(1.01 * shallowest / rate)
        longest = format_duration(0.99 * DEEPEST / rate)
        size = format_size(depth)
        raise ValueError(
            f"lab.queue is {size} at this NIC, write {shortest} to {longest}"
        )
    limit = int(max(shallowest, depth))
    readers = connections and sharing is Sharing.FAIR

    return NicPlan(
        rate=round(rate / time_scale),
        burst=int(max(segment if by_rates else 0, rate * gift)),
        queue=limit,
        quantum=max(segment, FEWEST_IN_TURN * frame) + mtu,
        segment=segment,
        packets=segment // frame,
        leaves=0 if sharing is Sharing.TCP else leaves,
        numbered=tuple(own) if connections else None,
        wire=wire,
        unsent=int(max(2 * segment, rate * UNSENT)) if by_rates else None,
        window=int(max(FEWEST_PACKETS * mtu, limit / wire)) if readers else None,
    )


def leaves_among(machines: int) -> int:
    """Return the number of leaves of a NIC in a lab where ports are arbitrary."""
    return LEAVES if machines < MANY else LEAVES // 2


def leaf_of(source_port: int, destination_port: int, leaves: int) -> int:
    """Return which of its leaves the `classifier` takes for a connection's ports."""
    return (source_port * _MIX + destination_port) & (leaves - 1)


def classifier(leaves: int, *, numbered: bool = False) -> list[Instruction]:
    """Return a classic BPF program: the class of a packet, as (code, jt, jf, k).

    Small packets get `SMALL_CLASS`, TCP over IPv4 without IP options a leaf, all else
    `SHARED`. Where ``numbered``, the source port alone names the leaf, modulo their
    number, a power of two, so that no two of as many connections meet in one; else a
    hash of both ports does.
    """
    load_length = 0x80
    load_half = 0x28
    jump_greater = 0x25
    jump_equal = 0x15
    multiply = 0x24
    to_x = 0x07
    add_x = 0x0C
    and_k = 0x54
    add_k = 0x04
    return_a = 0x16
    return_k = 0x06

    steps = [
        (multiply, 0, 0, _MIX),
        (to_x, 0, 0, 0),
        (load_half, 0, 0, 36),  # destination port
        (add_x, 0, 0, 0),
    ]
    by_port = [
        (load_half, 0, 0, 34),  # source port
        *([] if numbered else steps),
        (and_k, 0, 0, leaves - 1),
        (add_k, 0, 0, FIRST_LEAF),
        (return_a, 0, 0, 0),
    ]
    choose = by_port if leaves else [(return_k, 0, 0, SHARED)]

    return [
        (load_length, 0, 0, 0),
        (jump_greater, 1, 0, SMALL),
        (return_k, 0, 0, SMALL_CLASS),
        (load_half, 0, 0, 12),
        (jump_equal, 1, 0, 0x0800),
        (return_k, 0, 0, SHARED),
        *choose,
    ]
