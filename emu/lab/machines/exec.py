"""A command beside a lab: ``python -m emu.lab.machines.exec HOLDER COMMAND...``.

It runs in the namespaces of the process HOLDER, process 1 of a machine, and ends with
it: the kernel kills what is left in a machine. Its exit code is passed on.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from emu.errors import RunError
from emu.host.first_moments import begin
from emu.lab.machines.cpu_groups import join_group_of
from emu.lab.machines.namespaces import die_with_parent, enter

#: Wall seconds that a machine may take to go after what ran there was killed.
_GOING = 1.0


def main() -> int:
    """Run the command; return its exit code, 128 more than the number of a signal."""
    begin()
    _, process, *command = sys.argv
    holder = int(process)
    directory = Path.cwd()
    try:
        machine = os.pidfd_open(holder)  # which waits for its end
        join_group_of(holder)
        enter(holder, machine)
        os.chdir(directory)  # the root is that of the machine's mounts since then
    except ProcessLookupError as error:
        raise RunError("the machine has gone") from error
    except PermissionError as error:
        problem = "only who started the lab, or root, may run something in it"
        raise RunError(problem) from error
    except OSError as error:
        raise RunError(f"cannot enter the machine: {error}") from error
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    inside = os.fork()
    if not inside:
        die_with_parent(0)  # a process of another namespace is number 0 here
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)  # noqa: S606 - the user's own
        except OSError as error:
            _say(f"{command[0]} cannot be started: {error.strerror}")
        os._exit(127)

    _, status = os.waitpid(inside, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        readable, _, _ = select.select([machine], [], [], _GOING)
        if readable:
            _say("the lab has ended, and the command with it")
    return code if code >= 0 else 128 - code


def _say(sentence: str) -> None:
    os.write(2, f"emu: {sentence}\n".encode())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunError as error:
        _say(str(error))
        sys.exit(error.exit_code)
