"""Programs that an agent may start: this product's, and those that its owner named.

The coordinator sends a run to an agent as import paths. To import is to execute,
so nothing is imported only because a message names it.
"""

from __future__ import annotations

import resource
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec

from emu.emulation.network.authentication import derive_key
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.process_spec import EdgeEnd, HostSide, ProcessSpec
from emu.errors import NodeMisbehaved, RunError
from emu.host.foreign_code import INSTALL_TORCH
from emu.names import printable
from emu.problem.workloads.copies import COPY
from emu.systems.system import systems

#: Processes per core beyond which those of a machine share one, under ``auto``: 200
#: tasks on two cores took 33 s of CPU apart, and 14 together.
_MANY = 8
#: Open files of a node process beside one for each end of an edge: links to the
#: coordinator and the board, where it listens, two timers, and a rehearsal's.
_FILES = 12
#: What every node process runs; it makes the programs of its tasks.
RUNTIME = "emu_nodes.runtime:main"


def program_path(text: str) -> str:
    """Return an import path, ``module:Class``, or a model's program, ``net.py:Net``.

    Raises ValueError when it is not one.
    """
    module, _, name = text.rpartition(":")
    # A model's own file, or an import path.
    is_file = module.endswith(".py") and module.isprintable() and "/" not in module
    is_module = all(map(str.isidentifier, module.split(".")))
    if not (is_file or is_module) or not name.isidentifier():
        raise ValueError(f"{printable(text)} is neither module:Class nor net.py:Net")
    return text


def _program_names(*, torch: bool) -> frozenset[str]:
    """Return the programs of the installed systems that need torch, or do not."""
    paths: set[str] = set()
    for system in systems().values():
        if system.needs_torch == torch:
            paths.update(system.programs.values())
    return frozenset(paths)


def _needs_torch(programs: Iterable[str]) -> bool:
    return not _program_names(torch=True).isdisjoint(programs)


def model_programs(specs: Iterable[ProcessSpec]) -> set[str]:
    """Return the programs of models that these processes run, whose text came along."""
    programs: set[str] = set()
    for spec in specs:
        model = spec.job_settings.get("model", {})
        if "program" in model:
            programs.add(model["program"])
    return programs


def check_allowed(programs: Collection[str], allowed: Collection[str]) -> None:
    """Let pass the product's own programs and those allowed by who owns the host.

    Raises NodeMisbehaved when there is another one; nothing of it was imported. When
    one needs torch, and this host has none.
    """
    installed_programs = _program_names(torch=False) | _program_names(torch=True)
    strange = {*programs} - installed_programs - {COPY} - {*allowed}
    for program in sorted(strange):
        raise NodeMisbehaved(
            f"program {printable(program)} is not allowed on this host: start the "
            f"agent (or emu run) with --allow {printable(program)} if it shall be"
        )
    if _needs_torch(programs) and find_spec("torch") is None:
        raise NodeMisbehaved(
            f"this job trains, and torch is not installed on this host: {INSTALL_TORCH}"
        )


def modules_to_preload(programs: Collection[str], *, compute: str) -> list[str]:
    """Return the modules to import once, beside the runtime, for processes of these.

    Tasks that only hold their times (``timed``) need no torch: 1.6 s of CPU. 24
    processes that do are ready in 0.3 s this way, at 18 MB each, against 24 s and 185.
    """
    modules: list[str] = []
    if compute != "timed" and _needs_torch(programs):
        # An operation of torch would start threads that do not survive the fork.
        modules += ["torch", "emu.graph_data"]

    for path in sorted(programs):
        module, _, _ = path.partition(":")
        modules.append(module)
    return list(dict.fromkeys(modules))


def late_modules(programs: Collection[str], *, compute: str) -> list[str]:
    """Return what processes of these import as they compute, where a host has it.

    Nothing where tasks only hold their times (``timed``).
    """
    if compute == "timed":
        return []
    known_systems = systems().values()
    # Stores and samplers of p3 are those of dgtp, which imports nothing late.
    others: set[str] = set()
    for system in known_systems:
        if not system.late_modules:
            others.update(system.programs.values())

    modules: list[str] = []
    for system in known_systems:
        late_programs = {*system.programs.values()} - others
        if not late_programs.isdisjoint(programs):
            modules += system.late_modules
    return list(dict.fromkeys(modules))


def are_many_for(processes: int, cores: int) -> bool:
    """Return True where so many processes of a host outnumber its cores by far."""
    return processes > _MANY * cores


def share_machine(settings: EmulationSettings, *, are_many: bool) -> bool:
    """Return True where what stands on an emulated machine shares a process."""
    if settings.processes == "auto":
        return are_many and settings.compute == "timed"
    return settings.processes == "machine"


def share_processes(
    specs: Sequence[ProcessSpec], cores: int
) -> list[list[ProcessSpec]]:
    """Return the specifications by process of the system; see `EmulationSettings`.

    Raises RunError when one would need more descriptors than a process of this host may
    have.
    """
    are_many = are_many_for(len(specs), cores)
    groups: dict[str, list[ProcessSpec]] = {}
    for spec in specs:
        is_shared = share_machine(spec.settings, are_many=are_many)
        name = f"machine {spec.machine}" if is_shared else spec.process
        groups.setdefault(name, []).append(spec)

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name, members in groups.items():
        needs = sum(map(_count_files, members))
        if len(members) > 1 and needs > most >= 0:
            raise RunError(
                f"{name} has {len(members)} processes in one, which needs {needs} open "
                f"files, and this host allows {most}: allow more (ulimit -Hn), or "
                "write emulation.processes: task"
            )
    return [*groups.values()]


def _count_files(spec: ProcessSpec) -> int:
    files = _FILES
    for task in spec.tasks:
        files += len(task.inputs) + len(task.outputs)
    return files


def with_keys(spec: ProcessSpec, token: str, host: HostSide) -> ProcessSpec:
    """Return a specification with its host's part, and the keys of process and edges.

    None of them gives away the token: a process can pose as no other.
    """

    def with_key(end: EdgeEnd) -> EdgeEnd:
        key = derive_key(token, "edge", end.edge)
        return replace(end, key=key)

    tasks = []
    for task in spec.tasks:
        task_with_keys = replace(
            task,
            inputs=tuple(map(with_key, task.inputs)),
            outputs=tuple(map(with_key, task.outputs)),
        )
        tasks.append(task_with_keys)
    key = derive_key(token, "process", spec.process)
    host_with_key = replace(host, key=key)
    return replace(spec, tasks=tuple(tasks), host=host_with_key)
