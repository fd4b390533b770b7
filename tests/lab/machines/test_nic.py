"""What the kernel is told, against the kernel's own arithmetic."""

from __future__ import annotations

import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.lab.machines.netlink import NEW_CLASS, shape
from emu.lab.machines.nic import (
    FASTEST,
    FIRST_LEAF,
    LEAVES,
    SHARED,
    SLOWEST,
    SMALL,
    SMALL_CLASS,
    Sharing,
    classifier,
    leaf_of,
    leaves_among,
    plan_nic,
)
from tests.lab.machines.packet_programs import run


def packet(
    source: int, destination: int, length: int = 1514, kind: int = 0x800
) -> bytes:
    """Return an Ethernet frame with TCP over IPv4 in it."""
    head = bytes(12) + struct.pack(">H", kind) + b"\x45" + bytes(19)
    return (head + struct.pack(">HH", source, destination)).ljust(length, b"\0")


@given(st.integers(0, 65535), st.integers(0, 65535), st.integers(SMALL + 1, 1514))
def test_data_of_a_connection_goes_to_one_leaf(a: int, b: int, length: int) -> None:
    program = classifier(LEAVES)

    leaf = run(program, packet(a, b, length))

    assert leaf == FIRST_LEAF + leaf_of(a, b, LEAVES)
    assert FIRST_LEAF <= leaf < FIRST_LEAF + LEAVES
    assert leaf == run(program, packet(a, b, 1514))


def test_connections_spread_over_the_leaves() -> None:
    program = classifier(LEAVES)

    leaves = {run(program, packet(40000 + i, 7000)) for i in range(40)}

    assert len(leaves) == 40


@given(st.integers(1, 4096))
def test_numbered_connections_never_meet(connections: int) -> None:
    plan = plan_nic(1e7, Sharing.FAIR, connections=connections)
    program = classifier(plan.leaves, numbered=True)
    ends = {0, connections // 3, connections // 2, connections - 1}

    leaves = {run(program, packet(8192 + edge, 7000)) for edge in ends}

    assert len(leaves) == len(ends)
    assert connections <= plan.leaves < 2 * connections


@pytest.mark.parametrize("leaves", [0, LEAVES])
def test_acknowledgements_have_a_class_of_their_own(leaves: int) -> None:
    program = classifier(leaves)

    assert run(program, packet(5000, 6000, 66)) == SMALL_CLASS
    assert run(program, packet(5000, 6000, 1514, kind=0x806)) == SHARED


def test_one_queue_takes_all_data() -> None:
    assert run(classifier(0), packet(5000, 6000)) == SHARED


@given(st.floats(SLOWEST, FASTEST), st.sampled_from([1500, 9000]))
def test_payload_is_what_the_scenario_says(payload: float, mtu: int) -> None:
    plan = plan_nic(payload, Sharing.FAIR, mtu=mtu)

    # A full packet carries mtu - 52 bytes of payload and takes mtu + 14 on the wire.
    carried = plan.rate / (mtu + 14) * (mtu - 52)
    assert carried == pytest.approx(payload, rel=1e-4)
    # What goes at once, after a pause: the burst, and a segment as it is not empty yet.
    assert plan.burst <= plan.rate * 0.5e-3
    assert mtu + 14 <= plan.segment <= max(mtu + 14, min(65536, plan.rate * 0.5e-3))
    assert plan.packets == plan.segment // (mtu + 14)
    assert plan.queue >= max(4 * (mtu + 14), 2 * plan.segment)


def test_with_assigned_rates_a_slow_nic_lets_two_packets_go_at_once() -> None:
    plan = plan_nic(5e5, Sharing.ASSIGNED)

    assert (plan.burst, plan.segment, plan.packets) == (2 * 1514, 2 * 1514, 2)
    assert plan_nic(5e5, Sharing.FAIR).burst < 1514


def test_a_slow_nic_holds_what_tcp_begins_with() -> None:
    """In 20 to 50 ms of its rate; a stated queue is that, and one queue has no need."""
    slow, middle, fast = (
        plan_nic(payload, Sharing.FAIR) for payload in (5e5, 1.5e6, 1.25e7)
    )

    assert slow.queue == int(0.05 * slow.rate)
    assert middle.queue == 48_000
    assert fast.queue == int(0.02 * fast.rate)
    stated = plan_nic(5e5, Sharing.FAIR, queue=0.03).queue
    assert stated == pytest.approx(0.03 * slow.rate, abs=1)
    assert plan_nic(5e5, Sharing.TCP).queue == int(0.02 * slow.rate)


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (1e-9, "lab.queue is 0.01307 B at this NIC, write 1.01 ms to 325.3 s"),
        (3600.0, "lab.queue is 47.05 GB at this NIC, write 1.01 ms to 325.3 s"),
    ],
)
def test_a_queue_that_no_nic_has_is_refused(queue: float, words: str) -> None:
    """Hold a queue to two segments at least (0.5 ms each) and to 2^32 bytes."""
    with pytest.raises(ValueError, match=words):
        plan_nic(1.25e7, Sharing.FAIR, queue=queue)

    for stated in (0.00101, 325.3):
        plan = plan_nic(1.25e7, Sharing.FAIR, queue=stated)
        assert plan.queue == pytest.approx(stated * plan.rate, rel=1e-3)


@given(st.floats(SLOWEST, FASTEST), st.sampled_from([1500, 9000]))
def test_a_fair_queue_holds_the_window_of_its_connection(
    payload: float, mtu: int
) -> None:
    fair, *others = (
        plan_nic(payload, each, mtu=mtu, connections=4) for each in Sharing
    )

    assert fair.window is not None
    assert fair.window * fair.wire <= max(fair.queue, 8 * mtu * fair.wire)
    assert fair.window >= 8 * mtu  # half of it may be the kernel's own overhead
    assert [plan.window for plan in others] == [None, None]
    # Programs of others may read late, as on a host of their own.
    assert plan_nic(payload, Sharing.FAIR).window is None


@pytest.mark.parametrize("payload", [125.0, 1.25e11, float("nan")])
def test_rates_that_no_kernel_carries_are_refused(payload: float) -> None:
    with pytest.raises(ValueError, match="no NIC for this lab"):
        plan_nic(payload, Sharing.FAIR)


def test_a_nic_has_leaves_for_its_own_connections_alone() -> None:
    plan = plan_nic(1e7, Sharing.FAIR, connections=300, own=[3, 299])
    whole = plan_nic(1e7, Sharing.FAIR)

    leaves = [message for message in shape("lo", plan) if message[0] == NEW_CLASS]

    assert plan.leaves == 512
    assert len(leaves) == 3 + 2  # the whole, what is small, all else
    assert len(shape("lo", whole)) - len(shape("lo", plan)) == 2 * (512 - 2)


def test_a_rate_beyond_32_bits_is_told_beside() -> None:
    """The kernel's fields of 32 bits end at 34 Gbit/s."""
    narrow, wide = (plan_nic(rate, Sharing.TCP) for rate in (4e9, 5e9))
    for plan, beside in ((narrow, False), (wide, True)):
        sent = b"".join(body for _, _, body in shape("lo", plan))
        assert (struct.pack("=HHQ", 12, 7, plan.rate) in sent) == beside


@pytest.mark.parametrize("sharing", [*Sharing])
def test_a_dilated_nic_is_slower_and_else_the_same(sharing: Sharing) -> None:
    """Queues and bursts keep their bytes."""
    real = plan_nic(5e6, sharing)
    slow = plan_nic(5e6, sharing, time_scale=4.0)

    assert slow.rate == pytest.approx(real.rate / 4, abs=1)
    assert dataclasses.replace(slow, rate=real.rate) == real
    assert plan_nic(50e9, sharing, time_scale=8.0).rate < 7e9  # 400 Gbit/s
    with pytest.raises(ValueError, match="5000 B/s is no NIC"):
        plan_nic(20_000, sharing, time_scale=4.0)


@pytest.mark.parametrize(
    ("payload", "sharing", "expected"),
    [
        # rate, burst, queue, quantum, segment, packets, leaves, unsent
        (12.5e6, "fair", (13069751, 6534, 261395, 8034, 6534, 4, 512, None)),
        (12.5e6, "tcp", (13069751, 6534, 261395, 8034, 6534, 4, 0, None)),
        (12.5e6, "assigned", (13069751, 3028, 261395, 6042, 3028, 2, 512, 130697)),
        (12.5e3, "fair", (13070, 6, 6056, 6042, 1514, 1, 512, None)),
        (12.5e3, "assigned", (13070, 3028, 6056, 6042, 3028, 2, 512, 6056)),
        # 0.5 and 0.2 ms of 1.3 GB/s; no device has segments beyond 64 KiB.
        (1.25e9, "fair", (1306975138, 653487, 26139502, 67036, 65536, 43, 512, None)),
        (
            1.25e9,
            "assigned",
            (1306975138, 261395, 26139502, 67036, 65536, 43, 512, 13069751),
        ),
    ],
)
def test_plans_of_nics_reckoned_by_hand(
    payload: float, sharing: str, expected: tuple[int | None, ...]
) -> None:
    """1448 bytes of payload are 1514 on the wire: 1.0456 times as many."""
    plan = plan_nic(payload, Sharing(sharing))

    found = (plan.rate, plan.burst, plan.queue, plan.quantum, plan.segment)
    assert (*found, plan.packets, plan.leaves, plan.unsent) == expected
    assert plan.wire == pytest.approx(1.0455801)
    assert (plan.numbered, plan.window) == (None, None)


def test_windows_of_connections_that_a_receiver_may_leave_unread() -> None:
    """A queue of 20 ms, in payload; eight packets at a NIC of 100 kbit/s."""
    fast = plan_nic(12.5e6, Sharing.FAIR, connections=2, own=[1])
    slow = plan_nic(12.5e3, Sharing.FAIR, connections=2, mtu=1500)

    assert fast.window is not None
    assert fast.window == pytest.approx(250_000, abs=1)
    assert (fast.numbered, slow.numbered) == ((1,), ())
    assert slow.window == 12_000
    assert plan_nic(12.5e6, Sharing.TCP, connections=2, own=[1]).numbered == (1,)


@pytest.mark.parametrize(
    ("connections", "leaves"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (512, 512)]
)
def test_leaves_of_numbered_connections_are_a_power_of_two(
    connections: int, leaves: int
) -> None:
    """It is the least one that is no less than their number."""
    assert plan_nic(1e7, Sharing.FAIR, connections=connections).leaves == leaves


def test_nics_of_many_machines_have_half_as_many_leaves() -> None:
    """Nine machines are many."""
    assert [leaves_among(machines) for machines in (1, 8, 9, 40)] == [
        512,
        512,
        256,
        256,
    ]


def test_a_leaf_follows_from_both_ports() -> None:
    """7919 times the source port and the destination port, of which 9 bits count."""
    # 7919 + 2 = 7921 = 15 * 512 + 241; 2 * 7919 + 1 = 15839 = 30 * 512 + 479.
    assert leaf_of(1, 2, 512) == 241
    assert leaf_of(2, 1, 512) == 479
    assert leaf_of(2, 1, 256) == 223


@pytest.mark.parametrize("leaves", [0, 4])
def test_packets_up_to_120_bytes_are_small(leaves: int) -> None:
    """Numbered ports choose a leaf by the source port, modulo the leaves."""
    program = classifier(leaves, numbered=True)
    large = FIRST_LEAF + 3 if leaves else SHARED
    assert run(program, packet(7, 8, 120)) == SMALL_CLASS
    assert run(program, packet(7, 8, 121)) == large
    assert run(program, packet(7, 8, 121, kind=0x86DD)) == SHARED


@pytest.mark.parametrize("rate", [12_500.0, 12.5e9])
def test_the_slowest_and_the_fastest_nic_can_be_had(rate: float) -> None:
    """They are 100 kbit/s and 100 Gbit/s; what is beyond by a part is not to be had."""
    plan = plan_nic(rate, Sharing.TCP)
    assert plan.rate == pytest.approx(rate * 1.0455801, rel=1e-4)
    beyond = rate * (0.999 if rate < 1e6 else 1.001)
    with pytest.raises(ValueError, match="no NIC for this lab"):
        plan_nic(beyond, Sharing.TCP)


def test_queues_may_be_as_short_and_as_deep_as_the_kernel_has_them() -> None:
    """Packets of 118 bytes carry 66 and take 132 on the wire: twice as many."""
    rate = 2.0**30
    for size in (2 * 65536, 2**32 - 1):
        plan = plan_nic(rate / 2, Sharing.TCP, mtu=118, queue=size / rate)
        assert plan.queue == size
    for size in (2 * 65536 - 1, 2**32):
        with pytest.raises(ValueError, match=r"lab\.queue is"):
            plan_nic(rate / 2, Sharing.TCP, mtu=118, queue=size / rate)
