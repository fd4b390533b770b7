"""From a lab file to machines that can be started, and programs for them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from emu.errors import RunError, ScenarioError, ScenarioErrors
from emu.lab.machines.cpu_groups import CpuGroups, Hierarchy, plan_cpu, scale_for
from emu.lab.machines.lab import Lab, LabMachine
from emu.lab.machines.nic import Sharing, plan_nic
from emu.lab.machines.programs import PLACES, LabProgram, starts
from emu.problem.fields.cluster_section import Nic
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.runs.lab_file import log_name
from emu.scenario.run_sections import LabFile
from emu.scenario.scenario_file import load_lab

if TYPE_CHECKING:
    from emu.scenario.document import Overrides

#: What a command of the command line is called.
COMMAND = "command"
#: Keys of events that no lab has.
_NOT_OF_LABS = ("link", "cut", "slow", "pause", "kill")
#: Keys of a cluster that no lab has.
_BEYOND_NICS = ("links", "racks", "routes")
#: What may stand for them.
_TOPOLOGY = ("cluster", "topology")
#: Keys of machines that a lab reads.
_READ = ("name", "count", "nic", "cpu")
_ALGORITHMS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
#: Those of them that namespaces may have, whoever asks.
_ALLOWED = _ALGORITHMS.with_name("tcp_allowed_congestion_control")
#: What cores may be above those of this computer by what was rounded.
_ROUNDED = 1.0 + 1e-9


def open_lab(file: LabFile) -> Lab:
    """Return the lab that a file describes, not started yet.

    Raises ScenarioError when a NIC is one that no kernel here carries, a name is no
    host name, a program names a place that there is none of, a machine a share of the
    cores here that it cannot have, or the file what other commands or hosts have alone.
    """
    for trail, problem in chain(_errors(file), _absences(file)):
        raise file.origin.error(trail, problem)
    return _make_lab(file)


def _make_lab(file: LabFile) -> Lab:
    """Return the lab of a file without such errors; ScenarioError as `open_lab`."""
    section = file.lab
    machines = []
    for machine in file.to_cluster().machines:
        lab_machine = LabMachine(
            machine.name,
            nic_out=machine.bandwidth_out,
            nic_in=machine.bandwidth_in,
            cpu=file.cores.get(machine.name),
        )
        machines.append(lab_machine)
    try:
        return Lab(
            machines,
            sharing=Sharing(section.sharing),
            mtu=section.mtu,
            queue=section.queue,
            congestion_control=section.congestion_control,
            time_scale=time_scale(file),
        )
    except ValueError as error:
        trail = ("cluster", "machines")
        raise file.origin.error(trail, str(error)) from error


def time_scale(file: LabFile) -> float:
    """Return the wall seconds of an emulated one."""
    scale = file.lab.time_scale
    if scale != "auto":
        return float(scale)
    cores_of_machines = list(file.cores.values())
    return scale_for(cores_of_machines, cores_here())


def cores_here() -> float:
    """Return the cores of this computer that groups may use, or else all."""
    try:
        # Control groups, as of a container, may allow less than the affinity says.
        return Hierarchy.find().cores()
    except RunError:
        return float(len(os.sched_getaffinity(0)))


def find_lab_errors(
    source: str | Path,
    overrides: Overrides = (),
) -> list[ScenarioError]:
    """Return every error of a lab file; `lab_notes` has what is none everywhere."""
    try:
        file = load_lab(source, overrides)
        found = list(_errors(file))
        problems = [file.origin.error(trail, problem) for trail, problem in found]
        # What only making the lab can show comes last.
        if not problems:
            _make_lab(file)
    except ScenarioErrors as errors:
        return list(errors.errors)
    except ScenarioError as error:
        return [error]
    return problems


def lab_notes(file: LabFile) -> Iterator[str]:
    """Yield what `open_lab` refuses here, and other commands or hosts have."""
    for trail, problem in _absences(file):
        error = file.origin.error(trail, problem)
        yield f"emu lab refuses {error.key}: {error.problem}"


def _absences(file: LabFile) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong) of what no lab has, or no lab of this host."""
    keys = [key for key in _BEYOND_NICS if getattr(file.cluster, key)]
    # A topology stands for several of them.
    trails = dict.fromkeys(_find_trail(file, key) for key in keys)
    for trail in trails:
        problem = (
            "a lab has NICs and no further links, as emu run and emu virtual have: "
            "state machines alone"
        )
        yield trail, problem
    yield from _tcp_errors(file.lab.congestion_control)


def _find_trail(file: LabFile, key: str) -> Trail:
    """Return where a key of the cluster, or the topology that has it, is stated."""
    trail: Trail = ("cluster", key)
    document = file.origin.document
    if document is None or document.states(trail) or not document.states(_TOPOLOGY):
        return trail
    return _TOPOLOGY


def _errors(file: LabFile) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right) beyond the file's words."""
    yield from _machine_errors(file)
    for number, event in enumerate(file.events):
        trail: Trail = ("events", number)
        if event.nic is not None:
            yield from _nic_errors(file, (*trail, "nic"), event.nic)
            continue
        problem = "a lab has NICs and no further links: state machine and nic"
        stated = [key for key in _NOT_OF_LABS if getattr(event, key) is not None]
        key = stated[0]
        yield (*trail, key), problem
    yield from _core_errors(file)

    places = dict.fromkeys(PLACES, "")
    programs = programs_of(file, ()) if file.lab.programs else ()
    # Only whether its places are known is asked: the addresses may be empty.
    addresses = dict.fromkeys(file.cluster.names, "")
    for number, program in enumerate(programs):
        try:
            starts([program], addresses, places)
        except ValueError as error:
            yield ("lab", "programs", number), str(error)
    yield from _log_errors(programs)


def _log_errors(programs: Sequence[LabProgram]) -> Iterator[tuple[Trail, str]]:
    """Yield likewise programs that would write into the log of another."""
    writers: dict[str, str] = {}
    for number, program in enumerate(programs):
        logs = {log_name(program.name, name): name for name in program.machines}
        taken = sorted(writers.keys() & logs.keys())
        if taken:
            log = taken[0]
            problem = (
                f"{program.name!r} on {logs[log]} would write {log}, as "
                f"{writers[log]} does: name it otherwise"
            )
            yield ("lab", "programs", number, "name"), problem
        for log, name in logs.items():
            writers[log] = f"{program.name!r} on {name}"


def _machine_errors(file: LabFile) -> Iterator[tuple[Trail, str]]:
    """Yield likewise names and NICs that no machine of a lab can have."""
    machines = reversed(file.cluster.names_and_positions())
    # Of counted machines the first name stands for all: reversed, it is the last put.
    first_names = {position: name for name, position in machines}
    for position, name in sorted(first_names.items()):
        trail: Trail = ("cluster", "machines", position)
        if not re.fullmatch(r"[A-Za-z0-9.-]*", name):
            problem = f"{name!r} is no host name: letters, digits, - and . make one"
            yield (*trail, "name"), problem

        machine = file.cluster.machines[position]
        nic = machine.nic
        latency = nic.latency
        if latency.inward or latency.outward:
            problem = "a lab delays no packets: leave it out, emu run emulates it"
            yield (*trail, "nic", "latency"), problem
        yield from _nic_errors(file, (*trail, "nic"), nic)


def _tcp_errors(algorithm: str) -> Iterator[tuple[Trail, str]]:
    """Yield that this kernel has no algorithm of TCP by a name, or none for labs."""
    with socket.socket() as some_socket:
        try:
            # The kernel looks for a module, too, where this user may load one.
            some_socket.setsockopt(
                socket.IPPROTO_TCP,
                socket.TCP_CONGESTION,
                algorithm.encode(),
            )
        except FileNotFoundError:
            names = _ALGORITHMS.read_text(encoding="utf-8").split()
            problem = f"this kernel has no {algorithm!r}, {nearest(algorithm, names)}"
            yield ("lab", "congestion_control"), problem
            return
        except OSError:
            pass  # it is there, but not for every user

    names = _ALLOWED.read_text(encoding="utf-8").split()
    if algorithm not in names:
        every_name = " ".join([*names, algorithm])
        problem = (
            f"this kernel keeps {algorithm!r} from machines of a lab: write one of "
            f"{', '.join(names)}, or sysctl net.ipv4.{_ALLOWED.name}='{every_name}'"
        )
        yield ("lab", "congestion_control"), problem


def idle_keys(file: LabFile) -> list[str]:
    """Return the keys of machines that a lab reads nothing of, sorted."""
    stated: set[str] = set()
    for machine in file.cluster.machines:
        stated.update(machine.model_fields_set, machine.model_extra or {})
    return sorted(stated.difference(_READ))


def _core_errors(file: LabFile) -> Iterator[tuple[Trail, str]]:
    """Yield likewise shares of cores that machines cannot have here."""
    shares = [machine.cpu for machine in file.cluster.machines]
    has_wrong = False
    for number, cpu in enumerate(shares):
        if cpu is not None and not cpu > 0:
            has_wrong = True
            problem = "a machine without a core computes nothing: state more than 0"
            yield ("cluster", "machines", number, "cpu"), problem
    if has_wrong or not file.cores:
        return

    scales = ("lab", "time_scale")
    scale = time_scale(file)
    quotas = {}
    for name, position in file.cluster.names_and_positions():
        try:
            quotas[name] = plan_cpu(file.cores[name], scale)
        except ValueError as error:
            trail: Trail = ("cluster", "machines", position, "cpu")
            # A share that nobody stated is too small by the time scale alone.
            if shares[position] is None:
                trail = scales
            yield trail, str(error)
            return

    cores = cores_here()
    cores_of_machines = list(file.cores.values())
    need = sum(cores_of_machines)
    if need > _ROUNDED * scale * cores:
        need_here = need / scale
        least = need / cores
        auto = scale_for(cores_of_machines, cores)
        problem = (
            f"is {scale:g}, at which machines of {need:g} cores need "
            f"{need_here:.3g} of this computer, which has {cores:.3g}: state "
            f"{least:.3g} or more, auto takes {auto:.3g}"
        )
        yield scales, problem
        return
    try:
        # Whether this user may have groups shows only where they are made.
        CpuGroups(quotas).close()
    except RunError as error:
        yield scales, f"needs quotas of CPU time, and {error}"


def _nic_errors(
    file: LabFile,
    trail: Trail,
    nic: Nic,
) -> Iterator[tuple[Trail, str]]:
    section = file.lab
    # `_core_errors` names that; no scale follows from a machine without a core.
    is_auto = section.time_scale == "auto"
    if is_auto and not min(file.cores.values()) > 0:
        return

    scale = time_scale(file)
    # One error, where both directions have the same rate.
    rates = dict.fromkeys((nic.outward, nic.inward))
    for rate in rates:
        try:
            plan_nic(
                rate,
                Sharing(section.sharing),
                mtu=section.mtu,
                queue=section.queue,
                time_scale=scale,
            )
        except ValueError as error:
            problem = str(error)
            if scale != 1:
                problem = f"at time scale {scale:g}, {problem}"
            yield trail, problem


def programs_of(
    file: LabFile,
    command: Sequence[str],
) -> list[LabProgram]:
    """Return a file's programs, or a command on all machines; ScenarioError if none."""
    names = tuple(file.cluster.names)
    if command:
        return [LabProgram(COMMAND, names, 'exec "$@"')]
    if not file.lab.programs:
        problem = "states nothing to run: give lab.programs, or a command after --"
        raise file.origin.error(("lab", "programs"), problem)
    programs = []
    for section in file.lab.programs:
        machines = names if section.on == "all" else section.on
        program = LabProgram(section.name, machines, section.run, section.env)
        programs.append(program)
    return programs
