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

Lambdas that are launched where others do not answer have tasks of their own, see
`_add_relaunches`.

Asynchrony S: an interval enters epoch n once every one has ended n - S - 1; gathers and
the first use of weights read the newest that has arrived.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from emu.problem import Job, Task
from emu.problem.workloads.all_reduce import build_named_job
from emu.systems.dorylus.deaths import IDLE, LATE
from emu.systems.dorylus.graph import Graph
from emu.systems.dorylus.steps import LAMBDAS, THREADS, Step

if TYPE_CHECKING:
    from emu.systems import Settings
    from emu.systems.dorylus.sections import DorylusKeys
    from emu.systems.job_section import BuildContext


def dorylus_job(section: DorylusKeys, context: BuildContext) -> Job:
    """Return the job that a section states, whose iterations are epochs.

    Tasks of every interval, then of the parameter servers, the gates, the receivers.

    Raises UnansweredLambda and ValueError as `Graph` and `Job`.
    """
    graph = Graph(section, context)
    for interval in range(graph.count):
        _add_interval(graph, interval)
    _parameter_tasks(graph)
    graph.add_gate(0, "done")
    if len(section.parameter_servers) > 1:
        # What each parameter server has summed goes into the updates of all.
        layers = zip(graph.sums, graph.updates, strict=True)
        for sums, updates in layers:
            for total, update in product(sums, updates):
                graph.join(total, update)

    is_joint = section.receives_together(graph.count)
    add_receivers = _receivers_together if is_joint else _receivers
    for place, step in enumerate(graph.steps):
        if step.kind.startswith("scatter"):
            gather = graph.steps[place + 1]
            add_receivers(graph, step, gather)
    if section.mode == "no_pipe":
        _stages(graph)

    return build_named_job(
        tasks=graph.tasks,
        edges=graph.edges,
        iterations=section.epochs,
        settings=section.settings(context),
    )


def _add_interval(graph: Graph, i: int) -> None:
    """Add the tasks of an interval, join them, its weights and its gates."""
    section = graph.section
    server = graph.on_server(i // section.intervals)
    tensor = 0
    previous = ""
    for step in graph.steps:
        settings = {
            **server.settings,
            "interval": i,
            "layer": step.layer,
            "step": step.name,
        }
        template = replace(server, settings=settings)
        if step.tensor and graph.lambdas:
            previous = _add_lambda(graph, template, tensor, step, previous)
            tensor += 1
            continue

        name = f"{step.name}_{i}"
        entry = f"{graph.entry[step.name]}_{i}"
        if entry != name:
            # The lambda is launched when this task has its thread.
            graph.add(template, entry, "begin", takes=THREADS, frees="")
            graph.add(template, name, step.kind, frees=THREADS)
            graph.join(entry, name)
            graph.join(entry, f"launch{tensor}_{i}")
        else:
            # With backend `cpu` applies wait for the same threads as gathers do.
            pool = THREADS
            if step.tensor and section.backend == "gpu":
                pool = "gpu"
            graph.add(template, name, step.kind, takes=pool)
        if previous:
            graph.join(previous, entry)
        if step.tensor:
            _weight_edges(graph, i, step, previous)
        previous = name

    graph.order(previous, "done")
    # It enters epoch n once every interval has ended epoch n - lag.
    first_step = graph.steps[0]
    entry = f"{graph.entry[first_step.name]}_{i}"
    graph.join("done", entry, section.lag)


def _add_lambda(
    graph: Graph,
    server: Task,
    k: int,
    step: Step,
    previous: str,
) -> str:
    """Add tensor task k of an interval, from its launch to its answer, the last task.

    ``server``: what the interval's tasks of this step have in common; ``previous``:
    the last task before them.
    """
    section = graph.section
    i = server.settings["interval"]
    settings = {**server.settings, "tensor": k}
    server = replace(server, settings=settings)
    last_part = section.stream - 1
    remote = replace(
        server,
        pinned=graph.lambdas[i],
        process=f"lambda{i}",
        settings={**settings, "part": last_part},
    )
    attempts = graph.attempts.get((i, k), [])
    name = f"{step.name}_{i}"
    launch = f"launch{k}_{i}"
    call = f"call{k}_{i}"
    back = f"back{k}_{i}"
    slots = {"takes": LAMBDAS, "frees": ""}
    if section.launch.takes_time:
        graph.add(server, launch, "launch", **slots)
        # The launch has taken the slot, and the call must not take another.
        slots = {}
    graph.add(server, call, "call", **slots)
    if section.stream > 1:
        graph.add(remote, f"{name}.first", step.kind, settings={"part": 0})

    # Where every lambda answers, nothing is said of ends.
    ends = {}
    if attempts:
        ends = attempts[0].settings
    graph.add(remote, name, step.kind, settings=ends)
    # The slot is given back with the answer, not with the end of the lambda's work.
    graph.add(server, back, "answer", frees=LAMBDAS)

    _join_lambda(graph, i, k, step, previous)
    _add_relaunches(graph, server, remote, step)
    return back


def _join_lambda(
    graph: Graph,
    i: int,
    k: int,
    step: Step,
    previous: str,
) -> None:
    """Join the tasks of `_add_lambda`."""
    takes_time = graph.section.launch.takes_time
    name = f"{step.name}_{i}"
    launch = f"launch{k}_{i}"
    call = f"call{k}_{i}"
    back = f"back{k}_{i}"

    _weight_edges(graph, i, step, call)
    if previous:
        # A launch that the graph task before it does not begin follows that task.
        follows = previous.startswith("back") or not step.launches_early
        successor = call
        if takes_time and follows:
            successor = launch
        graph.join(previous, successor)
    if takes_time:
        graph.join(launch, call)

    if graph.section.stream > 1:
        first = f"{name}.first"
        pulls = f"{name} pulls"
        answers = f"{name} answers"
        graph.join(call, first, channel=pulls)
        graph.join(call, name, channel=pulls)
        graph.join(first, name)
        graph.join(first, back, channel=answers)
        graph.join(name, back, channel=answers)
    else:
        graph.join(call, name)
        graph.join(name, back)


def _add_relaunches(
    graph: Graph,
    server: Task,
    remote: Task,
    step: Step,
) -> None:
    """Add who works at a step of an interval where the first does not answer.

    ``server``, ``remote``: what the tasks of this interval and step on its server, and
    in its lambda, have in common.

    Number a of those that work at step k of interval i, from 2 on, has the names of the
    first with ``.a`` behind. ``call{k}_i.a`` waits for the timeout, launches it and
    sends, ``av0_i.a`` computes in the same process, with the weights of the first,
    which ``stash_av0_i.a`` sends once more. The answer goes to ``back{k}_i``, which
    drops what is empty. One that answers too late does so as soon as the next is
    launched: ``av0_i.late`` sends it, or ``av0_i.a.late``, and ``late{k}_i`` on the
    server drops it. Only the attempts are there that some epoch needs; in the others
    they take no time and send no bytes. The slot of the quota is held until the answer.
    """
    interval = remote.settings["interval"]
    tensor = remote.settings["tensor"]
    attempts = graph.attempts.get((interval, tensor), [])
    key = f"{tensor}_{interval}"
    name = f"{step.name}_{interval}"
    mark_before = ""  # of the attempt before
    for number, attempt in enumerate(attempts, 1):
        mark = f".{number}" if number > 1 else ""
        call = f"call{key}{mark}"
        work = f"{name}{mark}"
        settings: Settings = {"attempt": number, **attempt.settings}
        # The server waits, launches and drops in full, whatever part a lambda does.
        is_launched = [float(end != IDLE) for end in attempt.ends]
        on_server = {**settings, "done": is_launched}

        if number > 1:
            call_before = f"call{key}{mark_before}"
            work_before = f"{name}{mark_before}"
            graph.add(server, call, "recall", settings=on_server)
            graph.add(remote, work, step.kind, settings=settings)
            graph.order(call_before, call)
            graph.join(call, work)
            graph.join(work, f"back{key}")

            attempt_before = attempts[number - 2]
            if LATE in attempt_before.ends:
                _hold_answer(graph, work_before, call, late=f"late{key}{mark_before}")
        if LATE in attempt.ends:
            late = {**on_server, "of": step.kind}
            graph.add(remote, f"{work}.late", "held", settings=late)
            graph.add(server, f"late{key}{mark}", "late", settings=late)
        if number > 1:
            _join_parameter_server(
                graph,
                interval,
                step,
                call=call,
                work=work,
                settings=on_server,
            )
        mark_before = mark


def _hold_answer(graph: Graph, work: str, call: str, late: str) -> None:
    """Have ``work`` answer at the next ``call``, to a task that drops it."""
    hold = f"{work}.late"
    graph.join(work, hold)
    graph.order(call, hold)
    graph.join(hold, late)


def _join_parameter_server(
    graph: Graph,
    interval: int,
    step: Step,
    *,
    call: str,
    work: str,
    settings: Settings,
) -> None:
    """Give a lambda launched later the weights of the first, and take its gradient."""
    home = interval % len(graph.section.parameter_servers)
    if step.kind == "apply" or graph.stashes(step):
        stash = f"stash_{work}"
        template = graph.on_parameter_server(home)
        place = _place_of(step, interval)
        graph.add(template, stash, "stash", settings={**place, **settings})
        graph.join(f"av{step.layer}_{interval}", stash)
        graph.order(call, stash)
        graph.join(stash, work)
    if graph.sends_gradient(step):
        sums = graph.sums[step.layer]
        graph.join(work, sums[home])


def _place_of(step: Step, interval: int) -> dict[str, int | str]:
    """Return the settings of a task that sends weights for a step."""
    return {
        "layer": step.layer,
        "interval": interval,
        "for": step.kind,
    }


def _weight_edges(
    graph: Graph,
    i: int,
    step: Step,
    caller: str,
) -> None:
    """Join a tensor task and its parameter server; a stash follows the caller."""
    section = graph.section
    name = f"{step.name}_{i}"
    home = i % len(section.parameter_servers)
    first = name
    if section.stream > 1 and graph.lambdas:
        first = f"{name}.first"

    if graph.sends_gradient(step):
        sums = graph.sums[step.layer]
        graph.join(name, sums[home])
    # The first use of weights in an epoch reads them; later ones get the same (5.1).
    if step.kind == "apply":
        updates = graph.updates[step.layer]
        is_async = section.mode == "async"
        graph.join(updates[home], first, section.lag, latest=is_async)
    elif graph.stashes(step):
        stash = _stash(step, i)
        # The apply tells its version, and the caller that its lambda is up to take it.
        graph.join(f"av{step.layer}_{i}", stash)
        graph.join(caller, stash)
        graph.join(stash, first)


def _parameter_tasks(graph: Graph) -> None:
    """Add the updates of all weights, and what the servers stash for each interval."""
    section = graph.section
    count = len(section.parameter_servers)
    servers = [graph.on_parameter_server(number) for number in range(count)]
    for layer in range(section.model.layers):
        sums = graph.sums[layer]
        updates = graph.updates[layer]
        place = {"layer": layer}
        for number, server in enumerate(servers):
            # A single server sums and steps in one task: it exchanges nothing.
            if count > 1:
                graph.add(server, sums[number], "gradient_sum", settings=place)
            graph.add(server, updates[number], "weight_update", settings=place)

    for step in graph.steps:
        if not graph.stashes(step):
            continue
        for i in range(graph.count):
            server = servers[i % count]
            stash = _stash(step, i)
            graph.add(server, stash, "stash", settings=_place_of(step, i))


def _stash(step: Step, i: int) -> str:
    """Return the name of the task that sends an interval the weights it has used."""
    if step.of_edges:
        return f"stash_{step.name}_{i}"
    return f"stash{step.layer}_{i}"


def _receivers(graph: Graph, scatter: Step, gather: Step) -> None:
    """Receive the ghosts of every interval by a task of its own."""
    section = graph.section
    is_async = section.mode == "async"
    lag = section.lag if is_async else 0
    gates = _first_epoch(graph, scatter, gather)
    for i in range(graph.count):
        place = {
            "layer": scatter.layer,
            "interval": i,
            "kind": scatter.kind,
        }
        scatter_task = f"{scatter.name}_{i}"
        for g in range(len(graph.servers)):
            source = scatter_task
            # Rows of a server's own intervals are in its memory: no task takes them in.
            if i not in graph.of_server(g):
                source = f"{scatter.receiver}_{i}_{g}"
                server = graph.on_server(g)
                graph.add(server, source, "ghosts", settings=place)
                graph.join(scatter_task, source)

            for j in graph.of_server(g):
                # An interval's own rows follow from the order of its tasks.
                if j != i:
                    reader = f"{graph.entry[gather.name]}_{j}"
                    graph.join(source, reader, lag, latest=is_async)
            if gates:
                graph.order(source, gates[g])


def _receivers_together(graph: Graph, scatter: Step, gather: Step) -> None:
    """Receive the ghosts of all intervals by one task per server.

    Its iteration m shows the gathers what every interval has sent in epoch m or later.
    """
    section = graph.section
    is_async = section.mode == "async"
    lag = section.lag if is_async else 0
    gates = _first_epoch(graph, scatter, gather)
    place = {
        "layer": scatter.layer,
        "kind": scatter.kind,
    }
    for g in range(len(graph.servers)):
        server = graph.on_server(g)
        receiver = f"{scatter.receiver}_{g}"
        graph.add(server, receiver, "ghosts", settings=place)

        for i in range(graph.count):
            # No lag here: it waits for all to send epoch m, and may show later.
            source = f"{scatter.name}_{i}"
            graph.join(source, receiver, latest=is_async)
        for j in graph.of_server(g):
            reader = f"{graph.entry[gather.name]}_{j}"
            graph.join(receiver, reader, lag, latest=is_async)
        if gates:
            graph.order(receiver, gates[g])


def _first_epoch(graph: Graph, scatter: Step, gather: Step) -> list[str]:
    """Add and return a gate per server that holds the gathers of the first epoch."""
    section = graph.section
    # Without it the first gathers would read rows that nobody has sent yet (specs, 5b).
    holds_first = section.mode == "async" and section.first_epoch == "sync"
    if not holds_first:
        return []

    gates = []
    word = scatter.receiver.replace("in", "full")
    for g in range(len(graph.servers)):
        gate = f"{word}_{g}"
        # One iteration alone: later epochs pass without it.
        graph.add_gate(g, gate, iterations=1)
        for j in graph.of_server(g):
            reader = f"{graph.entry[gather.name]}_{j}"
            graph.order(gate, reader)
        gates.append(gate)
    return gates


def _stages(graph: Graph) -> None:
    """Let every task wait until all intervals have ended the one before it."""
    tensor = 0
    last_place = len(graph.steps) - 1
    for place, step in enumerate(graph.steps):
        first = graph.entry[step.name]
        last = step.name
        if step.tensor and graph.lambdas:
            first = f"call{tensor}"
            last = f"back{tensor}"
            tensor += 1

        if place:
            for i in range(graph.count):
                # Order alone: no byte goes by way of a gate.
                graph.order(f"stage{place}", f"{first}_{i}")
        if place < last_place:
            gate = f"stage{place + 1}"
            graph.add_gate(0, gate)
            for i in range(graph.count):
                graph.order(f"{last}_{i}", gate)
