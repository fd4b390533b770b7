"""Messages to the kernel's networks, read back by the numbers of linux/*.h."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any, TypeAlias

import pytest

from emu.lab.machines import netlink
from emu.lab.machines.netlink import Message, Netlink
from emu.lab.machines.nic import NicPlan, classifier

#: Kinds of messages: RTM_NEWLINK, RTM_NEWADDR, RTM_NEWQDISC, RTM_NEWTCLASS and
#: RTM_NEWTFILTER.
LINK, ADDRESS, QDISC, CLASS, FILTER = 16, 20, 36, 40, 44
#: NLM_F_CREATE, and that with NLM_F_EXCL.
CREATE, CREATE_NEW = 0x400, 0x600
Attributes: TypeAlias = dict[int, bytes]

PLAN = NicPlan(
    rate=1_000_000,
    burst=500,
    queue=20_000,
    quantum=6042,
    segment=3028,
    packets=2,
    leaves=4,
    wire=1.25,
)


@pytest.fixture(autouse=True)
def _devices(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"nic": 7, "br": 9}
    monkeypatch.setattr(socket, "if_nametoindex", numbers.__getitem__)


def attributes(data: bytes) -> Attributes:
    """Return attributes by their kinds; each is padded to four bytes."""
    found = {}
    while data:
        length, kind = struct.unpack_from("=HH", data)
        found[kind] = data[4:length]
        padded = (length + 3) // 4 * 4
        assert set(data[length:padded]) <= {0}
        data = data[padded:]
    return found


def number(data: bytes) -> int:
    (value,) = struct.unpack("=I", data)
    return int(value)


def link(body: bytes) -> tuple[tuple[int, ...], Attributes]:
    """Return family, type, index, flags and mask of struct ifinfomsg, and the rest."""
    return struct.unpack_from("=BxHiII", body), attributes(body[16:])


def place(message: Message) -> tuple[tuple[int, ...], Attributes]:
    """Return index, handle, parent and info of struct tcmsg, and the rest."""
    _, _, body = message
    family, zero, *numbers = struct.unpack_from("=BxHiIII", body)
    assert (family, zero) == (0, 0)
    return tuple(numbers), attributes(body[20:])


def bucket(found: Attributes) -> tuple[int, int, int, int]:
    """Return rate, ceil, burst in ticks of 64 ns, and quantum of a class of HTB."""
    assert found[1] == b"htb\0"
    (parameters,) = [v for k, v in attributes(found[2]).items() if k == 1]
    rate, ceil = struct.unpack_from("=BBHhHI", parameters), parameters[12:24]
    ceil_fields = struct.unpack("=BBHhHI", ceil)
    # Of the layer of Ethernet, with no overhead and no alignment.
    assert rate[:5] == ceil_fields[:5] == (0, 1, 0, -1, 0)
    burst, burst_of_ceil, quantum, *others = struct.unpack("=IIIII", parameters[24:])
    assert burst == burst_of_ceil
    assert others == [0, 0]
    return rate[5], ceil_fields[5], burst, quantum


def test_links_are_made_as_the_kernel_names_their_parts() -> None:
    """A bridge of 106 packets a segment, and a pair of devices of which one goes."""
    kind, flags, body = netlink.bridge("br", 600)
    head, parts = link(body)
    assert (kind, flags, head) == (LINK, CREATE, (0, 0, 0, 1, 1))
    assert (parts[3], number(parts[4])) == (b"br\0", 600)
    assert (number(parts[41]), number(parts[40])) == (65536, 106)
    info = attributes(parts[18])
    assert info[1] == b"bridge\0"
    assert attributes(info[2]) == {1: b"\0\0\0\0", 23: b"\0"}

    kind, flags, body = netlink.veth("nic", "far", 4711, 9000)
    head, parts = link(body)
    assert (kind, flags, head) == (LINK, CREATE, (0, 0, 0, 0, 0))
    assert (parts[3], number(parts[4])) == (b"nic\0", 9000)
    info = attributes(parts[18])
    assert info[1] == b"veth\0"
    head, peer = link(attributes(info[2])[1])
    assert head == (0, 0, 0, 0, 0)
    assert (peer[3], number(peer[19]), number(peer[4])) == (b"far\0", 4711, 9000)


def test_links_are_changed_and_get_addresses_by_their_numbers() -> None:
    """The device is number 7, its bridge number 9; each address is told twice."""
    kind, flags, body = netlink.change_link("nic", master="br", plan=PLAN)
    head, parts = link(body)
    assert (kind, flags, head) == (LINK, 0, (0, 0, 7, 1, 1))
    assert {k: number(v) for k, v in parts.items()} == {10: 9, 41: 3028, 40: 2}
    assert link(netlink.change_link("nic")[2]) == ((0, 0, 7, 1, 1), {})

    kind, flags, body = netlink.address("nic", "10.1.2.3", 24)
    assert (kind, flags) == (ADDRESS, CREATE)
    assert struct.unpack_from("=BBBBI", body) == (socket.AF_INET, 24, 0, 0, 7)
    assert attributes(body[8:]) == dict.fromkeys((1, 2), bytes([10, 1, 2, 3]))


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        # On the wire 500 kB/s, a fifth of the NIC for each of five classes; 500 B at
        # that rate take 1 ms, 15,625 ticks.
        (400_000.0, (200_000, 500_000, 15_625, 6042)),
        (80_000.0, (100_000, 100_000, 78_125, 6042)),
        # Never below a fiftieth of the NIC.
        (0.0, (20_000, 20_000, 390_625, 6042)),
    ],
)
def test_a_leaf_goes_at_the_rate_of_its_payload_on_the_wire(
    payload: float, expected: tuple[int, ...]
) -> None:
    """A leaf is sure of its part of the NIC, or of its whole rate if that is less."""
    message = netlink.pace(7, 2, PLAN, payload)

    assert message[:2] == (CLASS, 0)
    numbers, parts = place(message)
    assert numbers == (7, 0x10013, 0x10001, 0)
    assert bucket(parts) == expected


@pytest.mark.parametrize(
    ("leaves", "numbered", "handles"),
    [
        (0, None, [0x10010]),
        (2, None, [0x10010, 0x10011, 0x10012]),
        (4, (1, 3), [0x10010, 0x10012, 0x10014]),
        (0, (1, 3), [0x10010]),
    ],
)
def test_a_nic_is_a_bucket_of_classes_with_a_queue_each(
    leaves: int, numbered: tuple[int, ...] | None, handles: list[int]
) -> None:
    """A class of 20 kB stands for strangers, and for every connection that there is."""
    plan = NicPlan(
        rate=1_000_000,
        burst=500,
        queue=20_000,
        quantum=6042,
        segment=3028,
        packets=2,
        leaves=leaves,
        numbered=numbered,
    )
    device, root, top, small, *classes, packet_filter = netlink.shape("nic", plan)
    assert device == netlink.change_link("nic", plan=plan)

    assert root[:2] == (QDISC, CREATE_NEW)
    numbers, parts = place(root)
    assert numbers == (7, 0x10000, 0xFFFFFFFF, 0)
    assert parts[1] == b"htb\0"
    assert struct.unpack("=IIIII", attributes(parts[2])[2]) == (3, 10, 0x10, 0, 0)

    assert (top[:2], small[:2]) == ((CLASS, CREATE), (CLASS, CREATE))
    numbers, parts = place(top)
    assert numbers == (7, 0x10001, 0x10000, 0)
    # 500 B at 1 MB/s take 0.5 ms.
    assert bucket(parts) == (1_000_000, 1_000_000, 7812, 6042)
    numbers, parts = place(small)
    assert numbers == (7, 0x10009, 0x10000, 0)
    assert bucket(parts) == (0xFFFFFFFF, 0xFFFFFFFF, 1, 6042)
    wide = attributes(parts[2])
    assert (wide[6], wide[7]) == (struct.pack("=Q", 125_000_000_000),) * 2

    assert len(classes) == 2 * len(handles)
    share = 1_000_000 // (leaves + 1)
    for handle, leaf, queue in zip(handles, classes[::2], classes[1::2], strict=True):
        assert (leaf[:2], queue[:2]) == ((CLASS, CREATE), (QDISC, CREATE))
        numbers, parts = place(leaf)
        assert numbers == (7, handle, 0x10001, 0)
        assert bucket(parts) == (share, 1_000_000, 7812, 6042)
        assert place(queue) == (
            (7, 0, handle, 0),
            {1: b"bfifo\0", 2: struct.pack("=I", 20_000)},
        )

    assert packet_filter[:2] == (FILTER, CREATE)
    numbers, parts = place(packet_filter)
    assert numbers == (7, 0, 0x10000, 0x10000 | socket.htons(3))
    assert parts[1] == b"bpf\0"
    program = classifier(leaves, numbered=numbered is not None)
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    assert attributes(parts[2]) == {4: struct.pack("=H", len(program)), 5: code}

    again = netlink.shape("nic", plan, again=True)
    assert [(kind, body) for kind, _, body in again] == [
        (kind, body) for kind, _, body in (device, top, small, *classes)
    ]
    assert {flags for _, flags, _ in again} == {0}


@pytest.mark.parametrize(("rate", "is_wide"), [(2**32 - 2, False), (2**32 - 1, True)])
def test_rates_that_fill_32_bits_are_told_in_64_as_well(
    rate: int, *, is_wide: bool
) -> None:
    """All ones stand for a rate that is told beside."""
    plan = NicPlan(rate, 500, 20_000, 6042, 3028, 2, leaves=1)
    _, _, top, _, leaf, *_ = netlink.shape("nic", plan)
    for message in (top, leaf):
        _, parts = place(message)
        beside = {kind for kind in attributes(parts[2]) if kind != 1}
        assert beside == ({6, 7} if is_wide else set())


def test_a_leaf_has_a_byte_per_second_at_least() -> None:
    """Two bytes per second are less than one for each of five classes."""
    plan = NicPlan(2, 500, 20_000, 6042, 3028, 2, leaves=4)
    _, parts = place(netlink.pace(7, 0, plan, 100.0))
    assert bucket(parts)[:2] == (1, 100)


class Kernel:
    """A socket whose answers are known."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = [*answers]
        self.sent: list[bytes] = []
        self.is_closed = False

    def send(self, packets: bytes) -> None:
        """Note what is sent."""
        self.sent.append(bytes(packets))

    def recv(self, size: int) -> bytes:
        """Return the next answer."""
        assert size >= 16_384
        return self.answers.pop(0)

    def close(self) -> None:
        """Note the end."""
        self.is_closed = True


def answer(kind: int, sequence: int, body: bytes = b"") -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body


def code(number: int) -> bytes:
    """Return what follows the header of an error: its number, 0 for none."""
    return struct.pack("=i", number)


def headers(packets: bytes) -> list[tuple[int, ...]]:
    """Return lengths, kinds, flags and sequences of messages that were sent as one."""
    found: list[tuple[int, ...]] = []
    while packets:
        length, kind, flags, sequence, process = struct.unpack_from("=IHHII", packets)
        assert process == 0
        found.append((length, kind, flags, sequence))
        packets = packets[length:]
    return found


def test_a_batch_is_acknowledged_once_and_ends_behind_32_kb() -> None:
    """The third message comes behind 32,016 bytes, the second behind 32,000."""
    kernel = Kernel(
        answer(3, 3, code(-1)),  # of another kind, however it reads
        answer(2, 3),  # too short to hold a number
        answer(2, 2, code(0)),
        answer(2, 3, code(0)),
        answer(2, 4, code(0)),
    )
    given: Any = kernel
    messages = [
        (LINK, CREATE, bytes(31_984)),
        (CLASS, 0, b""),
        (QDISC, CREATE_NEW, b""),
        (FILTER, 0, bytes(4)),
    ]

    Netlink(given).send(messages)

    first, second = kernel.sent
    assert headers(first) == [
        (32_000, LINK, 0x401, 1),
        (16, CLASS, 1, 2),
        (16, QDISC, 0x605, 3),
    ]
    assert headers(second) == [(20, FILTER, 5, 4)]
    assert kernel.answers == []


def test_what_the_kernel_refuses_is_an_error_of_its_number() -> None:
    """Also where it refuses one that is not the last of a batch."""
    kernel: Any = Kernel(answer(2, 1, code(-errno.EEXIST)))
    network = Netlink(kernel)
    with pytest.raises(FileExistsError):
        network.send([(LINK, 0, b""), (LINK, 0, b"")])
    network.close()
    assert kernel.is_closed


def test_a_socket_is_opened_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is of this process's network, and closed with the rest."""
    kernel = Kernel(answer(2, 1, code(0)))
    monkeypatch.setattr(netlink, "open_netlink", lambda: kernel)
    network = Netlink()
    network.send([(LINK, 0, b"")])
    network.close()
    assert (len(kernel.sent), kernel.is_closed) == (1, True)


def test_a_queue_tells_what_it_dropped_and_what_waits_in_it() -> None:
    """Counts lie behind other attributes, in the order of struct tc_stats."""
    counts = struct.pack("=Q7I", 1000, 10, 3, 4, 5, 6, 7, 4500)
    body = struct.pack("=BxHiIII", 0, 0, 7, 0x10000, 0xFFFFFFFF, 0)
    body += struct.pack("=HH6sxx", 10, 1, b"bfifo\0")
    body += struct.pack("=HH", 4 + len(counts), 3) + counts
    kernel: Any = Kernel(
        answer(36, 1, body),
        answer(2, 2, code(-errno.ENODEV)),
    )
    network = Netlink(kernel)

    assert network.queue(7) == (3, 4500)

    (request,) = kernel.sent
    assert headers(request) == [(36, 38, 9, 1)]
    assert struct.unpack_from("=BxHiIII", request, 16) == (0, 0, 7, 0, 0xFFFFFFFF, 0)
    with pytest.raises(OSError, match="No such device"):
        network.queue(8)
