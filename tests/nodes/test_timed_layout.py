"""Layout of a process for the core: tasks and edges that differ in every field."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.emulation.network.pacer import Pacer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.tcp_info import RowLog
from emu.emulation.wire.process_spec import HostSide, ProcessSpec
from emu.prediction.core import ffi
from emu_nodes.program import task_brief
from emu_nodes.task_runner import EdgeEnds
from emu_nodes.timed import POOL, Timed
from emu_nodes.timed_layout import TimedLayout, _add_newest, find_timed_programs
from tests.emulation.launch.specs import edge_end, process_spec, process_task

#: Task 5 reads edges 3 and 4, and sends over 7, to task 8 beside it, and over 9; task 8
#: reads edge 7 and sends over 6, of the longest payloads.
FIRST = process_task(
    "emu_nodes.timed:Timed",
    task=5,
    times=[0.5, 0.25, 0.75],
    inputs=(
        edge_end(3, lag=1, sent=2, latency=0.125),
        edge_end(4, lag=2, sent=1, latest=True),
    ),
    outputs=(
        edge_end(7, sent=3, peer_process="w0", shaped=False),
        edge_end(9, sent=2),
    ),
    settings={"payload_bytes": [[10, 20, 30], [40, 50]]},
    speed_times=[0.0, 2.0, 6.0],
    speed_shares=[1.0, 0.5, 0.75],
)
SECOND = process_task(
    "emu_nodes.timed:Timed",
    task=8,
    iterations=2,
    times=[1.5, 1.25],
    inputs=(edge_end(7, sent=3, peer_process="w0", shaped=False),),
    outputs=(edge_end(6, sent=1),),
    settings={"payload_bytes": [[70_000]]},
    speed_times=[0.0],
    speed_shares=[1.0],
)
EDGES = 12


@contextlib.contextmanager
def ends_of(spec: ProcessSpec) -> Iterator[tuple[dict[int, Any], EdgeEnds, Pacer]]:
    """Yield the programs of a process, its ends of edges, and its pacer."""
    programs = {
        task.task: Timed(task_brief(task, spec.job_settings, spec.first), {})
        for task in spec.tasks
    }
    with contextlib.ExitStack() as stack:
        board = RateBoard.create(EDGES)
        stack.callback(board.close)
        pacer = Pacer(board)
        stack.callback(pacer.close)
        yield programs, EdgeEnds(spec, lambda _: None, lambda _: None), pacer


class _More(Timed):
    """A program that may do more than send bytes of its seed."""


def spec_of() -> ProcessSpec:
    host = HostSide(certificate=b"", coordinator=("there", 1), bind="", board="")
    spec = process_spec("w0", FIRST, SECOND, job_settings={"seed": 77})
    return replace(spec, first=10, host=host)


async def test_the_core_has_every_field_of_tasks_and_edges() -> None:
    spec = spec_of()
    with ends_of(spec) as (programs, ends, pacer):
        layout = TimedLayout(spec, programs, ends, pacer)
        core = layout.core

        assert (core.tasks, core.inlets, core.outlets) == (2, 3, 3)
        assert (core.seed, core.period, core.first) == (77, POOL, 10)
        assert math.isinf(core.due)
        tasks = [core.task[place] for place in range(2)]
        assert [task.task for task in tasks] == [5, 8]
        assert [task.iterations for task in tasks] == [3, 2]
        assert [(task.first_inlet, task.inlets) for task in tasks] == [(0, 2), (2, 1)]
        assert [(task.first_outlet, task.outlets) for task in tasks] == [(0, 2), (2, 1)]
        assert ffi.unpack(tasks[0].time, 3) == [0.5, 0.25, 0.75]
        assert ffi.unpack(tasks[1].time, 2) == [1.5, 1.25]
        assert [math.isnan(task.since) for task in tasks] == [True, True]
        assert [task.next for task in tasks] == [math.inf, math.inf]
        speeds = tasks[0].speeds
        assert ffi.unpack(speeds.start, 2) == [0, 3]
        assert ffi.unpack(speeds.time, 3) == [0.0, 2.0, 6.0]
        assert ffi.unpack(speeds.share, 3) == [1.0, 0.5, 0.75]
        await ends.aclose()


async def test_places_of_edges_go_on_from_task_to_task() -> None:
    third = replace(SECOND, task=2, inputs=(edge_end(8),), outputs=(edge_end(1),))
    spec = spec_of()
    spec = replace(spec, tasks=(*spec.tasks, third))
    with ends_of(spec) as (programs, ends, pacer):
        core = TimedLayout(spec, programs, ends, pacer).core

        tasks = [core.task[place] for place in range(3)]
        assert [task.first_inlet for task in tasks] == [0, 2, 3]
        assert [task.first_outlet for task in tasks] == [0, 2, 3]
        assert core.inlet[tasks[2].first_inlet].edge == 8
        assert core.outlet[tasks[2].first_outlet].edge == 1
        await ends.aclose()


async def test_edges_within_a_process_lead_from_an_outlet_to_an_inlet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emu_nodes.timed._pools", {})
    spec = spec_of()
    with ends_of(spec) as (programs, ends, pacer):
        sender = ffi.new("Sender *")
        connection: Any = SimpleNamespace(sender=sender)
        connected: Any = SimpleNamespace(
            connections={9: connection}, server=ends.server, pool=ends.pool
        )
        layout = TimedLayout(spec, programs, connected, pacer)
        core = layout.core

        inlets = [core.inlet[place] for place in range(3)]
        assert [inlet.edge for inlet in inlets] == [3, 4, 7]
        assert [inlet.task for inlet in inlets] == [0, 0, 1]
        assert [inlet.lag for inlet in inlets] == [1, 2, 0]
        assert [inlet.latest for inlet in inlets] == [False, True, False]
        assert [inlet.latency for inlet in inlets] == [0.125, 0.0, 0.0]
        assert [inlet.sent for inlet in inlets] == [2, 1, 3]
        assert [(inlet.newest, inlet.needed) for inlet in inlets] == [(-1, -1)] * 3
        for inlet in inlets:
            arrived = ffi.unpack(inlet.arrived, inlet.sent)
            assert np.isnan(arrived).all()
            assert ffi.unpack(inlet.volume, inlet.sent) == [0] * inlet.sent

        outlets = [core.outlet[place] for place in range(3)]
        assert [outlet.edge for outlet in outlets] == [7, 9, 6]
        assert [outlet.inlet for outlet in outlets] == [2, -1, -1]
        assert [outlet.sender for outlet in outlets] == [ffi.NULL, sender, ffi.NULL]
        assert [outlet.shaped for outlet in outlets] == [False, True, True]
        sizes = [ffi.unpack(outlet.size, outlet.sent) for outlet in outlets]
        assert sizes == [[10, 20, 30], [40, 50], [70_000]]
        places = [-1] * EDGES
        places[7], places[9], places[6] = 0, 1, 2
        assert ffi.unpack(core.outlet_of, EDGES) == places
        # The longest payload may begin anywhere in the period: task 8 has it.
        assert len(programs[5].pool) < len(programs[8].pool) == POOL + 70_000
        assert int(ffi.cast("uintptr_t", core.pool)) == programs[8].pool.ctypes.data
        await ends.aclose()


async def test_notes_are_taken_once() -> None:
    spec = spec_of()
    with ends_of(spec) as (programs, ends, pacer):
        layout = TimedLayout(spec, programs, ends, pacer)
        assert layout.take_notes() == b""
        layout.notes[:4] = [9, 8, 7, 6]
        layout.core.notes_size = 3

        assert layout.take_notes() == bytes([9, 8, 7])
        assert layout.take_notes() == b""
        await ends.aclose()


@pytest.mark.parametrize(("least", "room"), [(500, 500), (0, 64 + 3 * 16)])
async def test_notes_have_room_for_an_end_and_all_that_it_sends(
    least: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emu_nodes.timed_layout._NOTES", least)
    spec = spec_of()
    with ends_of(spec) as (programs, ends, pacer):
        layout = TimedLayout(spec, programs, ends, pacer)
        assert (layout.core.notes_room, layout.notes.size) == (room, room)
        await ends.aclose()


async def test_a_process_without_edges_has_room_for_pointers() -> None:
    spec = replace(
        spec_of(), tasks=(replace(SECOND, inputs=(), outputs=(), settings={}),)
    )
    with ends_of(spec) as (programs, ends, pacer):
        core = TimedLayout(spec, programs, ends, pacer).core
        assert (core.inlets, core.outlets) == (0, 0)
        assert core.inlet != ffi.NULL
        await ends.aclose()


async def test_who_has_a_connection_of_tls_or_another_clock_is_left_to_python() -> None:
    spec = spec_of()
    with ends_of(spec) as (programs, ends, pacer):
        assert [*find_timed_programs(spec, programs, ends, pacer)] == [5, 8]

        # Of several connections one is of no socket of the kernel's own.
        descriptors = {9: 0, 6: -1}
        connections: dict[int, Any] = {
            edge: SimpleNamespace(sender=SimpleNamespace(fd=descriptor))
            for edge, descriptor in descriptors.items()
        }
        known: Any = SimpleNamespace(connections=connections, server=ends.server)
        assert find_timed_programs(spec, programs, known, pacer) == {}
        connections[6] = connections[9]
        assert len(find_timed_programs(spec, programs, known, pacer)) == 2
        # Nor one of several receivers.
        for is_plain, count in ((True, 2), (False, 0)):
            receivers = [SimpleNamespace(is_plain=plain) for plain in (is_plain, True)]
            server = SimpleNamespace(connected=dict(enumerate(receivers)))
            receiving: Any = SimpleNamespace(connections={}, server=server)
            found = find_timed_programs(spec, programs, receiving, pacer)
            assert len(found) == count
        virtual: Any = SimpleNamespace(device="virtual time")
        assert find_timed_programs(spec, programs, ends, virtual) == {}
        programs[8] = _More(task_brief(SECOND, spec.job_settings, spec.first), {})
        assert find_timed_programs(spec, programs, ends, pacer) == {}
        await ends.aclose()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("count", "rows"), [(0, []), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (6, [2, 3, 0, 1])]
)
def test_a_ring_has_the_newest_rows_the_oldest_first(
    count: int, rows: list[int]
) -> None:
    log = RowLog()
    ring = np.array([[10, 11], [20, 21], [30, 31], [40, 41]], np.uint8)

    _add_newest(log, ring, count)

    expected = b"".join(ring[row].tobytes() for row in rows)
    assert b"".join(log.pieces()) == expected
