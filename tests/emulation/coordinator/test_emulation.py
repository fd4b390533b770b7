"""Real processes and sockets: all the ways in which a run can end."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from emu.emulation.coordinator import RunSettings
from emu.emulation.coordinator.process_specs import process_specs
from emu.emulation.launch.launcher import LocalLauncher
from emu.emulation.wire.frame_layout import VERSION, Kind
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import DataError, DeadlineExceeded, EmulatorError, NodeLost, RunError
from emu.problem import (
    Problem,
    Realization,
)
from emu.scenario.own_rules import register_program
from tests.emulation.coordinator.emulated import Acts, golden, named, run
from tests.emulation.wire.prefix import prefix_of
from tests.leftovers import Leftovers

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.untimed,
    pytest.mark.timeout(180),
]


def ends(
    problem: Problem,
    realization: Realization,
    observer: Acts,
    tmp_path: Path,
    error: type[BaseException] = NodeLost,
    **settings: Any,
) -> str:
    """Run to the error that follows the observer's act; return its text."""
    with pytest.raises(error) as caught:
        run(problem, realization, tmp_path, observer, **settings)
    taken = time.monotonic() - observer.at
    print(f"ended after {taken:.2f} s: {caught.value}")  # noqa: T201
    assert taken < 10, "5 s are promised"
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("moment", "victim", "expected"),
    [
        ("flow s1->w0", "s1", r"process s1 was killed by SIGKILL \(.*s1->w0 of iter"),
        ("task w0 0", "s0", r"process s0 was killed by SIGKILL \(.*iteration \d"),
        ("joined", "p0", r"process p0 was killed by SIGKILL \(task p0 before iter"),
        ("task g0 0", "agent", r"the agent of this host was killed by SIGKILL.*iterat"),
        ("listening", "agent", "the agent of this host was killed by SIGKILL"),
        ("task g0 0", "fork server", r"the fork server was killed by SIGKILL.*iterat"),
        ("task p0 2", "w0", r"process w0 was killed by SIGKILL"),
    ],
)
def test_kill(
    moment: str, victim: str, expected: str, tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = golden(3)

    def kill() -> None:
        named(leftovers.note(), victim).kill()

    told = ends(problem, realization, Acts(moment, kill, problem), tmp_path)

    assert re.search(expected, told)


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("listening", signal.SIGINT),
        ("joined", signal.SIGTERM),
        ("task g0 0", signal.SIGINT),
        ("task p0 2", signal.SIGINT),
    ],
)
def test_interrupt(
    moment: str, number: signal.Signals, tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = golden(3)

    def interrupt() -> None:
        leftovers.note()
        signal.raise_signal(number)

    before = signal.getsignal(number)  # SIGINT is ignored where a shell says ``&``
    observer = Acts(moment, interrupt, problem)
    told = ends(problem, realization, observer, tmp_path, KeyboardInterrupt)

    assert told.startswith(f"interrupted by {number.name} while ")
    assert signal.getsignal(number) is before


def test_interrupt_while_all_leave(
    tmp_path: Path, leftovers: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher still ends and reaps every process that it started."""
    problem, realization = golden(3)
    close = LocalLauncher.aclose

    async def interrupt(launcher: LocalLauncher, grace: float) -> None:
        leftovers.note()
        signal.raise_signal(signal.SIGINT)
        await close(launcher, grace)

    monkeypatch.setattr(LocalLauncher, "aclose", interrupt)
    observer = Acts("task p0 2", lambda: None, problem)
    told = ends(problem, realization, observer, tmp_path, KeyboardInterrupt)

    assert told.startswith("interrupted by SIGINT while ")


SCRIPT = """
import sys
import threading
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.emulation.coordinator.emulated import Acts, golden
from emu.emulation.coordinator import EmulatedRun, RunSettings, emulate
problem, realization = golden(3)
acts = Acts(sys.argv[3], lambda: print("now", flush=True), problem)
settings = RunSettings(time_scale=1.0, byte_scale=20000.0, heartbeat_timeout=2.0)
log = Path(sys.argv[2])
emulate(problem, "oes", settings, realization, log=log, observer=acts)
"""


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("listening", signal.SIGKILL),
        ("began", signal.SIGKILL),
        ("joined", signal.SIGSTOP),
    ],
)
def test_kill_or_stop_of_the_coordinator(
    moment: str, number: signal.Signals, tmp_path: Path, leftovers: Leftovers
) -> None:
    """All others end: a dead one is seen at once, a stopped one by its silence."""
    arguments = [str(Path(__file__).parents[3]), str(tmp_path / "agent.log"), moment]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, text=True
    ) as coordinator:
        assert coordinator.stdout is not None
        assert coordinator.stdout.readline() == "now\n"
        leftovers.note()
        coordinator.send_signal(number)
        begun, itself = time.monotonic(), {psutil.Process(coordinator.pid)}
        while {*leftovers.alive()} - itself and time.monotonic() - begun < 10:
            time.sleep(0.02)
        others = {*leftovers.alive()} - itself
        print(f"all gone after {time.monotonic() - begun:.2f} s")  # noqa: T201
        coordinator.kill()

    assert others == set()


@pytest.mark.parametrize(
    ("task", "program", "settings", "error", "expected"),
    [
        ("w0", "Raises", {}, RunError, "w0 .*iteration 1.*ArithmeticError: the loss"),
        ("s0", "Forgets", {}, RunError, "s0 .*iteration 0.*nothing for w0"),
        (
            "w0",
            "Hangs",
            {"deadline": 4.0},
            DeadlineExceeded,
            "task w0 to end iteration 1 since",
        ),
        ("g0", "Loads", {"deadline": 4.0}, DeadlineExceeded, "g0 did not load.*iter"),
        (
            "g0",
            "Scribbles",
            {},
            RunError,
            r"s[01] .*iteration \d.*g0( came with other bytes|->s[01]: a frame was)",
        ),
        ("g0", "Absent", {}, RunError, "g0 .*Absent"),
    ],
)
def test_program_goes_wrong(
    task: str,
    program: str,
    settings: dict[str, Any],
    error: type[EmulatorError],
    expected: str,
    tmp_path: Path,
    leftovers: Leftovers,
) -> None:
    problem, realization = golden(3, programs={task: f"sabotage:{program}"})
    note = Acts("joined", leftovers.note, problem)
    allow = (f"sabotage:{program}",)
    with pytest.raises(error) as caught:
        run(problem, realization, tmp_path, note, allow=allow, **settings)

    assert re.search(expected, str(caught.value))


def test_program_that_the_host_does_not_allow(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = golden(3, programs={"s0": "sabotage:Raises"})
    with pytest.raises(
        RunError, match=r"agent localhost .*sabotage:Raises is not allowed"
    ):
        run(problem, realization, tmp_path)
    leftovers.note()


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ("raise RuntimeError('on purpose')", "RuntimeError: on purpose (line 7 of"),
        ("while True: pass", "no answer within 0.5 s (line 7 of"),
        ("return [1e9 for _ in flows]", "gives the flows over m"),
        ("return []", "returns 0 rates for"),
    ],
    ids=["raises", "never returns", "too much", "too few"],
)
def test_a_rule_of_ones_own_that_fails_ends_the_run(
    failing: str,
    said: str,
    tmp_path: Path,
    leftovers: Leftovers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emu.scenario.own_rules.DEADLINE", 0.5)
    text = f"""
class Mine:
    asked = 0
    def rates(self, flows, capacity):
        self.asked += 1
        if self.asked > 5:
            {failing}
        links = [link for flow in flows for link in flow.links]
        return [min(capacity[l] / links.count(l) for l in f.links) for f in flows]
"""
    problem, realization = golden(3)
    note = Acts("joined", leftovers.note, problem)
    with pytest.raises(DataError) as caught:
        run(
            problem, realization, tmp_path, note, register_program("mine.py:Mine", text)
        )

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_coordinator_that_stood_still_is_named(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = golden(3)

    def stand_still() -> None:
        leftovers.note()
        time.sleep(3.0)

    pauses = Acts("task g0 0", stand_still, problem)
    with pytest.raises(RunError) as caught:
        run(
            problem,
            realization,
            tmp_path,
            pauses,
            time_scale=0.2,
            heartbeat_timeout=2.0,
        )

    said = re.search(
        r"the coordinator, this process, stood still for (\d+\.\d) s.*iteration",
        str(caught.value),
    )
    assert said is not None
    assert float(said[1]) >= 3.0


def test_process_that_never_connects(
    tmp_path: Path, leftovers: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget_one(*arguments: Any) -> list[ProcessSpec]:
        return [one for one in process_specs(*arguments) if one.process != "s1"]

    monkeypatch.setattr("emu.emulation.coordinator.run.process_specs", forget_one)
    problem, realization = golden(1)
    with pytest.raises(
        DeadlineExceeded, match="waited 4 s of wall time: s1 did not come up"
    ):
        run(problem, realization, tmp_path, deadline=4.0)
    leftovers.note()


def test_agent_that_stood_still_for_less_than_the_silence_does_no_harm(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    """5 s of silence ended runs: a loaded host or a suspended laptop was enough."""
    assert RunSettings().heartbeat_timeout > 8
    problem, realization = golden(1)

    def pause() -> None:
        agent = named(leftovers.note(), "agent")
        agent.suspend()
        threading.Timer(3.0, agent.resume).start()

    emulated = run(
        problem, realization, tmp_path, Acts("began", pause, problem), time_scale=0.4
    )

    assert emulated.schedule.makespan == pytest.approx(17.0, rel=0.2)
    assert re.search(
        r"agent localhost at .* stood still for [23]\.\d s",
        (tmp_path / "agent.log").read_text(),
    )


def test_silent_agent_ends_the_run_with_its_name_and_how_long(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = golden(3)

    def stop() -> None:
        named(leftovers.note(), "agent").suspend()

    with pytest.raises(
        NodeLost, match=r"agent localhost at .* has been silent for 2 s of wall"
    ):
        run(
            problem,
            realization,
            tmp_path,
            Acts("began", stop, problem),
            time_scale=1.0,
            heartbeat_timeout=2.0,
        )


GARBAGE = {
    "random": np.random.default_rng(7).bytes(4096),
    "long": b"\xff" * 64,
    "oversized": prefix_of(kind=Kind.HELLO, header=2**32 - 1, body=2**32 - 1),
    "of another version": prefix_of(kind=Kind.HELLO, version=VERSION + 1) + bytes(9),
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "truncated": b"\x00" * 5,
}


def test_strangers_do_no_harm(tmp_path: Path, leftovers: Leftovers) -> None:
    problem, realization = golden(1)
    ports: list[int] = []

    def throw() -> None:
        ports.extend(
            connection.laddr.port
            for process in leftovers.note()
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        )
        for port in [*ports, observer.port]:
            for garbage in GARBAGE.values():
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(garbage)

    observer = Acts("began", throw, problem)
    emulated = run(problem, realization, tmp_path, observer, time_scale=0.3)

    assert len(ports) == 6
    assert emulated.schedule.makespan == pytest.approx(17.0, rel=0.2)
    rejected = {s["received"]["rejections"] for s in emulated.statistics.values()}
    assert rejected == {len(GARBAGE)}
