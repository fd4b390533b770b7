"""Runs whose processes speak by rings, and those in which they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from emu.emulation.coordinator import EmulatedRun, membership
from emu.emulation.coordinator.ring_turns import RingTurns
from emu.emulation.network.rings import Rings
from emu.emulation.wire.messages import Message, Orders
from emu.errors import EmulatorError
from emu.prediction.core import lib
from tests.emulation.coordinator.emulated import golden, run
from tests.leftovers import Leftovers

pytestmark = [pytest.mark.emulation, pytest.mark.untimed, pytest.mark.timeout(120)]


def emulated(tmp_path: Path) -> EmulatedRun:
    """Emulate the golden example to its end."""
    problem, realization = golden(3)
    found = run(problem, realization, tmp_path)
    assert np.isfinite(found.schedule.task_end).all()
    return found


def count_messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the kinds of messages that a run will send over connections."""
    kinds: list[str] = []
    send = membership.Membership.send

    def counted(self: membership.Membership, process: str, message: Message) -> None:
        kinds.append(type(message).__name__)
        send(self, process, message)

    monkeypatch.setattr(membership.Membership, "send", counted)
    return kinds


def test_orders_go_by_rings_where_all_are_of_one_host(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leftovers: Leftovers,
) -> None:
    kinds = count_messages(monkeypatch)
    emulated(tmp_path)
    leftovers.note()
    assert "Begin" in kinds
    assert Orders.__name__ not in kinds


def test_rings_that_cannot_be_joined_are_done_without(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leftovers: Leftovers,
) -> None:
    def refuse(_pid: int, _numbers: Sequence[object]) -> Rings:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(membership, "join_rings", refuse)
    kinds = count_messages(monkeypatch)
    emulated(tmp_path)
    leftovers.note()
    assert Orders.__name__ in kinds
    log = (tmp_path / "agent.log").read_text()
    assert "is ordered over its connection: [Errno 12]" in log


def spoil(monkeypatch: pytest.MonkeyPatch, place: int, value: int) -> None:
    """Have a run find nonsense in its rings, at a place of their memory."""
    take_turn = RingTurns._take_turn

    def take_spoilt_turn(self: RingTurns) -> None:
        for rings in self._membership.rings.values():
            rings._memory[place : place + 8] = value.to_bytes(8, "little")
        take_turn(self)

    monkeypatch.setattr(RingTurns, "_take_turn", take_spoilt_turn)


def test_nonsense_in_a_ring_blames_its_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leftovers: Leftovers,
) -> None:
    """More ends than fit seem to be there."""
    spoil(monkeypatch, place=0, value=1 << 50)
    with pytest.raises(EmulatorError, match=r"process .*: the counters of its ring"):
        emulated(tmp_path)
    leftovers.note()


def test_ends_that_are_none_blame_their_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leftovers: Leftovers,
) -> None:
    """The first note has a kind that there is not."""
    spoil(monkeypatch, place=int(lib.RING_HEAD), value=99)
    with pytest.raises(EmulatorError, match="a note of kind 99 is no end"):
        emulated(tmp_path)
    leftovers.note()
