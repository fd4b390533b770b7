"""What pacing promises: bounds and orders, never how fast this machine is."""

from __future__ import annotations

import asyncio
import errno
import itertools
import math
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.emulation.network.authentication import edge_keys
from emu.emulation.network.clock import RunClock
from emu.emulation.network.connect import open_edge
from emu.emulation.network.data_server import DataServer
from emu.emulation.network.inbox import BufferPool, Inbox
from emu.emulation.network.out_edge import (
    BURST_BESIDE_PACING,
    OutEdge,
    OutEdgeStatistics,
)
from emu.emulation.network.pacer import Pacer, PacerStatistics
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.send_log import FrameLog, SendLog
from emu.emulation.shaping import EmulationSettings, FlowEnds
from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.errors import NodeLost
from emu.prediction.core import ffi, lib
from tests.emulation.network.strangers import until

KEYS = edge_keys("secret", range(3))


@dataclass
class Shaped:
    """Three shaped edges with their board and receiver.

    ``arrivals`` are (edge, iteration, wall time, bytes, shaped).
    """

    board: RateBoard
    pacer: Pacer
    clock: RunClock
    edges: list[OutEdge]
    server: DataServer
    inbox: Inbox
    arrivals: list[tuple[int, int, float, int, bool]]

    def publish(
        self,
        edges: list[int],
        iterations: list[int],
        served: list[float],
        rates: list[float],
        since: float,
    ) -> None:
        """Put lines on the board and tell the senders, as the coordinator does."""
        self.board.publish(edges, iterations, served, rates, since)
        for edge in edges:
            self.edges[edge].notify(since)

    @property
    def edge(self) -> OutEdge:
        """The edge that most tests need: number 1."""
        return self.edges[1]


@asynccontextmanager
async def shaping(
    *,
    byte_scale: float = 0.5,
    time_scale: float = 0.5,
    started: bool = True,
    flow_ends: FlowEnds = "arrival",
    catch_up: float = math.inf,
    capacity: float = math.inf,
) -> AsyncIterator[Shaped]:
    board, inbox, pool = RateBoard.create(3), Inbox("w0"), BufferPool()
    arrivals: list[tuple[int, int, float, int, bool]] = []
    settings = EmulationSettings(
        byte_scale=byte_scale, flow_ends=flow_ends, catch_up=catch_up
    )
    pacer = Pacer(board, settings)
    server = DataServer(
        keys=KEYS,
        inbox=inbox,
        pool=pool,
        on_arrival=lambda *seen: arrivals.append(seen),
    )
    address = await server.start("127.0.0.1")
    how: dict[str, Any] = {"pacer": pacer, "capacity": capacity}
    edges = [await open_edge(address, e, key=KEYS[e], **how) for e in range(3)]
    clock = RunClock(time.monotonic(), time_scale)
    if started:
        pacer.start(clock)
    try:
        yield Shaped(board, pacer, clock, edges, server, inbox, arrivals)
    finally:
        for edge in edges:
            await edge.aclose()
        await server.aclose()
        pacer.close()
        board.close()
    assert pool.statistics.in_use == 0


def look(edge: OutEdge, now: float) -> float:
    """Look at an edge as its pacer does; return when the next look is due."""
    outcome = lib.look(edge._pacer.core, edge.sender, now)
    if outcome != lib.PACED:
        edge.attend(outcome)
    return float(edge.sender.due)


async def test_the_alarm_is_set_anew_only_where_that_changes_it() -> None:
    """A flow of 2 s whose sender looks once; the pacer counts how late it rang."""
    async with shaping(time_scale=1.0) as run:
        run.publish([1], [0], [0.0], [1000.0], run.clock.now())
        _ = run.edge.send(0, block(1000), shaped=True)
        core = run.pacer.core

        due = core.due
        assert due == run.edge.sender.due > time.monotonic()
        assert not lib.set_alarm(core)
        run.edge.sender.next = due + 1.0
        lib.set_alarm(core)
        assert core.due == due + 1.0
        lib.ring(core, due + 1.25)
        run.edge.sender.next = math.inf

        statistics = run.pacer.statistics()
        lags = [core.lag, statistics.max_lag, statistics.mean_lag]
        assert lags == pytest.approx([0.25] * 3)
        assert statistics.wakes == 1


def segment(pacer: Pacer, iteration: int) -> Any:
    """Return the fluid of a flow of edge 0, None where it has none."""
    seen = ffi.new("Segment *")
    return seen if lib.segment_of(pacer.core, 0, iteration, seen) else None


def block(size: int) -> dict[str, Any]:
    return {"x": np.arange(size, dtype=np.uint64).astype(np.uint8)}


async def arrived(run: Shaped, iteration: int, size: int) -> float:
    """Return the emulated time of the last byte, after checking every byte."""
    delivery = await run.inbox.get(1, iteration, within=20)
    np.testing.assert_array_equal(delivery.payload["x"], block(size)["x"])
    delivery.release()
    assert run.arrivals[-1][3:] == (size, True)
    return run.clock.to_emulated(delivery.arrived)


@pytest.mark.parametrize("flow_ends", ["arrival", "fluid"])
async def test_a_shaped_flow_is_ahead_of_its_fluid_by_its_lead_at_most(
    flow_ends: FlowEnds,
) -> None:
    async with shaping(flow_ends=flow_ends) as run:
        left = run.edge.send(0, block(1_000_000), shaped=True)
        since = run.clock.now()
        # 1 MB real is 2 MB emulated; 20 MB/s takes 0.1 emulated seconds.
        run.publish([1], [0], [0.0], [20e6], since)
        end = await arrived(run, 0, 1_000_000)
        behind = await left

        row = np.frombuffer(run.pacer.log.pack(run.clock))
        queued, sent = row[3], row[2]
        assert queued <= since < sent
        lead = run.pacer.pace.lead_time
        assert (lead > 0) == (flow_ends == "fluid")
        assert end >= since + 0.1 - lead / 0.5 - 1e-6
        assert behind >= -lead
        statistics = run.edge.statistics
        assert statistics.payload_bytes == 1_000_000
        # 20 MB/s emulated = 20 MB/s wall; plus the clock's rounding.
        assert 16383 <= statistics.max_lead_bytes <= max(lead * 20e6, 16384) + 1
        assert run.pacer.statistics().wakes > 0


@pytest.mark.parametrize("flow_ends", ["arrival", "fluid"])
async def test_rates_may_change_and_stop(flow_ends: FlowEnds) -> None:
    async with shaping(flow_ends=flow_ends) as run:
        # 400 ms at the first rate: no sleep of 10 ms takes so long on a busy host.
        left = run.edge.send(0, block(2_000_000), shaped=True)
        start = run.clock.now()
        served, now = 0.0, start
        for rate in (4e6, 0.0, 1e6, 0.0):
            run.publish([1], [0], [served], [rate], now)
            await asyncio.sleep(0.01)
            served, now = served + rate * (run.clock.now() - now), run.clock.now()
        assert not left.done()
        assert served < 4_000_000
        assert run.edge.statistics.frames == 0
        run.publish([1], [0], [served], [100e6], now)
        end = await arrived(run, 0, 2_000_000)

        lead = run.pacer.pace.lead_time
        assert end >= now + (4_000_000 - served) / 100e6 - lead / 0.5 - 1e-6


async def test_who_is_told_of_a_rate_sees_it_at_once() -> None:
    """Within the call, or as soon as it is on the board."""
    async with shaping() as run:
        _ = run.edge.send(0, block(100), shaped=True)
        since = run.clock.now()
        run.board.publish([1], [0], [0.0], [1e12], since)
        run.edge.notify(since)
        assert run.edge.statistics.frames == 1
        await arrived(run, 0, 100)

        _ = run.edge.send(1, block(100), shaped=True)
        since = run.clock.now()
        run.edge.notify(since)
        looks = run.pacer.statistics().wakes
        await until(lambda: run.pacer.statistics().wakes > looks + 20)
        run.board.publish([1], [1], [0.0], [1e12], since)
        await arrived(run, 1, 100)


async def test_a_stopped_flow_sends_no_more_than_its_lead() -> None:
    async with shaping() as run:
        _ = run.edge.send(0, block(1_000_000), shaped=True)
        run.publish([1], [0], [100_000.0], [0.0], 0.0)
        before = run.pacer.statistics().wakes
        await until(lambda: run.pacer.statistics().wakes > before + 5)

        assert run.edge.statistics.max_lead_bytes <= 16384
        assert run.arrivals == []
        assert run.pacer.core.lag == 0.0  # between rings nothing is late by one
        run.publish([1], [0], [2e6], [0.0], run.clock.now())
        await arrived(run, 0, 1_000_000)
        (piece,) = run.pacer.departures.pieces(run.clock)
        (row,) = np.frombuffer(piece, FRAME_ROWS)
        assert row["first"] < row["last"]


async def test_looks_are_due_before_bytes_are_lost_or_a_line_begins() -> None:
    async with shaping() as run:
        _ = run.edge.send(0, block(1_000_000), shaped=True)
        run.publish([1], [0], [0.0], [1e5], run.clock.now())  # 20 emulated seconds
        now, longest = time.monotonic(), run.pacer.pace.longest
        assert longest < run.pacer.pace.idle
        assert look(run.edge, now) <= now + longest
        begins = now + longest / 2
        run.publish([1], [0], [1e3], [1e5], run.clock.to_emulated(begins))
        assert look(run.edge, now) == pytest.approx(begins, abs=1e-6)


@pytest.mark.parametrize(
    ("early", "late", "lost"),
    [(0, 0, 0), (0, 0.01, 0.01), (0.03, 0, 0.03), (0.03, 0.02, 0.05), (0.45, 0, 0.05)],
)
async def test_who_looks_in_time_loses_nothing_of_lines_that_it_never_saw(
    early: float, late: float, lost: float
) -> None:
    """Who stood still, before or after, loses what the link carries in that time."""
    rate, unseen = 1e6, 0.04
    async with shaping(byte_scale=1, time_scale=1, catch_up=0, capacity=rate) as run:
        _ = run.edge.send(0, block(100_000), shaped=True)
        start = time.monotonic()
        begins = run.clock.to_emulated(start) + 0.5
        run.publish([1], [0], [0.0], [rate], begins)
        # It takes the place of the first, of which nothing has gone.
        second = begins + unseen
        run.board.publish([1], [0], [unseen * rate], [rate], second)
        now = look(run.edge, start) + early
        while (due := look(run.edge, now)) < run.clock.to_wall(second):
            now = due
        now = due + late
        while run.edge.statistics.frames == 0:
            now = max(look(run.edge, now), now + 1e-4)
        await arrived(run, 0, 100_000)

        assert run.edge.statistics.lost_bytes == pytest.approx(rate * lost, abs=2)


async def test_nothing_leaves_by_a_line_of_a_time_to_come() -> None:
    """The line that ends a flow says that all of it is served: from its time on."""
    async with shaping() as run:
        _ = run.edge.send(0, block(100_000), shaped=True)
        ends = run.clock.now() + 1.0
        run.publish([1], [0], [200_000.0], [0.0], ends)
        await asyncio.sleep(0.02)
        assert run.edge.statistics.max_lead_bytes == 0
        assert await arrived(run, 0, 100_000) >= ends - 1e-6


async def test_a_frame_waits_for_the_line_of_its_own_iteration() -> None:
    async with shaping() as run:
        lefts = [run.edge.send(n, block(50_000), shaped=True) for n in range(2)]
        run.publish([1], [0], [0.0], [1e9], run.clock.now())
        await arrived(run, 0, 50_000)
        wakes = run.pacer.statistics().wakes
        await until(lambda: run.pacer.statistics().wakes > wakes + 5)
        assert [left.done() for left in lefts] == [True, False]
        run.publish([1], [1], [0.0], [1e9], run.clock.now())
        await arrived(run, 1, 50_000)


async def test_shaped_and_unshaped_frames_share_one_order() -> None:
    async with shaping() as run:
        _ = run.edge.send(0, block(1000), shaped=True)
        _ = run.edge.send(1, {}, shaped=True)
        _ = run.edge.send(2, block(1000), shaped=False)
        run.publish([1], [0], [0.0], [1e9], run.clock.now())
        await until(lambda: len(run.arrivals) == 3)
        for n in range(3):
            (await run.inbox.get(1, n)).release()

        assert [seen[1] for seen in run.arrivals] == [0, 1, 2]
        assert [seen[4] for seen in run.arrivals] == [True, True, False]


async def test_an_idle_pacer_does_not_wake() -> None:
    async with shaping() as run:
        run.publish([1], [0], [0.0], [1e9], run.clock.now())
        _ = run.edge.send(0, block(1000), shaped=True)
        await arrived(run, 0, 1000)
        wakes = run.pacer.statistics().wakes
        await asyncio.sleep(0.02)

        assert run.pacer.statistics().wakes == wakes
        assert not run.pacer.busy
        assert run.pacer.core.count == 0


async def test_nothing_shaped_leaves_before_the_start() -> None:
    async with shaping(started=False) as run:
        run.publish([1], [0], [1e9], [1e9], 0.0)
        left = run.edge.send(0, block(100), shaped=True)
        await asyncio.sleep(0.01)
        assert not left.done()
        run.pacer.start(run.clock)
        await arrived(run, 0, 100)


async def test_flows_of_one_pacer_end_in_the_order_of_their_fluids() -> None:
    async with shaping(byte_scale=1.0, time_scale=1.0) as run:
        since = run.clock.now()
        rates = [1e6, 4e6, 2e6]
        run.publish([0, 1, 2], [0, 0, 0], [0.0] * 3, rates, since)
        for edge in run.edges:
            _ = edge.send(0, block(100_000), shaped=True)
        await until(lambda: len(run.arrivals) == 3)
        for e in range(3):
            (await run.inbox.get(e, 0)).release()

        assert [seen[0] for seen in run.arrivals] == [1, 2, 0]
        lead = run.pacer.pace.lead_time
        for e, _, wall, _, _ in run.arrivals:
            due = since + 100_000 / rates[e] - lead
            assert run.clock.to_emulated(wall) >= due - 1e-9
        ends = [seen[2] for seen in run.arrivals]
        assert all(a <= b for a, b in itertools.pairwise(ends))


async def test_nothing_rings_for_an_edge_that_was_closed() -> None:
    async with shaping() as run:
        lost = run.edge.send(0, block(100_000), shaped=True)
        run.publish([1], [0], [0.0], [20e6], run.clock.now() + 3600.0)
        assert run.pacer.core.due < math.inf
        await run.edge.aclose()

        assert run.pacer.core.due == math.inf
        assert not run.pacer.busy
        with pytest.raises(NodeLost, match="edge 1 was closed"):
            await lost


async def test_a_frame_that_waited_as_its_edge_was_closed_is_not_begun() -> None:
    async with shaping() as run:
        first = run.edge.send(0, block(10), shaped=False)
        second = run.edge.send(1, block(100_000), shaped=True)
        await first
        # In this turn of the loop the second frame is yet to begin.
        await run.edge.aclose()
        (await run.inbox.get(1, 0, within=10)).release()

        assert not run.pacer.busy
        with pytest.raises(NodeLost, match="edge 1 was closed"):
            await second


@pytest.mark.parametrize(
    ("busy", "encrypted", "most"),
    [
        (False, False, lib.BURST),
        (True, False, BURST_BESIDE_PACING),
        (False, True, BURST_BESIDE_PACING),
    ],
)
async def test_an_unshaped_frame_leaves_others_their_turns(
    monkeypatch: pytest.MonkeyPatch, most: int, *, busy: bool, encrypted: bool
) -> None:
    """Less goes at once beside edges that are paced, and where TLS takes the CPU."""
    asked: list[int] = []

    def write(_: OutEdge, body_bytes: int) -> int:
        asked.append(body_bytes)
        return int(lib.SENT)

    async with shaping() as run:
        if busy:
            _ = run.edges[0].send(0, block(10), shaped=True)
        with monkeypatch.context() as patch:
            patch.setattr(OutEdge, "_write", write)
            patch.setattr(OutEdge, "_finish", lambda *_: None)
            fd = run.edge.sender.fd
            run.edge.sender.fd = -1 if encrypted else fd
            _ = run.edge.send(0, block(10), shaped=False)
        run.edge.sender.fd = fd

    assert asked == [most]


async def test_a_closed_edge_leaves_the_pacer_to_the_others() -> None:
    async with shaping() as run:
        lost = run.edges[0].send(0, block(100_000), shaped=True)
        _ = run.edge.send(0, block(100_000), shaped=True)
        run.publish([0, 1], [0, 0], [0.0] * 2, [0.0, 20e6], run.clock.now())
        await run.edges[0].aclose()
        await arrived(run, 0, 100_000)

        with pytest.raises(NodeLost, match="edge 0 was closed"):
            await lost


@pytest.mark.parametrize("is_missed", [True, False])
async def test_who_sends_for_an_edge_gives_it_up_with_the_error_of_its_socket(
    *, is_missed: bool
) -> None:
    """Its loss counts where something was left to send; it is the first one later."""
    async with shaping() as run:
        edge = run.edge
        failures: list[str] = []
        edge.on_failure = lambda error: failures.append(str(error))
        edge.lend(lambda: is_missed)
        words = f"the receiver of edge 1 left: [Errno {errno.EPIPE}] Broken pipe"

        edge.sender.error = errno.EPIPE
        edge.give_up()
        assert failures == [words] * is_missed
        assert edge.sender.fd == -1

        edge.sender.error = errno.ENOBUFS
        edge.give_up()
        assert failures == [words] * (is_missed + 1)
        with pytest.raises(NodeLost, match="Broken pipe"):
            _ = edge.send(0, block(1), shaped=False)


async def test_a_flow_larger_than_the_kernel_takes_is_not_lost() -> None:
    """The socket fills up while the receiver is slow; the rest follows."""
    async with shaping() as run:
        run.publish([1], [0], [1e12], [0.0], 0.0)
        left = run.edge.send(0, block(40_000_000), shaped=True)
        await arrived(run, 0, 40_000_000)

        await left
        assert run.edge.statistics.payload_bytes == 40_000_000
        assert run.edge.statistics.blocked > 0


async def test_a_reader_is_woken_for_much_of_a_body_and_for_every_head() -> None:
    """Nor does one that waits for more sleep where its sender goes."""
    async with shaping() as run:
        sock = run.server.connected[1]._sock
        assert isinstance(sock, socket.socket)

        def least() -> int:
            return int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))

        for n in range(2):
            _ = run.edge.send(n, block(1_000_000), shaped=True)
            run.publish([1], [n], [400_000.0], [0.0], run.clock.now())
            await until(lambda: least() > 1)
            if n == 0:
                run.publish([1], [n], [2e6], [0.0], run.clock.now())
                await arrived(run, n, 1_000_000)
                assert least() == 1
        await run.edge.aclose()
        await until(lambda: run.server.connected[1] not in run.server.connections)


@pytest.mark.parametrize("seed", range(10))
async def test_lines_and_looks_follow_both_scales(seed: int) -> None:
    """A flow's fluid is in wall seconds and real bytes what the board says of it."""
    rng = np.random.default_rng(seed)
    time_scale, byte_scale = (float(10.0 ** rng.uniform(-2, 2)) for _ in range(2))
    served, rate, since, later = rng.uniform(1.0, 1000.0, 4).tolist()
    origin = time.monotonic()
    board, clock = RateBoard.create(1), RunClock(origin, time_scale)
    pacer = Pacer(board, EmulationSettings(byte_scale=byte_scale))
    assert segment(pacer, 4) is None
    pacer.start(clock)
    clock.show(pacer.core)
    board.publish([0], [4], [served], [rate], since)

    line = segment(pacer, 4)
    assert line is not None
    assert segment(pacer, 3) is None
    assert segment(pacer, 5) is None
    wall = origin + (since + later) * time_scale
    there = line.served + line.rate * (wall - line.since)
    assert there == pytest.approx((served + rate * later) * byte_scale, rel=1e-6)
    assert pacer.to_wall(since) == line.since
    longest = min(0.002 * max(time_scale, 1.0) ** 0.5, 0.020)
    assert pacer.pace.longest == pytest.approx(longest)
    assert pacer.pace.lead_time == 0.0
    pacer.close()
    board.close()


def finished(log: SendLog, iterations: int) -> NDArray[np.float64]:
    """Return the rows of frames of edge 3, the lag of each its number."""
    frames = FrameLog()
    pacing = ffi.new("Pacing *", {"departures": frames.core, "sent": log.core})
    times = {"end": 110.0, "queued": 104.0, "informed": 106.0, "fluid_end": math.inf}
    sender = ffi.new("Sender *", {"edge": 3, "volume": 8, "overhead": 5, **times})
    for iteration in range(iterations):
        sender.iteration = iteration
        pacing.lag = 0.5 * iteration
        frames.make_room()
        assert lib.finish(pacing, sender, True) == 0.0
    assert (sender.frames, sender.payload_bytes) == (iterations, 8 * iterations)
    assert sender.header_bytes == 5 * iterations
    (*pieces,) = frames.pieces(RunClock(100.0, 2.0))
    noted = np.concatenate([np.frombuffer(piece, FRAME_ROWS) for piece in pieces])
    assert noted["iteration"].tolist() == [*range(iterations)]
    return np.frombuffer(log.pack(RunClock(100.0, 2.0))).reshape(-1, 6)


async def test_every_count_of_an_edge_stands_under_its_name() -> None:
    """Nine counts come from the sender; three of four rates missed the board."""
    async with shaping() as run:
        sender = run.edge.sender
        sender.frames, sender.payload_bytes, sender.header_bytes = 11, 12, 13
        sender.late_sends, sender.blocked = 14, 15
        sender.max_behind, sender.max_lead, sender.max_stale = 1.5, 2.5, 3.5
        sender.lost_bytes = 4.5
        run.board.publish([1], [0], [0.0], [1.0], 0.0, [4])

        assert run.edge.statistics == OutEdgeStatistics(
            edge=1,
            frames=11,
            payload_bytes=12,
            header_bytes=13,
            late_sends=14,
            max_behind=1.5,
            max_lead_bytes=2.5,
            max_stale=3.5,
            blocked=15,
            lost_bytes=4.5,
            missed=3,
        )


async def test_the_mean_lag_is_that_of_a_ring() -> None:
    async with shaping(started=False) as run:
        assert run.pacer.statistics() == PacerStatistics(0, 0.0, 0.0)
        assert run.pacer.to_wall(5.0) == -math.inf  # the run has not begun
        core = run.pacer.core
        core.rings, core.lag_sum, core.max_lag = 4, 2.0, 1.5

        assert run.pacer.statistics() == PacerStatistics(4, 1.5, 0.5)


async def test_a_rate_from_later_on_does_not_delay_a_look() -> None:
    """A look is due at 50 s: a rate from 60 s on does not move it.

    A rate from 40 s on moves it to 40 s. The sender is told of both rates.
    """
    async with shaping(time_scale=2.0) as run:
        for iteration in range(2):
            _ = run.edge.send(iteration, block(1000), shaped=True)
        sender = run.edge.sender
        run.edge._writing = True  # or the pacer would look at once
        sender.due = run.clock.to_wall(50.0)
        for since, due in ((60.0, 50.0), (40.0, 40.0)):
            run.edge.notify(since)

            assert sender.notified == run.clock.to_wall(since)
            notified = [frame.notified for frame in run.edge._queue]
            assert notified == [sender.notified, -math.inf]
            assert sender.due == run.clock.to_wall(due)
        run.edge._writing = False


def test_the_send_log_speaks_emulated_seconds() -> None:
    rows = finished(SendLog(), 2)

    assert rows.tolist() == [
        [3.0, 0.0, 5.0, 2.0, 3.0, 0.0],
        [3.0, 1.0, 5.0, 2.0, 3.0, 0.25],
    ]


def test_the_send_log_keeps_the_newest_in_their_order() -> None:
    rows = finished(SendLog(), 20_000)

    assert rows[:, 1].tolist() == [*range(5_000, 20_000)]


def test_how_late_a_frame_left_counts_from_the_end_of_its_fluid() -> None:
    log = SendLog()
    frames = FrameLog()
    pacing = ffi.new("Pacing *", {"departures": frames.core, "sent": log.core})
    sender = ffi.new("Sender *", {"end": 10.0, "bucket": {"lost": 7.0}})
    for fluid_end, lateness in ((9.5, 0.5), (10.25, -0.25), (9.9995, 0.0005)):
        sender.fluid_end = fluid_end

        assert lib.finish(pacing, sender, True) == pytest.approx(lateness)
    sender.fluid_end = 0.0
    lib.finish(pacing, sender, False)

    assert (sender.late_sends, sender.max_behind, sender.lost_bytes) == (1, 0.5, 21.0)
    assert log.core.count == 3


def test_a_frame_is_noted_in_run_seconds_from_its_first_byte_to_its_last() -> None:
    """The run begins at 100 s, and a second of it takes two."""
    frames = FrameLog()
    frames.note(3, 1, 101.0, 104.0, 10)

    (piece,) = frames.pieces(RunClock(100.0, 2.0))
    assert np.frombuffer(piece, FRAME_ROWS).tolist() == [(3, 1, 0.5, 2.0, 10)]


def test_room_for_frames_is_made_where_it_is_missing_and_rows_stay() -> None:
    frames = FrameLog()
    first = frames.core.room
    frames.note(3, 1, 0.5, 0.75, 10)

    for count in (0, first - 1):
        frames.reserve(count)
        assert frames.core.room == first
    frames.reserve(first + 4)
    assert frames.core.room == 1 + first + 4
    assert (frames.core.row[0].edge, frames.core.row[0].iteration) == (3, 1)
