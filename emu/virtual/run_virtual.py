"""A virtual run from a plan to a run directory: ranks started, served, judged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from emu.errors import RunError, ScenarioError
from emu.host.files import scratch_folder
from emu.host.foreign_code import INSTALL_TORCH, is_installed
from emu.host.this_host import module_command
from emu.problem import CapacityChange, Cluster
from emu.runs.recorded_run import VIRTUAL_RESULT
from emu.runs.run_directory import RunDirectory
from emu.scenario.run_sections import LabFile
from emu.scenario.scenario_file import RECORDED_JOB
from emu.virtual.call_group import CallGroup
from emu.virtual.cluster_server import ClusterServer, RankRecord, RanksOfCluster
from emu.virtual.control import RankLost
from emu.virtual.launch import RankPlan
from emu.virtual.message_costs import costs_of_host
from emu.virtual.rank_exits import describe_exit
from emu.virtual.recorded_job import describe_job
from emu.virtual.verdict import SMALL, Evidence, judge

#: Seconds that ranks have to start: to import torch, beside other work.
_START = 120.0


@dataclass(frozen=True)
class Settings:
    """Choices of a run."""

    at_once: int
    """Ranks that run at the same time."""
    threads: int = 1
    """Cores of its machine that every rank has, and threads of torch's operations."""
    charge: float | None = None
    """Seconds of every computation, in place of its CPU time."""
    mark: str = ""
    """Text in lines with which a step begins; by default optimizers tell them."""
    free_messages: bool = False
    """True where messages take no CPU."""
    real_clock: bool = False
    """True where programs see the time of this computer."""
    algorithms: tuple[str, ...] = ()
    """Those of NCCL, for groups of that backend; none: their messages are gloo's."""


def cluster_of(
    file: LabFile,
    machine_of: Sequence[int],
    threads: int = 1,
) -> Cluster:
    """Return the machines of a file, with what events change.

    A share of a core makes a machine as much slower.

    Parameters
    ----------
    machine_of
        The machine of every rank.
    threads
        Cores that every rank has.

    Raises ScenarioError for an event that is no change of a link, or where ranks would
    share cores.
    """
    changes: list[CapacityChange] = []
    for number, event in enumerate(file.events):
        found = event.changes()
        if not found:
            problem = "is not modelled for programs: state machine and nic, or link"
            raise file.origin.error(("events", number), problem)
        changes += found

    cluster = file.to_cluster()
    machines = list(cluster.machines)
    sections = file.cluster.by_name.items()
    for number, (name, section) in enumerate(sections):
        ranks = machine_of.count(number)
        cores = section.cpu or 1.0
        needed = ranks * threads
        if section.cpu is not None and needed > max(1.0, cores):
            _, position = file.cluster.names_and_positions()[number]
            problem = f"is {cores:g}, {name} has {ranks} ranks"
            if threads > 1:
                problem += f" of {threads} threads"
            problem += ": state a core for each"
            key = ("cluster", "machines", position, "cpu")
            raise file.origin.error(key, problem)

        machine = machines[number]
        speed = machine.speed * min(1.0, cores)
        machines[number] = replace(machine, speed=speed)
    return replace(
        cluster,
        machines=tuple(machines),
        changes=tuple(changes),
    )


def find_shared_cores(
    file: LabFile,
    machine_of: Sequence[int],
    threads: int,
) -> list[bool]:
    """Return by rank whether its messages have no core beside that which computes.

    A machine has the cores that the file states, or as many as its ranks need.
    """
    sections = [*file.cluster.by_name.values()]
    shares_core = []
    for machine in machine_of:
        core_count = sections[machine].cpu or 1.0
        ranks = machine_of.count(machine)
        cores_of_rank = int(core_count / ranks)
        has_one = max(threads, cores_of_rank) == 1
        shares_core.append(has_one)
    return shares_core


def run_virtual(
    file: LabFile,
    plans: Sequence[RankPlan],
    directory: RunDirectory,
    settings: Settings,
    watch: Callable[[int, float, str], None],
) -> dict[str, Any]:
    """Run ranks to their end; return what ``virtual.json`` says.

    The directory takes that, the output of every rank, and the recorded job. ``watch``
    gets the rank, the time and the text of every line that is printed.

    Raises RunError where torch is missing or ranks do not start, and as
    `ClusterServer.serve`; nothing of them is left then.
    """
    if not is_installed("torch"):
        raise RunError(f"ranks need torch, which is not installed: {INSTALL_TORCH}")
    machine_of = [plan.machine for plan in plans]
    threads = settings.threads
    cluster = cluster_of(file, machine_of, threads)
    # What a charge states has no CPU of this host in it.
    is_free = settings.free_messages or settings.charge is not None
    costs = None if is_free else costs_of_host()
    cpu = psutil.cpu_times()
    with scratch_folder("virtual") as folder:
        shares_core = find_shared_cores(file, machine_of, threads)
        ranks = RanksOfCluster(machine_of, shares_core, settings.at_once)
        server = ClusterServer(
            cluster,
            ranks=ranks,
            costs=costs,
            watch=watch,
            describe_exit=partial(describe_exit, folder),
            algorithms=settings.algorithms,
        )
        with _listen(folder) as listener, _ranks(plans, folder, directory, settings):
            _serve(server, listener, directory)

    messages = _describe_messages(server.groups, settings)
    result = _describe(server, cluster, plans)
    result["messages"] = messages
    result["message_costs"] = asdict(costs) if costs else None
    others = _share_of_others(cpu, server.records)
    evidence = _evidence(server, result, others)
    reasons = judge(evidence)
    result["trust"] = "degraded" if reasons else "trusted"
    result["reasons"] = reasons
    job = describe_job(
        name=directory.path.name,
        cluster=file.cluster,
        machine_of=machine_of,
        records=server.records,
        groups=server.groups.values(),
    )
    directory.write_json(RECORDED_JOB, job)
    directory.write_json(VIRTUAL_RESULT, result)
    return result


def _serve(
    server: ClusterServer,
    listener: socket.socket,
    directory: RunDirectory,
) -> None:
    """Serve ranks; says of one that is lost where its output is."""
    try:
        server.serve(listener)
    except RankLost as error:
        problem = f"{error}; output of ranks: {directory.path}/rank*.log"
        raise RankLost(problem) from error


def _describe_messages(
    groups: Mapping[str, CallGroup],
    settings: Settings,
) -> dict[str, str]:
    """Return whose messages groups had, by the backend that the program named.

    Raises ScenarioError where there was no group, or none that settings ask for.
    """
    if not groups:
        raise ScenarioError(
            "the program made no process group, so that nothing crossed: it needs "
            "torch.distributed.init_process_group"
        )

    messages: dict[str, str] = {}
    for group in groups.values():
        messages[group.backend] = group.transport.describe()
    if settings.algorithms and "nccl" not in messages:
        backends = ", ".join(messages)
        problem = f"is of NCCL, and groups of the program have {backends}: "
        problem += "init_process_group('nccl'), or leave it out"
        raise ScenarioError(problem, file="--algorithm")
    return messages


@contextlib.contextmanager
def _listen(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "clock"))
        listener.listen(1 << 10)
        listener.settimeout(_START)
        yield listener


@contextlib.contextmanager
def _ranks(
    plans: Sequence[RankPlan],
    folder: Path,
    directory: RunDirectory,
    settings: Settings,
) -> Iterator[None]:
    """Start the ranks; end them, and what they started, with the block."""
    content = {
        "socket": str(folder / "clock"),
        "folder": str(folder),
        "charge": settings.charge,
        "mark": settings.mark,
        "threads": settings.threads,
        "real_clock": settings.real_clock,
        "ranks": _describe_ranks(plans, directory),
    }
    plan_file = folder / "plan.json"
    text = json.dumps(content)
    plan_file.write_text(text, "utf-8")

    command = module_command("emu.virtual.rank.rank_main", str(plan_file))
    # Threads that wait use no CPU, which would count as computing.
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    errors = directory.path / "start.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A session of their own: Ctrl-C reaches this process alone, which ends all.
            start_new_session=True,
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not errors.stat().st_size:
            errors.unlink()


def _describe_ranks(
    plans: Sequence[RankPlan],
    directory: RunDirectory,
) -> list[dict[str, Any]]:
    """Return what the process that starts the ranks needs to know of each."""
    ranks = []
    for number, plan in enumerate(plans):
        output = directory.path / f"rank{number}.log"
        rank = {
            "environment": plan.environment,
            "command": [*plan.command],
            "directory": str(Path.cwd()),
            "log": str(output.resolve()),
        }
        ranks.append(rank)
    return ranks


def _describe(
    server: ClusterServer,
    cluster: Cluster,
    plans: Sequence[RankPlan],
) -> dict[str, Any]:
    names = cluster.names
    machine_of = [names[plan.machine] for plan in plans]
    ranks = []
    for number, record in enumerate(server.records):
        end = record.end or 0.0
        row = {
            "rank": number,
            "machine": machine_of[number],
            "end": record.end,
            "computed": end - record.waited,
            "waited": record.waited,
            "delayed": record.delayed,
            "calls": sum(event.kind == "post" for event in record.events),
            **record.figures,
        }
        ranks.append(row)

    crossed: dict[str, dict[str, float]] = {}
    for (sender, receiver), size in server.count_bytes().items():
        source = machine_of[sender]
        destination = machine_of[receiver]
        sizes = crossed.setdefault(source, {})
        sizes[destination] = sizes.get(destination, 0.0) + size

    nics = {}
    for machine in cluster.machines:
        nics[machine.name] = {
            "out": machine.bandwidth_out,
            "in": machine.bandwidth_in,
        }
    return {
        "makespan": max(record.end or 0.0 for record in server.records),
        "keeper_cpu": server.cpu,
        "steps": describe_steps(server.records[0].marks),
        "ranks": ranks,
        "bytes": crossed,
        "nics": nics,
    }


def describe_steps(marks: Sequence[float]) -> dict[str, Any]:
    """Return the seconds of steps between marks, the first one apart: it warms up."""
    lengths = [later - former for former, later in pairwise(marks)]
    if not lengths:
        return {"count": 0}
    later = lengths[1:] or lengths
    return {
        "count": len(lengths),
        "first": lengths[0],
        "median": median(later),
        "least": min(later),
        "most": max(later),
        "seconds": lengths,
    }


def _evidence(
    server: ClusterServer,
    result: dict[str, Any],
    others: float,
) -> Evidence:
    count = len(server.records)
    sums = [0.0] * count
    carried = server.count_bytes(by_ranks_alone=True)
    for (sender, receiver), size in carried.items():
        sums[sender] += size
        sums[receiver] += size
    busiest = 0
    if not result["message_costs"]:
        # Elsewhere the clock has what they cost.
        busiest = int(max(sums))

    ranks = result["ranks"]
    messages = result["messages"]
    lengths = result["steps"].get("seconds", [])
    return Evidence(
        makespan=result["makespan"],
        steps=lengths[1:],
        busiest=busiest,
        computed=max(rank["computed"] for rank in ranks),
        small_calls=max(map(_count_small_calls, server.records)),
        children_cpu=sum(rank["children_cpu"] for rank in ranks),
        cpu=sum(rank["cpu"] for rank in ranks),
        stalls=server.stalls,
        others=others,
        nccl=messages.get("nccl", ""),
    )


def _count_small_calls(record: RankRecord) -> int:
    """Count the small calls of a rank in groups whose messages are gloo's."""
    count = 0
    for event in record.events:
        if event.call is None:
            continue
        form = event.call.form
        if form.is_message or form.group.transport.is_nccl:
            continue
        figures = form.call.figures
        exchanged = sum(figures.get("given", ()))
        size = figures.get("size", exchanged)
        if size < SMALL:
            count += 1
    return count


def _share_of_others(before: Any, records: Sequence[RankRecord]) -> float:
    """Return the share of all cores that neither emu nor its ranks used."""
    now = psutil.cpu_times()
    idle = now.idle + now.iowait - before.idle - before.iowait
    total = sum(now[:8]) - sum(before[:8])
    cpu_of_ranks = sum(record.figures["cpu"] for record in records)
    emu = psutil.Process().cpu_times()
    cpu_of_emu = emu.user + emu.system + emu.children_user + emu.children_system
    explained = idle + (cpu_of_ranks + cpu_of_emu)
    share = 1.0 - explained / max(total, 1e-9)
    return float(max(0.0, share))


def default_at_once() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0))
