"""From a command to the ranks that it starts: torchrun's, or a program's alone."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emu.errors import ScenarioError
from emu.lab.machines.programs import MASTER_PORT, PLACES, LabProgram, starts
from emu.scenario.run_sections import LabFile

#: What begins a command that torchrun carries out.
_TORCHRUN = ("-m", "torch.distributed.run")
#: The older command that does the same.
_LAUNCH = ("-m", "torch.distributed.launch")
#: Words of a shell beyond a command and its arguments.
_OPERATORS = set("();<>|&")
#: Address of rank 0, as ranks read it: their store is none of sockets.
_ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class Node:
    """A machine with the ranks on it."""

    machine: int
    command: tuple[str, ...]
    """Program with its arguments, or ``-m``, module and its arguments."""
    ranks: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RankPlan:
    """One rank, ready to be started."""

    machine: int
    command: tuple[str, ...]
    environment: dict[str, str]


def plan_ranks(nodes: Sequence[Node], threads: int = 1) -> list[RankPlan]:
    """Return the ranks of all nodes in order, with the environment torchrun gives.

    ``threads``: of torch's operations in every rank.
    """
    world = sum(node.ranks for node in nodes)
    plans: list[RankPlan] = []
    for number, node in enumerate(nodes):
        for local in range(node.ranks):
            rank = len(plans)
            stated = {
                "RANK": rank,
                "LOCAL_RANK": local,
                "GROUP_RANK": number,
                "ROLE_RANK": rank,
                "WORLD_SIZE": world,
                "LOCAL_WORLD_SIZE": node.ranks,
                "GROUP_WORLD_SIZE": len(nodes),
                "ROLE_WORLD_SIZE": world,
                "MASTER_PORT": MASTER_PORT,
                "TORCHELASTIC_RESTART_COUNT": 0,
                "TORCHELASTIC_MAX_RESTARTS": 0,
                "MASTER_ADDR": _ADDRESS,
                "OMP_NUM_THREADS": threads,
                "ROLE_NAME": "default",
                "TORCHELASTIC_RUN_ID": "none",
            }
            environment = dict(node.environment)
            for name, value in stated.items():
                environment[name] = str(value)
            plan = RankPlan(node.machine, node.command, environment)
            plans.append(plan)
    return plans


def nodes_of_command(
    command: Sequence[str],
    machines: Sequence[str],
    ranks: int | None,
) -> list[Node]:
    """Return the nodes that a command of the command line starts.

    One rank stands on each machine in order; where torchrun is told of several nodes,
    node n with all its ranks stands on machine n.

    Parameters
    ----------
    machines
        Names of the machines of the cluster.
    ranks
        Number of ranks of a program alone; None for one on each machine.

    Raises ScenarioError where there are fewer machines than are needed, or the command
    asks for what is not modelled.
    """
    arguments = _without_python(command)
    line = _read_torchrun(arguments)
    if line is None:
        program = tuple(arguments)
        count = len(machines) if ranks is None else ranks
        nodes = 1
    elif ranks is not None:
        raise ScenarioError("torchrun states the ranks: leave --ranks out")
    else:
        program, count, nodes = line

    if nodes == 1:
        _require_machines(count, machines, "ranks")
        return [Node(number, program) for number in range(count)]
    _require_machines(nodes, machines, "nodes")
    return [Node(number, program, count) for number in range(nodes)]


def nodes_of_lab(file: LabFile) -> list[Node]:
    """Return the nodes that the program of a lab file starts.

    Raises ScenarioError when it states none or several, or a command that is more than
    a program with arguments.
    """
    programs = file.lab.programs
    if len(programs) != 1:
        problem = f"states {len(programs)} programs, a virtual cluster runs one: "
        problem += "name it after --, or run the file with emu lab"
        raise file.origin.error(("lab", "programs"), problem)

    (stated,) = programs
    names = file.cluster.names
    machines = tuple(names) if stated.on == "all" else stated.on
    program = LabProgram(stated.name, machines, stated.run, stated.env)
    addresses = dict.fromkeys(names, _ADDRESS)
    values = ("", str(file.folder), sys.executable)
    places = dict(zip(PLACES, values, strict=True))
    nodes = []
    for start in starts([program], addresses, places):
        environment = {**os.environ, **start.environment}
        shell_command = start.command[-1]
        words = _expand(shell_command, environment, file)
        arguments = _without_python(words)
        line = _read_torchrun(arguments)
        command, ranks, _ = line or (tuple(arguments), 1, 1)
        node = Node(
            machine=names.index(start.machine),
            command=command,
            ranks=ranks,
            environment=start.environment,
        )
        nodes.append(node)
    return nodes


def _expand(
    text: str,
    environment: Mapping[str, str],
    file: LabFile,
) -> list[str]:
    """Return the words of a shell command, as a shell makes them."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    if any(_OPERATORS.issuperset(word) for word in lexer):
        problem = f"runs {text!r}, a virtual cluster takes one program with arguments"
        raise file.origin.error(("lab", "programs", 0, "run"), problem)
    result = subprocess.run(
        ["/bin/sh", "-c", f"printf '%s\\0' {text}"],
        env=dict(environment),
        capture_output=True,
        check=True,
        text=True,
    )
    *words, _ = result.stdout.split("\0")
    if words[0] == "exec":
        return words[1:]
    return words


def _without_python(command: Sequence[str]) -> list[str]:
    """Return what Python, or torchrun, is given: a program or ``-m`` and a module.

    Raises ScenarioError where that is no program in Python.
    """
    words = [*command]
    name = Path(words[0]).name if words else ""
    if name == "torchrun":
        return [*_TORCHRUN, *words[1:]]

    if name.startswith("python"):
        words = words[1:]
        while words and words[0] == "-u":
            words = words[1:]
    program = words[0] if words else ""
    if program != "-m" and not Path(program).is_file():
        command_text = " ".join(command) or "nothing"
        raise ScenarioError(
            f"found {command_text!r}, write torchrun with its arguments, "
            "python -m MODULE, or a file in Python"
        )
    return words


def _read_torchrun(
    arguments: Sequence[str],
) -> tuple[tuple[str, ...], int, int] | None:
    """Return program, ranks of a node and nodes of torchrun; None of other programs.

    Raises ScenarioError for an option that is not modelled.
    """
    beginning = tuple(arguments[:2])
    if beginning not in {_TORCHRUN, _LAUNCH}:
        return None
    # Its own reading: abbreviations and defaults are what they are.
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    try:
        options: Any = parser.parse_args(arguments[2:])
    except SystemExit as error:
        raise ScenarioError("torchrun does not take these arguments") from error
    if options.max_restarts:
        raise ScenarioError("--max-restarts is not modelled: a rank that fails ends it")
    if options.no_python:
        raise ScenarioError("--no-python is not modelled: ranks are programs in Python")
    count = _whole(options.nproc_per_node, "--nproc-per-node")
    nodes = _whole(options.nnodes, "--nnodes")
    program = (options.training_script, *options.training_script_args)
    if options.module:
        program = ("-m", *program)
    return program, count, nodes


def _whole(text: str, option: str) -> int:
    """Return a number of torchrun; of a range that is one, ``4:4``."""
    ends = set(str(text).split(":"))
    number = ends.pop()
    if ends or not number.isdecimal() or not int(number):
        raise ScenarioError(f"found {text}, write one number", file=option)
    return int(number)


def _require_machines(
    count: int,
    machines: Sequence[str],
    kind: str,
) -> None:
    if count > len(machines):
        raise ScenarioError(
            f"{count} {kind} need as many machines, the cluster has {len(machines)}: "
            "state more (count), or several ranks each by torchrun's --nnodes and "
            "--nproc-per-node"
        )
