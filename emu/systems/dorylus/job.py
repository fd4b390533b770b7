"""The Dorylus job (Thorpe et al., OSDI 2021): graph tasks on servers, apply in lambdas.

Interval i of N per server belongs to server ``i // N``. In every epoch it runs, for L
layers: ``ga0_i``, ``av0_i``, ``sc_i``, ``ga1_i``, ``av1_i`` (the last apply, fused with
its backward pass unless stated otherwise), then backwards ``dsc_i``, ``dga_i``,
``dav_i``. Scatters and backward tasks have their layer in the name where L > 2.

A tensor task k runs in the interval's lambda: ``call{k}_i`` takes a slot of the quota
and sends, ``back{k}_i`` receives the answer and gives the slot back. Where a launch
takes time, ``launch{k}_i`` takes the slot as soon as the graph task before it has its
thread (``begin{k}_i``).

Ghost rows of interval i arrive on server g at ``in_i_g`` and ``din_i_g``; with one
receiver per server at ``in_g`` and ``din_g``. ``wu{l}`` updates the weights of layer l;
several parameter servers q sum in ``sum{l}_q``, exchange and update in ``wu{l}_q``.
A GAT has ``av``, ``sc``, ``ae`` and ``ga`` per layer, and backwards ``dae``, ``dsc``,
``dga`` and ``dav``: ``ae`` and ``dae`` on the edges into an interval; the first task of
``ae`` reads the ghosts.

Gates: ``done`` ends an epoch, ``full_g`` and ``dfull_g`` the first one in server g,
``stage{s}`` a stage without pipeline.

Every server waits for every interval, with ghosts or without: an interval without
sends nothing there, as order alone.

Lambdas that are launched where others do not answer: number a of those that work at
step k of interval i, from 2 on, has the names of the first with ``.a`` behind.
``call{k}_i.a`` waits for the timeout, launches it and sends, ``av0_i.a`` computes in
the same process, with the weights of the first, which ``stash_av0_i.a`` sends once
more. The answer goes to ``back{k}_i``, which drops what is empty. One that answers too
late does so as soon as the next is launched: ``av0_i.late`` sends it, or
``av0_i.a.late``, and ``late{k}_i`` on the server drops it. Only the attempts are there
that some epoch needs; in the others they take no time and send no bytes. The slot of
the quota is held until the answer.

Asynchrony S: an interval enters epoch n once every one has ended n - S - 1; gathers and
the first use of weights read the newest that has arrived.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from emu.problem import Job, Task
from emu.systems.dorylus.deaths import IDLE, LATE
from emu.systems.dorylus.graph import Graph
from emu.systems.dorylus.steps import LAMBDAS, THREADS, Step

if TYPE_CHECKING:
    from emu.systems.dorylus.section import DorylusJobSection
    from emu.systems.job_section import BuildContext


def suffix(number: int) -> str:
    """Return what stands behind the names of an attempt's tasks."""
    return f".{number}" if number > 1 else ""


def add_relaunches(graph: Graph, server: Task, away: Task, step: Step) -> None:
    """Add who works at a step of an interval where the first does not answer.

    ``server``, ``away``: what the tasks of this interval and step on its server, and in
    its lambda, have in common.
    """
    i, tensor = away.settings["interval"], away.settings["tensor"]
    attempts = graph.attempts.get((i, tensor), [])
    for number, attempt in enumerate(attempts, 1):
        end = suffix(number)
        there = [float(end != IDLE) for end in attempt.ends]  # works unless it is idle
        own: dict[str, Any] = {"attempt": number, **attempt.settings, "done": there}
        if number > 1:
            graph.add(server, f"call{tensor}_{i}{end}", "recall", settings=own)
            whole = {**own, **attempt.settings}
            graph.add(away, f"{step.name}_{i}{end}", step.kind, settings=whole)
        if LATE in attempt.ends:
            own["of"] = step.kind
            graph.add(away, f"{step.name}_{i}{end}.late", "held", settings=own)
            graph.add(server, f"late{tensor}_{i}{end}", "late", settings=own)
        if number > 1 and _pulls_weights(graph, step):
            chosen = i % len(graph.section.parameter_servers)
            what = {"layer": step.layer, "interval": i, "for": step.kind, **own}
            here = graph.on_parameter_server(chosen)
            graph.add(here, _stash_again(step, i, end), "stash", settings=what)


def join_relaunches(graph: Graph, i: int, tensor: int, step: Step) -> None:
    """Join them."""
    name = f"{step.name}_{i}"
    attempts = graph.attempts.get((i, tensor), [])
    for number, previous in enumerate(attempts[:-1], 2):
        before, end = suffix(number - 1), suffix(number)
        call = f"call{tensor}_{i}{end}"
        graph.join(f"call{tensor}_{i}{before}", call, credit=True)
        graph.join(call, name + end)
        graph.join(name + end, f"back{tensor}_{i}")
        if LATE in previous.ends:
            late = f"{name}{before}.late"
            graph.join(name + before, late)
            graph.join(call, late, credit=True)
            graph.join(late, f"late{tensor}_{i}{before}")
        if _pulls_weights(graph, step):
            stash = _stash_again(step, i, end)
            graph.join(f"av{step.layer}_{i}", stash)
            graph.join(call, stash, credit=True)
            graph.join(stash, name + end)
        if graph.sends_gradient(step):
            server = i % len(graph.section.parameter_servers)
            graph.join(name + end, graph.sums[step.layer][server])


def _pulls_weights(graph: Graph, step: Step) -> bool:
    needs = step.needs_weights(rematerialize=graph.section.rematerialize)
    return step.kind == "apply" or needs


def _stash_again(step: Step, i: int, end: str) -> str:
    return f"stash_{step.name}_{i}{end}"


def dorylus_job(section: DorylusJobSection, context: BuildContext) -> Job:
    """Return the job that a section states, whose iterations are epochs.

    Tasks of every interval, then of the parameter servers, the gates, the receivers.

    Raises UnansweredLambda and ValueError as `Graph` and `Job`.
    """
    graph = Graph(section, context)
    for interval in range(graph.count):
        _interval_tasks(graph, interval)
    _parameter_tasks(graph)
    graph.add(graph.on_server(0), "done", "barrier", gate=True)
    together = section.receives_together(graph.count)
    receive = _receivers_together if together else _receivers
    exchanges = [
        (step, graph.steps[place + 1], step.name.replace("sc", "in"))
        for place, step in enumerate(graph.steps)
        if step.kind.startswith("scatter")
    ]
    for interval in range(graph.count):
        _interval_edges(graph, interval)
    for sums, updates in zip(graph.sums, graph.updates, strict=True):
        # What each parameter server has summed goes into the updates of all.
        for total, update in product(sums if len(sums) > 1 else (), updates):
            graph.join(total, update)
    for scatter, gather, prefix in exchanges:
        receive(graph, scatter, gather, prefix)
    if section.mode == "no_pipe":
        _stages(graph)
    settings = section.settings(context)
    return Job(tuple(graph.tasks), tuple(graph.edges), section.epochs, settings)


def _interval_tasks(graph: Graph, i: int) -> None:
    section, tensors = graph.section, 0
    server = graph.on_server(i // section.intervals)
    server = replace(server, settings={**server.settings, "interval": i})
    for step in graph.steps:
        what, name = {"layer": step.layer, "step": step.name}, f"{step.name}_{i}"
        if step.tensor and graph.lambdas:
            _lambda_tasks(graph, server, i, tensors, step)
            tensors += 1
        elif not step.tensor and graph.entry[step.name] != step.name:
            # The lambda is launched when this task has its thread.
            begin = f"{graph.entry[step.name]}_{i}"
            graph.add(server, begin, "begin", takes=THREADS, frees="", settings=what)
            graph.add(server, name, step.kind, frees=THREADS, settings=what)
        else:
            pool = "gpu" if step.tensor and section.backend == "gpu" else THREADS
            graph.add(server, name, step.kind, takes=pool, settings=what)


def _lambda_tasks(graph: Graph, server: Task, i: int, number: int, step: Step) -> None:
    """Add what the launch of one lambda of an interval takes, to its answer."""
    section = graph.section
    what = {"layer": step.layer, "step": step.name, "tensor": number}
    slots = {"takes": LAMBDAS, "frees": ""}
    if section.launch.takes_time:
        graph.add(server, f"launch{number}_{i}", "launch", settings=what, **slots)
        slots = {}
    graph.add(server, f"call{number}_{i}", "call", settings=what, **slots)
    away = replace(server, pinned=graph.lambdas[i], process=f"lambda{i}")
    if section.stream > 1:
        first = {**what, "part": 0}
        graph.add(away, f"{step.name}_{i}.first", step.kind, settings=first)
    rest = {**what, "part": section.stream - 1}
    attempts = graph.attempts.get((i, number), [])
    ends = attempts[0].settings if attempts else {}
    graph.add(away, f"{step.name}_{i}", step.kind, settings=rest | ends)
    graph.add(server, f"back{number}_{i}", "answer", frees=LAMBDAS, settings=what)
    server, away = (
        replace(one, settings={**one.settings, **more})
        for one, more in ((server, what), (away, rest))
    )
    add_relaunches(graph, server, away, step)


def _interval_edges(graph: Graph, i: int) -> None:
    """Join the tasks of an interval, its weights and its gates."""
    tensors, before = 0, ""
    for step in graph.steps:
        name = f"{step.name}_{i}"
        if step.tensor and graph.lambdas:
            call = f"call{tensors}_{i}"
            _weight_edges(graph, i, step, call)
            before = _lambda_edges(graph, i, tensors, step, before)
            join_relaunches(graph, i, tensors, step)
            tensors += 1
            continue
        begin = f"{graph.entry[step.name]}_{i}"
        if begin != name:
            graph.join(begin, name)
            graph.join(begin, f"launch{tensors}_{i}")
        if before:
            graph.join(before, begin)
        if step.tensor:
            _weight_edges(graph, i, step, before)
        before = name
    graph.join(before, "done", credit=True)
    start = graph.entry[graph.steps[0].name]
    graph.join("done", f"{start}_{i}", graph.section.lag)


def _lambda_edges(graph: Graph, i: int, number: int, step: Step, before: str) -> str:
    """Join a lambda with the task before it; return its last task."""
    section, name = graph.section, f"{step.name}_{i}"
    call, back = f"call{number}_{i}", f"back{number}_{i}"
    if section.launch.takes_time:
        launch = f"launch{number}_{i}"
        if before:
            ready = before.startswith("back") or step.kind == "edge_apply"
            graph.join(before, launch if ready else call)
        graph.join(launch, call)
    elif before:
        graph.join(before, call)
    if section.stream > 1:
        channel = f"{name} pulls"
        graph.join(call, f"{name}.first", channel=channel)
        graph.join(call, name, channel=channel)
        graph.join(f"{name}.first", name)
        graph.join(f"{name}.first", back, channel=f"{name} answers")
        graph.join(name, back, channel=f"{name} answers")
    else:
        graph.join(call, name)
        graph.join(name, back)
    return back


def _weight_edges(graph: Graph, i: int, step: Step, asks: str) -> None:
    """Join a tensor task with its parameter server: weights, stash, gradient.

    ``asks``: task after which the stashed weights are sent.
    """
    section, name = graph.section, f"{step.name}_{i}"
    server = i % len(section.parameter_servers)
    first = f"{name}.first" if section.stream > 1 and graph.lambdas else name
    if graph.sends_gradient(step):
        graph.join(name, graph.sums[step.layer][server])
    if step.kind == "apply":
        update, latest = graph.updates[step.layer][server], section.mode == "async"
        graph.join(update, first, section.lag, latest=latest)
    elif step.needs_weights(rematerialize=section.rematerialize):
        stash = _stash(step, i)
        graph.join(f"av{step.layer}_{i}", stash)
        graph.join(asks, stash)
        graph.join(stash, first)


def _parameter_tasks(graph: Graph) -> None:
    """Add the updates of all weights, and what the servers stash for each interval."""
    section = graph.section
    many = len(section.parameter_servers)
    for layer, (sums, updates) in enumerate(
        zip(graph.sums, graph.updates, strict=True)
    ):
        own = {"layer": layer}
        for number in range(many):
            here = graph.on_parameter_server(number)
            if many > 1:
                graph.add(here, sums[number], "gradient_sum", settings=own)
            graph.add(here, updates[number], "weight_update", settings=own)
    for step in graph.steps:
        if step.needs_weights(rematerialize=section.rematerialize):
            for i in range(graph.count):
                here = graph.on_parameter_server(i % many)
                what = {"layer": step.layer, "interval": i, "for": step.kind}
                graph.add(here, _stash(step, i), "stash", settings=what)


def _stash(step: Step, i: int) -> str:
    """Return the name of the task that sends an interval the weights it has used."""
    return f"stash_{step.name}_{i}" if step.of_edges else f"stash{step.layer}_{i}"


def _receivers(graph: Graph, scatter: Step, gather: Step, prefix: str) -> None:
    """Receive the ghosts of every interval by a task of its own."""
    section, asynchronous = graph.section, graph.section.mode == "async"
    lag = section.lag if asynchronous else 0
    full = _first_epoch(graph, gather, prefix)
    for i in range(graph.count):
        for g in range(len(graph.servers)):
            source = f"{scatter.name}_{i}"
            if i // section.intervals != g:
                source = f"{prefix}_{i}_{g}"
                own = {"layer": scatter.layer, "interval": i, "kind": scatter.kind}
                graph.add(graph.on_server(g), source, "ghosts", settings=own)
                graph.join(f"{scatter.name}_{i}", source)
            for j in graph.of_server(g):
                if j != i:
                    to = f"{graph.entry[gather.name]}_{j}"
                    graph.join(source, to, lag, latest=asynchronous)
            if full:
                graph.join(source, full[g], credit=True)


def _receivers_together(graph: Graph, scatter: Step, gather: Step, prefix: str) -> None:
    """Receive the ghosts of all intervals by one task per server.

    Its iteration m shows the gathers what every interval has sent in epoch m or later.
    """
    section, asynchronous = graph.section, graph.section.mode == "async"
    lag = section.lag if asynchronous else 0
    full = _first_epoch(graph, gather, prefix)
    for g in range(len(graph.servers)):
        receiver = f"{prefix}_{g}"
        own = {"layer": scatter.layer, "kind": scatter.kind}
        graph.add(graph.on_server(g), receiver, "ghosts", settings=own)
        for i in range(graph.count):
            graph.join(f"{scatter.name}_{i}", receiver, latest=asynchronous)
        for j in graph.of_server(g):
            graph.join(
                receiver, f"{graph.entry[gather.name]}_{j}", lag, latest=asynchronous
            )
        if full:
            graph.join(receiver, full[g], credit=True)


def _first_epoch(graph: Graph, gather: Step, prefix: str) -> list[str]:
    """Add and return a gate per server that holds the gathers of the first epoch."""
    section = graph.section
    if section.mode != "async" or section.first_epoch != "sync":
        return []
    gates = []
    for g in range(len(graph.servers)):
        gate = prefix.replace("in", "full") + f"_{g}"
        graph.add(graph.on_server(g), gate, "barrier", gate=True, iterations=1)
        for j in graph.of_server(g):
            graph.join(gate, f"{graph.entry[gather.name]}_{j}", credit=True)
        gates.append(gate)
    return gates


def _stages(graph: Graph) -> None:
    """Let every task wait until all intervals have ended the one before it."""
    tensors = 0
    for place, step in enumerate(graph.steps):
        first, last = graph.entry[step.name], step.name
        if step.tensor and graph.lambdas:
            first, last = f"call{tensors}", f"back{tensors}"
            tensors += 1
        if place:
            for i in range(graph.count):
                graph.join(f"stage{place}", f"{first}_{i}", credit=True)
        if place + 1 < len(graph.steps):
            gate = f"stage{place + 1}"
            graph.add(graph.on_server(0), gate, "barrier", gate=True)
            for i in range(graph.count):
                graph.join(f"{last}_{i}", gate, credit=True)
