"""Signals at any moment of a command: one line, status 130, nothing half-written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from emu.host.interruption import StopWatch
from tests import draws
from tests.leftovers import Leftovers

ROOT = Path(__file__).parents[2]
# So many iterations of the job that the search goes on for seconds on any computer.
SEARCH = ["place", "golden", "--set", "placement.policy=etp", "--set", "expect=null"]
SEARCH += ["--set", "placement.iterations=10000000", "--set", "job.iterations=600000"]
SEARCH += ["--set", "placement.simulated_iterations=600000"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'nodes'}"}
SLOW = "import time, sys\nfrom emu.host.interruption import one_line_at_a_signal\n"


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Undo what a script's shell does to what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def caught(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal, by the kernel's word."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = re.search(r"SigCgt:\s*(\w+)", status)
    return mask is not None and bool(int(mask[1], 16) >> (number - 1) & 1)


def interrupt(
    arguments: list[str], number: signal.Signals, after: float, cwd: Path
) -> tuple[int, str]:
    """Send a signal so long after the command can take it; return how it ended."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not caught(process.pid, signal.SIGTERM):
        time.sleep(0.001)
    time.sleep(after)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "number"),
    [
        (0, signal.SIGHUP),
        draws.rarely(0, signal.SIGINT),
        draws.rarely(1, signal.SIGTERM),
        draws.rarely(1, signal.SIGHUP),
        (2, signal.SIGINT),
        (3, signal.SIGTERM),
    ],
)
def test_signal_at_start_up_and_in_the_search(
    part: int, number: signal.Signals, tmp_path: Path
) -> None:
    after = (part + np.random.default_rng([part, number]).random()) * 0.5
    code, said = interrupt(["-m", "emu", *SEARCH], number, after, tmp_path)

    assert (code, said) == (130, f"emu: interrupted by {number.name}\n")
    assert not list(tmp_path.rglob("*"))


def script(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(f"{SLOW}def command():\n{body}\none_line_at_a_signal(command)\n")
    return [str(path)]


#: What a command does when the signal comes, and what it says of itself then.
BODIES = {
    "slow to end": (
        """
    from emu.host import interruption
    interruption._PATIENCE = 0.2
    class Slow:  # its interpreter takes longer to end than it: SIGALRM ended it
        __del__ = lambda _, sleep=time.sleep: sleep(0.5)
    slow = Slow()
    time.sleep(60)
""", ""),
    "in a callback": (  # as of the import system, in one start of thousands of CI
        """
    import weakref
    class Lock: pass
    lock = Lock()
    callback = weakref.ref(lock, lambda _: time.sleep(1.0))
    try:
        del lock
        time.sleep(60)
    finally:
        print("in good order", file=sys.stderr)
""", "in good order\n"),
    "another error": (
        """
    try:
        time.sleep(60)
    except BaseException as error:
        raise SystemError("returned a result with an exception set") from error
""", ""),
    "swallowed": (
        """
    try:
        time.sleep(60)
    except BaseException:
        pass
    sys.exit(0)
""", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_whatever_is_under_way_ends_with_one_line(name: str, tmp_path: Path) -> None:
    body, said = BODIES[name]
    ended = interrupt(script(tmp_path, body), signal.SIGTERM, 0.5, tmp_path)

    assert ended == (130, f"{said}emu: interrupted by SIGTERM\n")


SWALLOWED = """while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass"""


@pytest.mark.parametrize(
    ("number", "sleep"),
    [
        (signal.SIGINT, "time.sleep(60)"),
        (signal.SIGTERM, "time.sleep(60)"),
        (signal.SIGHUP, "time.sleep(60)"),
        (signal.SIGTERM, SWALLOWED),
    ],
    ids=["SIGINT", "SIGTERM", "SIGHUP", "a library swallows it"],
)
def test_file_that_is_being_written_is_not_left_half(
    number: signal.Signals, sleep: str, tmp_path: Path
) -> None:
    body = f"""
    from pathlib import Path
    from emu.host.files import whole_file
    with whole_file(Path("report.html")) as partial:
        partial.write_text("half")
        {sleep}
"""
    code, said = interrupt(script(tmp_path, body), number, 0.3, tmp_path)

    assert (code, said) == (130, f"emu: interrupted by {number.name}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["policies"], ["--help"]])
def test_full_device_is_told_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "emu", *arguments],
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ended.returncode == 3
    assert ended.stderr == (
        "emu: standard output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize(
    ("program", "closed"),
    [
        *(("emu", closed) for closed in ("2>&-", ">&-", "<&- >&- 2>&-")),
        *(("emu.emulation.launch", closed) for closed in ("<&-", "<&- >&- 2>&-")),
    ],
)
def test_closed_descriptors_are_not_those_of_the_next_file(
    closed: str, program: str, tmp_path: Path
) -> None:
    """What is printed would go to whatever is opened next, or the command aborts."""
    arguments = "simulate golden" if program == "emu" else "127.0.0.1:1 --patience 0"
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m {program} {arguments} {closed}"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == (0 if program == "emu" else 5)
    assert ended.stderr.count("\n") <= 1
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "ignored", [signal.SIGINT, signal.SIGHUP], ids=["SIGINT", "SIGHUP"]
)
def test_signal_that_it_was_started_to_ignore_is_ignored(
    ignored: signal.Signals, tmp_path: Path
) -> None:
    """As by nohup, or by a shell without job control for what is in the background."""
    body = f"""
    import asyncio, os
    from emu.emulation.launch.signals import run_until_signalled
    async def work():
        os.kill(os.getpid(), {int(ignored)})
        await asyncio.sleep(0.1)
    os.kill(os.getpid(), {int(ignored)})
    run_until_signalled(work(), lambda: "waiting")
    print("survived", file=sys.stderr)
    os.kill(os.getpid(), {int(signal.SIGTERM)})
    time.sleep(60)
"""
    path = script(tmp_path, body)[0]
    start = f"import runpy, signal; signal.signal({int(ignored)}, signal.SIG_IGN)"
    ended = subprocess.run(
        [sys.executable, "-c", f"{start}; runpy.run_path({path!r})"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ended.returncode == 130
    assert ended.stderr == "survived\nemu: interrupted by SIGTERM\n"


@pytest.mark.parametrize("moment", ["listen", "command", "main"])
def test_a_signal_on_the_way_in_or_out_gives_one_line(
    moment: str, tmp_path: Path
) -> None:
    """While handlers are set, as the command ends, and when all is over."""
    body = f"""
    pass
from emu.host import interruption
def main():
    one_line_at_a_signal(command)
code = {{
    "listen": interruption._Ending.listen.__code__,
    "command": command.__code__,
    "main": main.__code__,
}}["{moment}"]
import os, signal
def at(frame, event, _):
    if frame.f_code is code and event == "return":
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
sys.setprofile(at)
main()
raise SystemExit
"""
    ended = subprocess.run(
        [sys.executable, *script(tmp_path, body)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    over = moment == "main"
    assert ended.returncode == (0 if over else 130)
    assert ended.stderr == ("" if over else "emu: interrupted by SIGINT\n")


def test_signals_at_any_moment_of_the_start_give_one_line(tmp_path: Path) -> None:
    """From the first statement on; before it there is only the interpreter."""
    random = np.random.default_rng(7)
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    for moment in random.uniform(0.0, 0.15, 20):
        number = numbers[int(random.integers(3))]
        code, said = interrupt(["-m", "emu", *SEARCH], number, moment, tmp_path)
        assert (code, said) == (130, f"emu: interrupted by {number.name}\n"), moment


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("stopped", "number", "codes"),
    [
        ("run", signal.SIGINT, [130, 5, 5]),
        draws.rarely("run", signal.SIGKILL, [-9, 5, 5]),
        ("agent", signal.SIGKILL, [5, 5, -9]),
    ],
)
def test_survivors_of_a_stopped_run_end_without_tracebacks(
    stopped: str,
    number: signal.Signals,
    codes: list[int],
    unused_tcp_port: int,
    tmp_path: Path,
    leftovers: Leftovers,
) -> None:
    at, environment = f"127.0.0.1:{unused_tcp_port}", {"EMU_TOKEN": "of-this-test"}
    environment |= ENVIRONMENT
    scenario = ["golden", "--set", "emulation.time_scale=10", "--set", "expect=null"]
    commands = [["emu", "run", *scenario, "--agents", "2", "--listen", at]]
    commands += [
        ["emu.emulation.launch", at, f"--name=h{i}", "--patience=60"] for i in range(2)
    ]
    started: list[subprocess.Popen[bytes]] = []
    for i, command in enumerate(commands):
        with (tmp_path / f"{i}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", *command],
                    cwd=tmp_path,
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
            )
    try:
        until = time.monotonic() + 120
        while len(leftovers.note()) < 3 + 2 + 6 and time.monotonic() < until:
            time.sleep(0.1)
        # Somewhere from their hello to their first flows.
        time.sleep(float(np.random.default_rng([number, len(stopped)]).uniform(0, 3)))
        started[0 if stopped == "run" else 2].send_signal(number)
        ended = [process.wait(60) for process in started]
    finally:
        for process in started:
            process.kill()
    logs = [(tmp_path / f"{i}.log").read_text() for i in range(3)]

    assert ended == codes, logs
    for text in logs:
        assert "Traceback" not in text
        assert len(text.splitlines()) < 12, text  # a line per process and end


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_parent_that_is_stopped_is_seen_and_one_that_goes_on_is_not() -> None:
    parent = subprocess.Popen(["sleep", "60"])
    try:
        watch = StopWatch(parent.pid, patience=2.0)
        assert [watch.look() for _ in range(4)] == [False] * 4

        parent.send_signal(signal.SIGSTOP)
        os.waitpid(parent.pid, os.WUNTRACED)
        assert [watch.look() for _ in range(2)] == [False, False]
        parent.send_signal(signal.SIGCONT)
        os.waitpid(parent.pid, os.WCONTINUED)
        assert not watch.look()  # counted anew

        parent.send_signal(signal.SIGSTOP)
        os.waitpid(parent.pid, os.WUNTRACED)
        assert [watch.look() for _ in range(3)] == [False, False, True]
    finally:
        parent.kill()
        parent.wait()
    assert not watch.look()


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        (["agent", "127.0.0.1:1"], "emu.emulation.launch.__main__"),
        (["exec", "run", "m0", "--", "true"], "emu.lab.machines.exec"),
    ],
)
def test_a_signal_that_comes_while_a_command_becomes_another_ends_it_with_a_line(
    arguments: list[str], program: str
) -> None:
    """The command holds it back, and the program that it becomes answers it."""
    steps = f"""
import importlib, os, signal, sys
from emu.cli import app, lab_commands
def become(_interpreter, command):
    signal.raise_signal(signal.SIGTERM)
    print("held back", flush=True)
    sys.argv = command[2:]
    importlib.import_module({program!r}).main()
os.execv = become
lab_commands.holder_of = lambda *_: 1
app({arguments!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", steps],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert done.stdout == "held back\n"
    assert done.stderr == "emu: interrupted by SIGTERM\n"
