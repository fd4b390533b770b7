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
from emu.problem.workloads.all_reduce import NamedEdge, build_named_job
from emu.systems.dorylus.deaths import IDLE, LATE, Attempt, draw_attempts
from emu.systems.dorylus.steps import LAMBDAS, PROGRAMS, THREADS, Step

if TYPE_CHECKING:
    from emu.systems.dorylus.sections import DorylusKeys
    from emu.systems.job_section import BuildContext


class Graph:
    """Tasks and edges of the job that a section states, under construction.

    Raises UnansweredLambda as `draw_attempts`.

    Attributes
    ----------
    servers, lambdas
        Machines of the graph servers, and of every interval's lambda; without lambdas
        tensor tasks run on the servers.
    count
        Intervals of all servers.
    entry
        First task of every step, by the step's name.
    attempts
        (Interval, number of the tensor task) -> who works at it, of those that need
        several in some epoch.
    """

    def __init__(self, section: DorylusKeys, context: BuildContext) -> None:
        self.section = section
        self.servers = section.ranks(context.machines)
        self.lambdas = section.lambdas_of(self.servers)
        self.count = len(self.servers) * section.intervals
        self.steps: list[Step] = section.steps
        self.tasks: list[Task] = []
        self.edges: list[NamedEdge] = []
        tensors = 0
        self.entry: dict[str, str] = {}
        takes_time = bool(self.lambdas) and section.launch.takes_time
        for place, step in enumerate(self.steps):
            following = self.steps[min(place + 1, len(self.steps) - 1)]
            self.entry[step.name] = step.name
            if step.tensor and self.lambdas:
                first = "launch" if takes_time else "call"
                self.entry[step.name] = f"{first}{tensors}"
            elif takes_time and following.tensor and following.kind != "edge_apply":
                # The next lambda is launched when this graph task starts. One of edges
                # has its slot once it has its rows: held while other intervals have
                # none, it would keep them from sending those.
                self.entry[step.name] = f"begin{tensors}"
            tensors += step.tensor
        self.attempts: dict[tuple[int, int], list[Attempt]] = {}
        if self.lambdas:
            shape = section.epochs, self.count, tensors
            self.attempts = draw_attempts(section.dying_lambdas, context.seed, shape)

    def of_server(self, server: int) -> range:
        """Return the intervals of a server."""
        each = self.section.intervals
        return range(server * each, (server + 1) * each)

    def add(self, template: Task, name: str, kind: str, **changes: Any) -> None:
        """Add a task that stands where ``template`` does."""
        program = PROGRAMS.get(kind, template.program)
        if self.section.attends:
            program = PROGRAMS.get(f"attention {kind}", program)
        changes["settings"] = {**template.settings, **changes.get("settings", {})}
        self.tasks.append(
            replace(template, name=name, kind=kind, program=program, **changes)
        )

    def join(self, source: str, to: str, lag: int = 0, **more: Any) -> None:
        """Add an edge by the names of its tasks; the rest as in `NamedEdge`."""
        self.edges.append(NamedEdge(source, to, lag, **more))

    def on_server(self, server: int) -> Task:
        """Return what the tasks of a server have in common."""
        machine = self.servers[server]
        settings = {"server": server}
        process = f"server{server}"
        return Task("", "", pinned=machine, process=process, settings=settings)

    def on_parameter_server(self, number: int) -> Task:
        """Return what the tasks of a parameter server have in common."""
        machine = self.section.parameter_servers[number]
        settings = {"parameter_server": number}
        process = f"parameters{number}"
        return Task("", "", pinned=machine, process=process, settings=settings)

    def sends_gradient(self, step: Step) -> bool:
        """Return True where a tensor task sends a gradient of weights."""
        is_last = self.section.fuse and step.layer == self.section.model.layers - 1
        loss = step.kind == "apply" and is_last and not self.section.attends
        return step.kind.endswith("apply_back") or loss

    @property
    def updates(self) -> list[list[str]]:
        """Tasks that update each layer, by parameter server."""
        many = len(self.section.parameter_servers)
        return [
            [f"wu{layer}" + (f"_{q}" if many > 1 else "") for q in range(many)]
            for layer in range(self.section.model.layers)
        ]

    @property
    def sums(self) -> list[list[str]]:
        """Tasks that collect the gradients of each layer, by parameter server."""
        many = len(self.section.parameter_servers)
        if many == 1:
            return self.updates
        layers = range(self.section.model.layers)
        return [[f"sum{layer}_{q}" for q in range(many)] for layer in layers]


def dorylus_job(section: DorylusKeys, context: BuildContext) -> Job:
    """Return the job that a section states, whose iterations are epochs.

    Tasks of every interval, then of the parameter servers, the gates, the receivers.

    Raises UnansweredLambda and ValueError as `Graph` and `Job`.
    """
    graph = Graph(section, context)
    for interval in range(graph.count):
        _add_interval(graph, interval)
    _parameter_tasks(graph)
    graph.add(graph.on_server(0), "done", "barrier", gate=True)
    for sums, updates in zip(graph.sums, graph.updates, strict=True):
        # What each parameter server has summed goes into the updates of all.
        for total, update in product(sums if len(sums) > 1 else (), updates):
            graph.join(total, update)
    together = section.receives_together(graph.count)
    receive = _receivers_together if together else _receivers
    for place, step in enumerate(graph.steps):
        if step.kind.startswith("scatter"):
            prefix = step.name.replace("sc", "in")
            receive(graph, step, graph.steps[place + 1], prefix)
    if section.mode == "no_pipe":
        _stages(graph)
    settings = section.settings(context)
    return build_named_job(graph.tasks, graph.edges, section.epochs, settings)


def _add_interval(graph: Graph, i: int) -> None:
    """Add the tasks of an interval, join them, its weights and its gates."""
    section = graph.section
    tensors = 0
    before = ""
    server = graph.on_server(i // section.intervals)
    for step in graph.steps:
        own = {"interval": i, "layer": step.layer, "step": step.name}
        here = replace(server, settings={**server.settings, **own})
        name = f"{step.name}_{i}"
        begin = f"{graph.entry[step.name]}_{i}"
        if step.tensor and graph.lambdas:
            before = _add_lambda(graph, here, tensors, step, before)
            tensors += 1
            continue
        if begin != name:
            # The lambda is launched when this task has its thread.
            graph.add(here, begin, "begin", takes=THREADS, frees="")
            graph.add(here, name, step.kind, frees=THREADS)
            graph.join(begin, name)
            graph.join(begin, f"launch{tensors}_{i}")
        else:
            pool = "gpu" if step.tensor and section.backend == "gpu" else THREADS
            graph.add(here, name, step.kind, takes=pool)
        if before:
            graph.join(before, begin)
        if step.tensor:
            _weight_edges(graph, i, step, before)
        before = name
    graph.join(before, "done", credit=True)
    graph.join("done", f"{graph.entry[graph.steps[0].name]}_{i}", section.lag)


def _add_lambda(graph: Graph, server: Task, k: int, step: Step, before: str) -> str:
    """Add tensor task k of an interval, from its launch to its answer, the last task.

    ``server``: what the interval's tasks of this step have in common; ``before``: the
    last task before them.
    """
    section = graph.section
    i = server.settings["interval"]
    server = replace(server, settings={**server.settings, "tensor": k})
    away = replace(server, pinned=graph.lambdas[i], process=f"lambda{i}")
    parts = {**server.settings, "part": section.stream - 1}
    away, attempts = replace(away, settings=parts), graph.attempts.get((i, k), [])
    name = f"{step.name}_{i}"
    launch = f"launch{k}_{i}"
    call = f"call{k}_{i}"
    back = f"back{k}_{i}"
    first = f"{name}.first"
    slots = {"takes": LAMBDAS, "frees": ""}
    if section.launch.takes_time:
        graph.add(server, launch, "launch", **slots)
        slots = {}
    graph.add(server, call, "call", **slots)
    if section.stream > 1:
        graph.add(away, first, step.kind, settings={"part": 0})
    ends = attempts[0].settings if attempts else {}
    graph.add(away, name, step.kind, settings=ends)
    graph.add(server, back, "answer", frees=LAMBDAS)
    _weight_edges(graph, i, step, call)
    at_once = before.startswith("back") or step.kind == "edge_apply"
    if before:
        graph.join(before, launch if section.launch.takes_time and at_once else call)
    if section.launch.takes_time:
        graph.join(launch, call)
    if section.stream > 1:
        graph.join(call, first, channel=f"{name} pulls")
        graph.join(call, name, channel=f"{name} pulls")
        graph.join(first, name)
        graph.join(first, back, channel=f"{name} answers")
        graph.join(name, back, channel=f"{name} answers")
    else:
        graph.join(call, name)
        graph.join(name, back)
    _add_relaunches(graph, server, away, step)
    return back


def _add_relaunches(graph: Graph, server: Task, away: Task, step: Step) -> None:
    """Add who works at a step of an interval where the first does not answer.

    ``server``, ``away``: what the tasks of this interval and step on its server, and in
    its lambda, have in common.
    """
    i = away.settings["interval"]
    k = away.settings["tensor"]
    name = f"{step.name}_{i}"
    attempts = graph.attempts.get((i, k), [])
    home = i % len(graph.section.parameter_servers)
    before = ""
    needs = step.needs_weights(rematerialize=graph.section.rematerialize)
    for number, attempt in enumerate(attempts, 1):
        end = f".{number}" if number > 1 else ""  # behind the names of its tasks
        call = f"call{k}_{i}{end}"
        stash = f"stash_{name}{end}"
        there = [float(end != IDLE) for end in attempt.ends]  # works unless it is idle
        own: dict[str, Any] = {"attempt": number, **attempt.settings, "done": there}
        if number > 1:
            graph.add(server, call, "recall", settings=own)
            whole = {**own, **attempt.settings}
            graph.add(away, name + end, step.kind, settings=whole)
            graph.join(f"call{k}_{i}{before}", call, credit=True)
            graph.join(call, name + end)
            graph.join(name + end, f"back{k}_{i}")
        if number > 1 and LATE in attempts[number - 2].ends:
            late = f"{name}{before}.late"
            graph.join(name + before, late)
            graph.join(call, late, credit=True)
            graph.join(late, f"late{k}_{i}{before}")
        if LATE in attempt.ends:
            own["of"] = step.kind
            graph.add(away, f"{name}{end}.late", "held", settings=own)
            graph.add(server, f"late{k}_{i}{end}", "late", settings=own)
        if number > 1 and (step.kind == "apply" or needs):
            what = {"layer": step.layer, "interval": i, "for": step.kind, **own}
            here = graph.on_parameter_server(home)
            graph.add(here, stash, "stash", settings=what)
            graph.join(f"av{step.layer}_{i}", stash)
            graph.join(call, stash, credit=True)
            graph.join(stash, name + end)
        if number > 1 and graph.sends_gradient(step):
            graph.join(name + end, graph.sums[step.layer][home])
        before = end


def _weight_edges(graph: Graph, i: int, step: Step, asks: str) -> None:
    """Join a tensor task and its parameter server; ``asks`` is before the stash."""
    section = graph.section
    name = f"{step.name}_{i}"
    server = i % len(section.parameter_servers)
    first = f"{name}.first" if section.stream > 1 and graph.lambdas else name
    if graph.sends_gradient(step):
        graph.join(name, graph.sums[step.layer][server])
    if step.kind == "apply":
        update = graph.updates[step.layer][server]
        latest = section.mode == "async"
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
    section = graph.section
    asynchronous = graph.section.mode == "async"
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
    section = graph.section
    asynchronous = graph.section.mode == "async"
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
        first = graph.entry[step.name]
        last = step.name
        if step.tensor and graph.lambdas:
            first = f"call{tensors}"
            last = f"back{tensors}"
            tensors += 1
        if place:
            for i in range(graph.count):
                graph.join(f"stage{place}", f"{first}_{i}", credit=True)
        if place + 1 < len(graph.steps):
            gate = f"stage{place + 1}"
            graph.add(graph.on_server(0), gate, "barrier", gate=True)
            for i in range(graph.count):
                graph.join(f"{last}_{i}", gate, credit=True)
