"""Reports of members of a run: which is the cause, and which are refused."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emu.emulation.coordinator import RunSettings
from emu.emulation.coordinator import membership as membership_module
from emu.emulation.coordinator.membership import Membership
from emu.emulation.coordinator.peers import Process, Report, Severity
from emu.emulation.launch.launcher import ExternalLauncher
from emu.emulation.network.rings import SMALLEST, create_rings, join_rings
from emu.emulation.shaping import Tls
from emu.emulation.wire.messages import Failed, Message, Outcome, ProcessHello, pack
from emu.errors import NodeLost, NodeMisbehaved
from emu.host.this_host import this_host


def membership_of(folder: Path) -> Membership:
    """Return the members of a run before the first process has joined."""
    deadlines = SimpleNamespace(doing=lambda _: "", story=lambda: "")
    return Membership(RunSettings(), folder / "log", cast("Any", deadlines))


@pytest.mark.parametrize(
    ("listen", "own_network", "tls", "encrypted"),
    [
        ("127.0.0.1", False, "control", False),
        ("127.0.0.1", False, "all", True),
        ("10.0.0.1", False, "control", True),
        ("10.0.0.1", True, "control", False),
    ],
)
def test_what_leaves_this_host_is_encrypted(
    tmp_path: Path, listen: str, tls: Tls, *, own_network: bool, encrypted: bool
) -> None:
    """A socket that was handed over listens in a network of our own."""
    deadlines = SimpleNamespace(doing=lambda _: "", story=lambda: "")
    with contextlib.closing(socket.socket()) as sock:
        handed_over = sock if own_network else None
        settings = RunSettings(listen=listen, listening=handed_over, tls=tls)
        membership = Membership(settings, tmp_path / "log", cast("Any", deadlines))

    assert (membership._server._tls is not None) == encrypted


async def test_who_is_woken_for_something_else_waits_for_the_cause(
    tmp_path: Path,
) -> None:
    """A connection ends, the core takes a turn, and the agent says who was killed."""
    membership = membership_of(tmp_path)
    loop = asyncio.get_running_loop()
    membership._report(Severity.GONE, NodeLost("it is gone"))
    loop.call_later(0.01, membership.wake)
    killed = NodeLost("it was killed")
    loop.call_later(0.03, membership._report, Severity.KILLED, killed)
    with pytest.raises(NodeLost, match="it was killed"):
        await membership.events(math.inf)
    membership._mail.close()


async def test_who_was_killed_is_named_without_waiting_for_another_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_module, "_CAUSE_SHOWS", math.inf)
    membership = membership_of(tmp_path)
    membership._report(Severity.KILLED, NodeLost("it was killed"), ago=5.0)
    reported = this_host.monotonic()
    with pytest.raises(NodeLost, match="it was killed") as caught:
        await membership.events(math.inf)
    membership._mail.close()

    assert reported - 10.0 < caught.value.seen < reported


@pytest.mark.parametrize(("token", "length"), [("", 32), ("of-this-run", 11)])
def test_a_run_draws_a_token_where_none_is_stated(
    tmp_path: Path, token: str, length: int
) -> None:
    deadlines = SimpleNamespace(doing=lambda _: "", story=lambda: "")
    settings = RunSettings(token=token)
    membership = Membership(settings, tmp_path / "log", cast("Any", deadlines))

    assert len(membership.token) == length
    assert membership.token.startswith(token)


@pytest.mark.parametrize("last", ["outcome", "failure", "beginning"])
async def test_a_process_may_go_after_its_last_word(tmp_path: Path, last: str) -> None:
    """Before it, a connection that ends is the sign of a death."""
    membership = membership_of(tmp_path)
    words: dict[str, list[Message]] = {
        "outcome": [Outcome({})],
        "failure": [Failed("ValueError", "it cannot", "")],
        "beginning": [],
    }

    async def follow(hear: Any) -> None:
        for message in words[last]:
            hear(pack(message))
        raise NodeLost("the connection has ended")

    connection = cast("Any", SimpleNamespace(follow=follow))
    process = Process("w0", 1, "w0", connection)
    await membership._follow_process(process)
    mail = await membership._mail.everything(0.0)
    reported = [item.severity for item in mail if isinstance(item, Report)]

    assert process.gone
    assert (Severity.GONE in reported) == (last == "beginning")


def test_who_shares_a_process_is_lost_with_it(tmp_path: Path) -> None:
    """The first speaks for the second; the third has a process of its own."""
    membership = membership_of(tmp_path)
    for name, lead in (("a", "a"), ("b", "a"), ("c", "c")):
        membership.processes[name] = Process(name, 1, lead, cast("Any", None))

    assert membership._lose("b", "was killed").processes == ("a", "b")
    assert membership._lose("c", "was killed").processes == ("c",)
    assert membership._lose("d", "was killed").processes == ("d",)


def test_orders_go_by_rings_where_a_process_has_them(tmp_path: Path) -> None:
    membership = membership_of(tmp_path)
    sent: list[dict[str, object]] = []
    written: list[bytes] = []
    connection = cast("Any", SimpleNamespace(send=sent.append))
    process = Process("w0", 1, "w0", connection)
    membership.processes["w0"] = process
    membership.order("w0", b"first")
    process.rings = cast("Any", SimpleNamespace(write=written.append))
    membership.order("w0", b"second")

    assert [message["notes"] for message in sent] == [b"first"]
    assert written == [b"second"]


@pytest.mark.parametrize("embedded", [True, False])
def test_rings_are_joined_on_this_host_alone(tmp_path: Path, *, embedded: bool) -> None:
    launcher = None if embedded else ExternalLauncher(1)
    deadlines = SimpleNamespace(doing=lambda _: "", story=lambda: "")
    settings = RunSettings(launcher=launcher)
    membership = Membership(settings, tmp_path / "log", cast("Any", deadlines))
    far, numbers = create_rings(SMALLEST)
    with contextlib.closing(far):
        hello = ProcessHello(os.getpid(), "w0", numbers)
        rings = membership._join_rings("w0", hello)

        assert (rings is not None) == embedded
        if rings is not None:
            rings.close()


def test_ends_of_no_run_are_refused_before_the_next(tmp_path: Path) -> None:
    membership = membership_of(tmp_path)
    far, numbers = create_rings(SMALLEST)
    with contextlib.closing(far):
        near = join_rings(os.getpid(), numbers)
        with contextlib.closing(near):
            sent: list[object] = []
            connection = cast("Any", SimpleNamespace(send=sent.append))
            process = Process("w0", 1, "w0", connection, near)
            membership.processes["w0"] = process
            membership.begin(1.0)
            assert len(sent) == 1

            far.write(b"an end of a run that is over")
            with pytest.raises(NodeMisbehaved, match="process w0 reported ends"):
                membership.begin(2.0)
