"""What must hold between the keys of a custom job, of one of replicas, and of P3."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from emu.scenario.p3_section import P3JobSection
from emu.scenario.suggestion import nearest
from emu.workloads import PIPELINES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from emu.scenario.cluster_section import ClusterSection
    from emu.scenario.custom_section import (
        AllReduceSection,
        CustomJobSection,
        CustomTaskSection,
    )
    from emu.scenario.document import Trail
    from emu.scenario.p3_section import ReplicaSection


def custom_errors(job: CustomJobSection) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right)."""
    counts, own = Counter(task.name for task in job.tasks), _own(job)
    for position, task in enumerate(job.tasks):
        trail: Trail = ("job", "tasks", position)
        if counts[task.name] > 1:
            yield (*trail, "name"), f"{task.name!r} occurs {counts[task.name]} times"
        yield from _enough(task.time, own[task.name], (*trail, "time"))
    yield from _processes(job)
    yield from _flows(job)
    for position, collective in enumerate(job.collectives):
        trail = ("job", "collectives", position, "allreduce")
        for key, problem in _all_reduce(job, collective.allreduce):
            yield (*trail, key), problem


def _own(job: CustomJobSection) -> dict[str, int]:
    """Return the iterations of every task."""
    return {task.name: task.iterations or job.iterations for task in job.tasks}


def _flows(job: CustomJobSection) -> Iterator[tuple[Trail, str]]:
    own = _own(job)
    gates = {task.name for task in job.tasks if task.gate}
    for position, flow in enumerate(job.flows):
        trail: Trail = ("job", "flows", position)
        for key, name in (("from", flow.source), ("to", flow.destination)):
            if name not in own:
                yield (*trail, key), f"no task {name!r}, {nearest(name, own)}"
            if name in gates and _brings(flow.volume):
                problem = f"no bytes come to or leave the gate {name!r}, write 0 B"
                yield (*trail, "volume"), problem
            if name in gates and flow.reads == "latest":
                problem = f"no process runs the gate {name!r}: nothing is read, remove"
                yield (*trail, "reads"), problem
            if name in gates and flow.channel:
                problem = f"nothing is sent to or from the gate {name!r}, remove this"
                yield (*trail, "channel"), problem
        needed = own.get(flow.source, job.iterations)
        yield from _enough(flow.volume, needed, (*trail, "volume"))


def _all_reduce(
    job: CustomJobSection, one: AllReduceSection
) -> Iterator[tuple[str, str]]:
    """Yield key and problem of a collective."""
    yield from _ranks(job, one)
    own = _own(job)
    rounds = {name: own[name] for name in one.among if name in own}
    if len(set(rounds.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in rounds.items())
        yield "among", f"found different numbers of iterations: {told}"
    if not one.then and one.lag == 0:
        yield "lag", "found 0: who brings can wait for the sum later only, write 1"
    if not _brings(one.volume):
        yield "volume", "found 0 bytes, there is nothing to reduce"
    for _, problem in _enough(one.volume, max(rounds.values(), default=1), ()):
        yield "volume", problem


def _ranks(job: CustomJobSection, one: AllReduceSection) -> Iterator[tuple[str, str]]:
    gates = {task.name: task.gate for task in job.tasks}
    if len(one.among) < 2:
        yield "among", "one task alone has nothing to reduce, name two or more"
    if one.then and len(one.then) != len(one.among):
        problem = f"found {len(one.then)} for {len(one.among)} tasks, name one for each"
        yield "then", problem
    for key, names in (("among", one.among), ("then", one.then)):
        for name, count in Counter(names).items():
            if name not in gates:
                yield key, f"no task {name!r}, {nearest(name, gates)}"
            elif count > 1:
                yield key, f"{name!r} occurs {count} times"
            elif gates[name] and key == "among":
                yield key, f"{name!r} is a gate, it brings nothing"


def _processes(job: CustomJobSection) -> Iterator[tuple[Trail, str]]:
    """Yield tasks of one process with two pins, and names that mean two processes."""
    process_of = {task.name: _process(task) for task in job.tasks}
    pins: dict[str, CustomTaskSection] = {}
    for position, task in enumerate(job.tasks):
        trail: Trail = ("job", "tasks", position)
        process = process_of[task.name]
        word = "server" if task.server else "process"
        elsewhere = process_of.get(process, process)
        if elsewhere != process:
            problem = f"task {process!r} runs in process {elsewhere!r}, write that one"
            yield (*trail, word), problem
        for key in ("process", "slot", "takes", "frees"):
            if task.server and getattr(task, key):
                problem = f"a server is a process with one slot, write it or {key}"
                yield (*trail, "server"), problem
        if task.pin is None:
            continue
        first = pins.setdefault(process, task)
        if first.pin != task.pin:
            problem = (
                f"found {task.pin!r}, but {first.name} of the same {word} "
                f"{process!r} must stand on {first.pin}"
            )
            yield (*trail, "pin"), problem


def _process(task: CustomTaskSection) -> str:
    return task.process or task.server or task.name


def slot_errors(
    job: CustomJobSection, cluster: ClusterSection
) -> Iterator[tuple[Trail, str]]:
    """Yield slots that are taken or given back where there are none."""
    offered = sorted({pool for m in cluster.machines for pool in m.slots})
    taken = {name for task in job.tasks for name in (task.slot, task.takes) if name}
    for position, task in enumerate(job.tasks):
        trail: Trail = ("job", "tasks", position)
        if task.slot and (task.takes or task.frees):
            problem = "slot says both what is taken and freed, write it or takes, frees"
            yield (*trail, "slot"), problem
        for key in ("slot", "takes"):
            name = getattr(task, key)
            if name and name not in offered:
                yield (
                    (*trail, key),
                    f"no machine has slots of {name!r}, {_known(name, offered)}",
                )
            elif name and name == _process(task):
                problem = f"the process is called {name!r} too, call one otherwise"
                yield (*trail, key), problem
        freed = task.given_back()
        if freed and freed not in taken:
            yield (
                (*trail, "frees"),
                f"no task takes a slot of {freed!r}, {_known(freed, taken)}",
            )
        if task.server in offered:
            problem = f"machines have slots called {task.server!r}, call it otherwise"
            yield (*trail, "server"), problem


def _brings(volume: float | tuple[float, ...]) -> bool:
    return any(volume) if isinstance(volume, tuple) else volume > 0


def _known(name: str, among: Collection[str]) -> str:
    return nearest(name, sorted(among)) if among else "there are no pools"


def _enough(
    values: object, iterations: int, trail: Trail
) -> Iterator[tuple[Trail, str]]:
    if isinstance(values, tuple) and len(values) < iterations:
        problem = (
            f"found {len(values)} values for {iterations} iterations, "
            f"write {iterations} or a single one"
        )
        yield trail, problem


def replica_errors(
    job: ReplicaSection, cluster: ClusterSection
) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right)."""
    known = [name for name, _ in cluster.named()]
    counts = Counter(job.machines or ())
    for position, name in enumerate(job.machines or ()):
        trail: Trail = ("job", "machines", position)
        if name not in known:
            yield trail, f"no machine {name!r}, {nearest(name, known)}"
        elif counts[name] > 1:
            yield trail, f"{name!r} occurs {counts[name]} times"
    if isinstance(job, P3JobSection):
        yield from _p3(job, len(job.ranks(known)))


def _p3(job: P3JobSection, machines: int) -> Iterator[tuple[Trail, str]]:
    members = job.cache or machines
    if machines % members:
        fitting = [c for c in range(1, machines + 1) if machines % c == 0]
        problem = (
            f"found {members}, which does not divide {machines} machines, "
            f"write one of {', '.join(map(str, fitting))}"
        )
        yield ("job", "cache"), problem
    elif job.columns and len(job.columns) != members:
        problem = (
            f"found {len(job.columns)} shares for {members} machines of a group, "
            "write one each"
        )
        yield ("job", "columns"), problem
    elif job.columns and not sum(job.columns):
        yield ("job", "columns"), "found only zeros, somebody must hold the columns"
    if job.push == "derived" and job.structure == "hashed":
        problem = "found derived, which needs the whole structure: write shipped"
        yield ("job", "push"), problem
    phases = PIPELINES[job.pipeline].depth + 1
    if job.iterations is not None and job.iterations < phases:
        problem = (
            f"found {job.iterations} mini-batches, pipeline {job.pipeline} has "
            f"{phases} under way: write {phases} or more, or pipeline: none"
        )
        yield ("job", "iterations"), problem
