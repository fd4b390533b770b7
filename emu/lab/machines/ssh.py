"""``ssh NAME COMMAND`` between machines of a lab: a program there, no daemon.

What runs in a machine finds it first on its path. It asks the process that holds the
lab, which starts the command in the other machine, with the caller's input, output and
working directory. Nothing of that crosses a NIC.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from signal import Signals
from tempfile import TemporaryDirectory

from emu.errors import RunError
from emu.host.input_file import parse_json
from emu.lab.machines.lab import Lab, Program
from emu.lab.machines.programs import MACHINE, PROGRAM

#: Bytes of a command, and the options of ssh that a word follows.
_MOST = 1 << 16
_WITH_WORD = "BbcDEeFIiJLlmOopQRSWw"
#: The client; it imports nothing of emu, which would take 0.2 s.
_CLIENT = f"""#!{sys.executable} -IS
import json, os, socket, sys
words = sys.argv[1:]
while words and words[0].startswith("-"):
    option = words.pop(0)
    if len(option) == 2 and option[1] in {_WITH_WORD!r}:
        words = words[1:]
if len(words) < 2:
    sys.exit("ssh: in a lab it is ssh NAME COMMAND, without a terminal")
what = [words[0].rpartition("@")[2], " ".join(words[1:]), os.getcwd()]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as lab:
    lab.connect(os.path.join(os.path.dirname(__file__), "socket"))
    what = json.dumps([*what, os.environ.get({PROGRAM!r}, "ssh")]).encode()
    socket.send_fds(lab, [what], [0, 1])
    answer = lab.recv({_MOST}).decode() or " the lab has ended"
code, _, problem = answer.partition(" ")
sys.exit(f"ssh: {{problem}}" if problem else int(code))
"""


class SshServer:
    """Starts what programs of a lab ask for by ssh, from the making to `close`.

    With further ``settings`` in their environment.
    """

    def __init__(self, lab: Lab, settings: Mapping[str, str]) -> None:
        self._lab = lab
        self._settings = settings
        self._folder = TemporaryDirectory(prefix="emu-ssh-")
        self._programs: dict[int, tuple[Program, socket.socket]] = {}
        #: By address, as hosts files have them.
        names = [machine.name for machine in lab.machines]
        self._names = {lab.address(name): name for name in names}
        client = Path(self._folder.name, "ssh")
        client.write_text(_CLIENT, "utf-8")
        client.chmod(0o755)

        # A packet is a request: none has to be put together from pieces.
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(client.with_name("socket")))
        self._listening.listen()
        self.path = f"{self._folder.name}:{os.environ.get('PATH', os.defpath)}"
        """``PATH`` of the programs of the lab."""

    @property
    def sockets(self) -> Iterator[socket.socket]:
        """Sockets at which something may come, for `take`."""
        yield self._listening
        yield from (caller for _, caller in self._programs.values())

    def take(self, ready: socket.socket) -> None:
        """Start what a new caller asks for, or end what one that has gone had asked."""
        if ready is not self._listening:
            for program, caller in [*self._programs.values()]:
                if caller is ready:
                    # The caller was ended: nobody takes output or exit code any more.
                    self._lab.signal(program, Signals.SIGKILL)
                    del self._programs[program.number]
                    caller.close()
            return

        caller, _ = ready.accept()
        data, files, _, _ = socket.recv_fds(caller, _MOST, 2)
        try:
            host, command, folder, origin = parse_json(data.decode())
            name = self._names.get(host, host)
            # What it sends counts as of the program that called ssh.
            settings = {"PATH": self.path, MACHINE: name, PROGRAM: origin}
            program = self._lab.start(
                name,
                ["sh", "-c", command],
                environment={**os.environ, **self._settings, **settings},
                directory=Path(folder),
                stdin=files[0],
                output=files[1],
            )
            self._programs[program.number] = program, caller
        except (ValueError, LookupError, RunError) as error:
            # The text of a KeyError is no sentence, only the name.
            is_unknown = isinstance(error, KeyError)
            problem = f"{error} is no machine of this lab" if is_unknown else f"{error}"
            caller.send(f" {problem}".encode())
            caller.close()
        finally:
            # The program has descriptors of its own by now.
            for descriptor in files:
                os.close(descriptor)

    def tell(self, program: Program) -> bool:
        """Send the exit code of a program to its caller; False where it has none."""
        if program.number not in self._programs:
            return False
        _, caller = self._programs.pop(program.number)
        code = program.code or 0
        # As a shell has it of a program that a signal ended.
        caller.send(f"{code if code >= 0 else 128 - code}".encode())
        caller.close()
        return True

    def close(self) -> None:
        """Let go of the socket and the client."""
        for end in [*self.sockets]:
            end.close()
        self._folder.cleanup()
