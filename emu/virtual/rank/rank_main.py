"""The ranks of a virtual cluster: one process that imports torch and forks them.

    python -m emu.virtual.rank.rank_main PLAN

reads a plan (JSON, by `emu.virtual.launch`) and ends with the worst exit status.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import runpy
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typing_extensions import override

from emu.host.input_file import read_json
from emu.virtual.control import Connection, RankLost
from emu.virtual.rank_exits import note_exit


def main() -> int:
    """Fork the ranks; return the worst of their exit statuses."""
    plan = read_json(Path(sys.argv[1]))
    import_torch()
    children: dict[int, int] = {}
    for number, rank in enumerate(plan["ranks"]):
        child = os.fork()
        if child == 0:
            process = RankProcess(plan, rank)
            status = process.run()
            os._exit(status)
        children[child] = number

    worst = 0
    folder = Path(plan["folder"])
    for _ in plan["ranks"]:
        child, wait_status = os.wait()
        code = os.waitstatus_to_exitcode(wait_status)
        note_exit(folder, children[child], code)
        worst = max(worst, abs(code))
    return worst


def import_torch() -> None:
    """Import what ranks need of torch: once here, or in every rank."""
    import torch
    import torch._dynamo  # which DDP imports
    import torch._inductor
    import torch.distributed.rpc
    import torch.nn.parallel
    import torch.optim

    # Threads do not survive a fork; a rank has one core unless it says otherwise.
    torch.set_num_threads(1)


class RankProcess:
    """One rank: its connection, its output, and the program that it runs.

    Parameters
    ----------
    plan
        Of the whole run: ``socket``, ``folder``, ``charge``, ``mark``, ``threads``,
        ``real_clock``.
    rank
        Of this one: ``environment``, ``log``, ``command``, ``directory``.
    """

    def __init__(self, plan: dict[str, Any], rank: dict[str, Any]) -> None:
        self._plan = plan
        self._rank = rank
        self._number = int(rank["environment"]["RANK"])

    def run(self) -> int:
        """Run the program; return its exit status."""
        import torch

        from emu.virtual.rank.deposits import Deposits
        from emu.virtual.rank.rank_clock import RankClock
        from emu.virtual.rank.rank_end import RankEnd
        from emu.virtual.rank.takeover import install, mark_steps

        plan = self._plan
        rank = self._rank
        os.environ |= rank["environment"]
        os.chdir(rank["directory"])
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        log = os.open(rank["log"], flags, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)

        connection = self._connect()
        threads = plan["threads"]
        torch.set_num_threads(threads)
        (speed,) = connection.receive()
        clock = RankClock(speed, plan["charge"], threads)
        folder = Path(plan["folder"])
        deposits = Deposits(folder, self._number)
        end = RankEnd(connection, clock, deposits)

        mark = plan["mark"]
        with clock:
            install(end)
            if not mark:
                mark_steps(end)
            if not plan["real_clock"]:
                give_back = clock.take_over(end.sleep)
                os.register_at_fork(after_in_child=give_back)
            sys.stdout = LineReports(mark, end.say, descriptor=1)

        try:
            problem = self._run_program()
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            figures = self._count(clock.own_cpu)
            end.say("leave", problem, figures)
        except RankLost:
            return 1  # who keeps the clocks has ended the run
        return int(bool(problem))

    def _connect(self) -> Connection:
        end = socket.socket(socket.AF_UNIX)
        end.connect(self._plan["socket"])
        connection = Connection(end)
        connection.send(self._number, os.getpid())
        return connection

    def _run_program(self) -> str:
        """Run the program as ``__main__``; return what went wrong, in a line."""
        command = self._rank["command"]
        try:
            program = command[0]
            if program == "-m":
                module = command[1]
                sys.argv = command[1:]
                folder = Path.cwd()
                sys.path.insert(0, str(folder))
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            else:
                sys.argv = command
                folder = Path(program).resolve().parent
                sys.path.insert(0, str(folder))
                runpy.run_path(program, run_name="__main__")
        except SystemExit as error:
            if error.code not in {None, 0}:
                return self._describe_exit(error.code)
        except RankLost:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the program raises
            traceback.print_exc()
            return describe_error(error)
        return ""

    def _describe_exit(self, code: Any) -> str:
        """Return a line on the end of a program by ``sys.exit``."""
        if isinstance(code, str):
            sys.stderr.write(f"{code}\n")
            return code
        sys.stderr.flush()
        log = Path(self._rank["log"])
        lines = log.read_text("utf-8", "replace").splitlines()
        if not lines:
            return f"exit status {code}"
        last_line = lines[-1]
        return f"exit status {code}, its last line was {last_line!r}"

    def _count(self, own_cpu: float) -> dict[str, float]:
        """Return what the run is judged by: seconds and bytes of this process."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "cpu": own.ru_utime + own.ru_stime,
            "own_cpu": own_cpu,
            "children_cpu": children.ru_utime + children.ru_stime,
            "memory": float(own.ru_maxrss * 1024),
            "threads": float(threading.active_count()),
        }


def describe_error(error: BaseException) -> str:
    """Return an error in a line, with the last line of the program that led to it."""
    from emu.virtual.rank.rank_end import BETWEEN

    text = type(error).__name__
    lines = str(error).strip().splitlines()
    if lines:
        first_line = lines[0].strip()
        text += f": {first_line}"

    # Neither torch's and our own code, nor what has no file.
    foreign = (*BETWEEN, "<")
    last_call = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(foreign):
            file = Path(frame.filename).name
            last_call = f"{file}:{frame.lineno}"
    return f"{text}, at {last_call}" if last_call else text


class LineReports(io.TextIOBase):
    """Standard output of a rank: every line goes to its log, and is told.

    Parameters
    ----------
    mark
        Text in lines that begin a step; none where empty.
    say
        Tells who keeps the clocks.
    descriptor
        Of the log.
    """

    def __init__(
        self,
        mark: str,
        say: Callable[..., None],
        descriptor: int,
    ) -> None:
        self._mark = mark
        self._say = say
        self._descriptor = descriptor
        self._line = ""

    @override
    def write(self, text: str) -> int:
        """Write a text."""
        content = text.encode(errors="replace")
        os.write(self._descriptor, content)
        unended = self._line + text
        *lines, self._line = unended.split("\n")
        for line in lines:
            self._say("line", line)
            if self._mark and self._mark in line:
                self._say("mark")
        return len(text)

    @override
    def fileno(self) -> int:
        """Return the descriptor of the log."""
        return self._descriptor

    @override
    def writable(self) -> bool:
        """Return True."""
        return True


if __name__ == "__main__":
    sys.exit(main())
