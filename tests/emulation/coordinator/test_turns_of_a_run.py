"""Turns of the coordinator's loop, by a clock that is set by hand."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.emulation.coordinator import RunSettings, ring_turns
from emu.emulation.coordinator import membership as membership_module
from emu.emulation.coordinator import process_specs as process_specs_module
from emu.emulation.coordinator import run as run_module
from emu.emulation.coordinator.board_record import BoardRecord
from emu.emulation.coordinator.company import Company
from emu.emulation.coordinator.membership import Membership
from emu.emulation.coordinator.peers import Severity
from emu.emulation.coordinator.process_specs import host_of_machines, receive_sizes
from emu.emulation.coordinator.rate_record import RateRecord
from emu.emulation.coordinator.ring_turns import RingTurns
from emu.emulation.coordinator.run import Coordinator
from emu.emulation.network.clock import RunClock
from emu.errors import NodeLost
from emu.prediction.core import ffi
from emu.problem import Cluster, Edge, Job, Machine, Placement, Problem, Task


def turning(
    kill_time: float, monkeypatch: pytest.MonkeyPatch, *, rings: bool
) -> tuple[Any, list[Any]]:
    """Return a coordinator that takes three turns, at 102, 102.2 and 102.25 s.

    And the list of what it does.
    """
    done: list[Any] = []
    now = [102.0]
    instants = [102.0, 102.2, 102.25]
    host = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(run_module, "this_host", host)

    async def events(wake: float) -> list[Any]:
        now[0] = instants.pop(0)
        return [("mail", wake)]

    async def kill(*_: object) -> None:
        raise NodeLost("killed")

    class Driver:
        is_watched = True

        @property
        def finished(self) -> bool:
            return not instants

        def begin(self, *given: Any) -> None:
            done.append(given)

        def settle(self, due: float, ahead: float) -> None:
            done.append(("settled", round(due, 9), round(ahead, 9)))

    def go_on(_now: float, *, is_watched: bool) -> None:
        done.append(("go on", is_watched))

    def take_mail(mail: Any, now: float) -> list[str]:
        done.append((*mail[0], round(now, 9)))
        return ["state"]

    def take_left(_rings: Any, _now: float, run_time: float) -> None:
        done.append(("left", round(run_time, 9)))

    turns = SimpleNamespace(go_on=go_on) if rings else None
    coordinator = SimpleNamespace(
        _owner={3: "w0", 5: "w1"},
        _kills=SimpleNamespace(due=SimpleNamespace(time=kill_time)),
        _membership=SimpleNamespace(
            lead_of=lambda name: f"lead of {name}", events=events
        ),
        _boards=SimpleNamespace(near=lambda: "boards"),
        _turns=SimpleNamespace(
            start=lambda: None,
            begin=lambda now: done.append(("turn", now)),
            end=lambda: None,
            keep_room=lambda: None,
        ),
        _driver=Driver(),
        _turns_by_rings=lambda _: contextlib.nullcontext(turns),
        _wake_time=lambda _clock, last_look: last_look,
        _take_mail=take_mail,
        _take_left=take_left,
        _keep=lambda states: done.append(states[0]),
        _look=lambda *_: done.append("look"),
        _kill=kill,
    )
    return coordinator, done


@pytest.mark.parametrize("rings", [False, True])
async def test_a_turn_takes_what_came_and_settles_what_is_due(
    monkeypatch: pytest.MonkeyPatch, *, rings: bool
) -> None:
    """An emulated second takes 4 s from 100 s on, so 50 ms ahead are 0.0125 s.

    What is not safe waits for 0.3 ms, or 0.000075 s; a look is due at 102.25 s, and
    nothing is settled beyond the time of a kill.
    """
    coordinator, done = turning(0.5626, monkeypatch, rings=rings)
    await Coordinator._drive(coordinator, RunClock(100.0, 4.0))

    leads = {3: "lead of w0", 5: "lead of w1"}
    expected: list[Any] = [(leads, "boards")]
    for now, time, ahead in (
        (102.0, 0.5, 0.5125),
        (102.2, 0.55, 0.5625),
        (102.25, 0.5625, 0.5626),
    ):
        expected.append(("turn", now))
        expected += [("left", time)] * rings
        due = round(time - 0.000075, 9)
        expected += [("mail", 102.0, time), ("settled", due, ahead)]
        expected += [("go on", True)] * rings
        expected.append("state")
    assert done == [*expected, "look"]


async def test_what_is_due_to_be_killed_is_when_its_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """States that came are kept before; nothing is settled any more."""
    coordinator, done = turning(0.5, monkeypatch, rings=False)
    with pytest.raises(NodeLost, match="killed"):
        await Coordinator._drive(coordinator, RunClock(100.0, 4.0))
    assert done[1:] == [("turn", 102.0), ("mail", 102.0, 0.5), "state"]


def test_machines_go_where_the_larger_of_their_shares_is_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Payload of 60, 20 and 20 %, processes of 10, 45 and 45 %.

    The first goes to a, the second to b, which has 90 % of its share of processes then;
    the third makes 180 % of that there, or 160 % of the payload of a.
    """
    weights = np.array([[0.6, 0.1], [0.2, 0.45], [0.2, 0.45]])
    monkeypatch.setattr(process_specs_module, "_machine_weights", lambda *_: weights)
    machines = tuple(Machine(f"m{n}", 1.0, 1.0) for n in range(3))
    problem = Problem(Cluster(machines), Job((Task("t", "t"),), (), 1), Placement((0,)))
    found = host_of_machines(problem, np.zeros((0, 1)), {"b": 2, "a": 2}, {})
    assert found == ["a", "b", "a"]


def test_a_part_of_a_byte_takes_a_byte() -> None:
    problem = Problem(
        Cluster((Machine("m0", 9.0, 9.0), Machine("m1", 9.0, 9.0))),
        Job((Task("a", "x"), Task("b", "x", program="own:Computes")), (Edge(0, 1),), 2),
        Placement((0, 1)),
    )
    volumes = np.array([[20.5, 0.25]])
    sizes = receive_sizes(problem, [1], volumes, RunSettings(byte_scale=0.5))
    assert sizes == [11, 1]


def test_a_record_has_room_for_one_more_call_of_the_core() -> None:
    """It is packed from 1024 rates on; one less, and a call of 7 fits."""
    assert RateRecord(7).core.room == 1024 + 7


async def test_the_first_sign_of_an_error_may_be_some_time_ago(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    words: Any = SimpleNamespace(doing=lambda _: "", story=lambda: "")
    found: Any = Membership(RunSettings(), tmp_path / "log", words)
    host = SimpleNamespace(monotonic=lambda: 50.0)
    monkeypatch.setattr(membership_module, "this_host", host)
    found._report(Severity.KILLED, NodeLost("silent"), ago=6.0)
    found._report(Severity.FAILED, NodeLost("broken"))
    reports = await found._mail.everything(0.0)
    assert [report.seen for report in reports] == [44.0, 50.0]


@pytest.mark.parametrize(
    ("stays", "company"), [(False, True), (True, True), (False, False)]
)
async def test_members_of_the_run_before_are_let_go_before_it_listens(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, *, stays: bool, company: bool
) -> None:
    """A company lets former members go first; a run that stays listens already."""
    done: list[Any] = []

    def step(name: str, outcome: Any = None) -> Any:
        async def take(*_: object) -> Any:
            done.append(name)
            return outcome

        return take

    keeper: Any = SimpleNamespace(dismiss_former=step("former"))
    settings = RunSettings(company=keeper if company else None)
    words: Any = SimpleNamespace(doing=lambda _: "", story=lambda: "")
    found: Any = Membership(settings, tmp_path / "log", words)
    found.stays = stays
    found._server = SimpleNamespace(start=step("listens", ("h", 9)))
    found.launcher = SimpleNamespace(
        start=step("launched"), wait_for_end=step("ends", "gone")
    )
    monkeypatch.setattr(found, "_await_end", step("watched"))
    assert await found.__aenter__() is found
    if stays:
        assert done == []
        return
    assert done == [*["former"] * company, "listens", "launched"]
    assert found.address == ("h", 9)
    await found._watching


@pytest.mark.parametrize(
    ("left", "finished", "wakes"), [(0, False, 0), (0, True, 1), (2, False, 1)]
)
def test_a_turn_that_leaves_something_or_ends_the_run_wakes_the_coordinator(
    left: int, wakes: int, monkeypatch: pytest.MonkeyPatch, *, finished: bool
) -> None:
    """The next one is taken when nothing is left; until then none is watched for."""
    taken: list[Any] = []

    def take_ring_turn(core: Any) -> int:
        taken.append(core)
        return left

    core = SimpleNamespace(take_ring_turn=take_ring_turn)
    monkeypatch.setattr(ring_turns, "lib", core)
    woken: list[bool] = []
    removed: list[int] = []
    turns: Any = object.__new__(RingTurns)
    turns.left = 0
    turns.core = SimpleNamespace(epoll=9)
    turns._is_watching = True
    turns._turn = SimpleNamespace(finished=finished)
    turns._membership = SimpleNamespace(wake=lambda: woken.append(True))
    turns._loop = SimpleNamespace(remove_reader=removed.append)
    turns._take_turn()
    assert (turns.left, len(woken), len(taken), removed) == (left, wakes, 1, [])
    turns._take_turn()
    is_left = left > 0
    assert len(taken) == 2 - is_left
    assert removed == [9] * is_left
    assert turns._is_watching is not is_left


@pytest.mark.parametrize("stays", [True, False])
async def test_members_that_stay_are_dismissed_and_others_have_gone(
    *, stays: bool
) -> None:
    dismissed: list[str] = []

    def members(name: str) -> Any:
        async def dismiss() -> None:
            dismissed.append(name)

        return SimpleNamespace(stays=stays, dismiss=dismiss)

    company: Any = object.__new__(Company)
    company._former, company._members = members("former"), members("present")
    await company.dismiss()
    assert dismissed == ["former", "present"] * stays
    assert company._former is None


@pytest.mark.parametrize(("edges", "fits"), [((7, 7), True), ((7, 6), False)])
def test_a_board_has_a_place_for_every_edge(
    edges: tuple[int, ...], *, fits: bool
) -> None:
    """The second of two is one short; neither is shown on then."""
    record = BoardRecord(7)
    boards: list[Any] = [SimpleNamespace(edges=n, address=ffi.NULL) for n in edges]
    if fits:
        record.show_on(boards)
    else:
        with pytest.raises(ValueError, match="a board has fewer than 7 edges"):
            record.show_on(boards)
    assert record.core.count == 2 * fits
