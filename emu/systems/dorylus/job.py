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

Asynchrony S: an interval enters epoch n once every one has ended n - S - 1; gathers and
the first use of weights read the newest that has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from emu.problem import Edge, Job, Task
from emu.systems.dorylus.steps import steps_of_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emu.systems.dorylus.steps import Step

#: Pools of a server: its vCPUs, and its quota of lambdas.
THREADS, LAMBDAS = "threads", "lambdas"
#: Intervals of all servers from which a server has one receiving task.
MANY_INTERVALS = 64

#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = {
    kind: f"emu_nodes.dorylus.programs:{program}"
    for kind, program in {
        "begin": "Begin",
        "launch": "Nothing",
        "gather": "Gather",
        "scatter": "Scatter",
        "call": "Call",
        "apply": "Apply",
        "answer": "Answer",
        "scatter_back": "Scatter",
        "gather_back": "GatherBack",
        "apply_back": "ApplyBack",
        "ghosts": "Ghosts",
        "stash": "Stash",
        "gradient_sum": "GradientSum",
        "weight_update": "WeightUpdate",
    }.items()
} | {
    f"attention {kind}": f"emu_nodes.dorylus.attention:{program}"
    for kind, program in {
        "launch": "Launch",
        "call": "Call",
        "gather": "Gather",
        "scatter": "Scatter",
        "scatter_back": "ScatterBack",
        "gather_back": "GatherBack",
        "apply": "Apply",
        "apply_back": "ApplyBack",
        "edge_apply": "EdgeApply",
        "edge_apply_back": "EdgeApplyBack",
    }.items()
}
#: Content of flows by the kinds of their ends.
CARRIES = {
    ("call", "apply"): "gathered rows",
    ("call", "apply_back"): "gathered rows and gradients",
    ("call", "edge_apply"): "rows of edges",
    ("call", "edge_apply_back"): "rows of edges and gradients",
    ("edge_apply", "answer"): "attention",
    ("edge_apply_back", "answer"): "gradients of edges",
    ("stash", "edge_apply"): "stashed weights",
    ("stash", "edge_apply_back"): "stashed weights",
    ("apply", "answer"): "activations",
    ("apply_back", "answer"): "gradients of rows",
    ("apply", "stash"): "versions of weights",
    ("stash", "apply_back"): "stashed weights",
    ("scatter", "ghosts"): "ghost rows",
    ("scatter_back", "ghosts"): "gradients of ghosts",
    ("weight_update", "apply"): "weights",
} | {
    (source, to): "gradients"
    for source in ("apply", "apply_back", "edge_apply_back", "gradient_sum")
    for to in ("gradient_sum", "weight_update")
}

#: Kinds of task of parameter servers.
PARAMETER_KINDS = ("stash", "gradient_sum", "weight_update")

Mode = Literal["no_pipe", "pipe", "async"]


@dataclass(frozen=True)
class DorylusConfig:
    """Shape of a Dorylus job.

    Raises
    ------
    ValueError
        When there is no server, interval, parameter server or layer, staleness is
        negative or stated of a mode without, or lambdas do not fit the intervals.
    """

    servers: tuple[str, ...]
    """Machines of the graph servers."""
    intervals: int
    """Intervals of each server."""
    parameter_servers: tuple[str, ...]
    """Machines of the parameter servers; interval i meets number i mod P."""
    lambdas: tuple[str, ...]
    """Machine of every interval's lambda; empty: tensor tasks run on the servers."""
    epochs: int
    layers: int = 2
    attention: bool = False
    """A GAT, whose edges have tensor tasks of their own; else a GCN."""
    mode: Mode = "pipe"
    """``no_pipe``: a barrier after every task; ``pipe``: one at every gather;
    ``async``: bounded by ``staleness``."""
    staleness: int = 0
    """S: epochs by which intervals may be apart."""
    first_epoch_sync: bool = True
    """Every gather of the first epoch waits for the values of it."""
    fuse: bool = True
    """The last apply and its backward pass are one lambda."""
    rematerialize: bool = False
    """The backward pass computes activations again instead of pulling them."""
    stream: int = 1
    """Parts in which a lambda pulls, computes and answers: 1 or 2."""
    launches: bool = False
    """Launching a lambda takes time."""
    apply_pool: str = THREADS
    """Pool of the servers that tensor tasks take without lambdas."""
    one_receiver: bool | None = None
    """One receiving task per server; None: from `MANY_INTERVALS` intervals on."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Handed to every node program as it is."""

    def __post_init__(self) -> None:
        for what in ("servers", "parameter_servers"):
            if not getattr(self, what):
                raise ValueError(f"a Dorylus job needs {what}")
        for what in ("intervals", "epochs", "layers"):
            if getattr(self, what) < 1:
                raise ValueError(f"{what} are {getattr(self, what)}, not 1 or more")
        if self.staleness < 0 or (self.staleness and self.mode != "async"):
            raise ValueError(f"mode {self.mode} has no staleness {self.staleness}")
        if self.lambdas and len(self.lambdas) != self.count:
            raise ValueError(f"{len(self.lambdas)} lambdas for {self.count} intervals")
        if self.stream not in {1, 2}:
            raise ValueError(f"a lambda streams in 1 or 2 parts, not {self.stream}")
        if self.attention and (self.stream > 1 or self.rematerialize):
            raise ValueError("attention neither streams nor rematerializes")

    @property
    def count(self) -> int:
        """Intervals of all servers."""
        return len(self.servers) * self.intervals

    @property
    def receives_together(self) -> bool:
        """True where a server has one receiving task."""
        return _together(self.count, stated=self.one_receiver)

    @property
    def lag(self) -> int:
        """Epochs from an update to the reads that need it at the least."""
        return self.staleness + 1

    def of_server(self, server: int) -> range:
        """Return the intervals of a server."""
        return range(server * self.intervals, (server + 1) * self.intervals)


def _together(intervals: int, *, stated: bool | None) -> bool:
    return intervals >= MANY_INTERVALS if stated is None else stated


def least_edges(
    sizes: tuple[int, int, int],
    steps: Sequence[Step],
    *,
    lambdas: bool,
    together: bool | None,
) -> int:
    """Return how many edges a job has at the least, without building it.

    Parameters
    ----------
    sizes
        Servers, intervals of each, parameter servers.
    together
        As ``one_receiver`` of `DorylusConfig`.
    """
    servers, intervals, parameter_servers = sizes
    count = servers * intervals
    tensors = sum(step.tensor for step in steps)
    # In an interval from step to step, to and from the gate, by way of a lambda, and
    # one between each tensor task and a parameter server.
    within = len(steps) + 1 + tensors * (3 if lambdas else 1)
    each = servers + 1 if _together(count, stated=together) else servers + count - 2
    layers = 1 + max(step.layer for step in steps)
    updates = layers * parameter_servers**2 if parameter_servers > 1 else 0
    exchanges = sum(step.kind.startswith("scatter") for step in steps)
    return count * (within + exchanges * each) + updates


def steps_of(config: DorylusConfig) -> list[Step]:
    """Return the tasks of an interval in their order."""
    return steps_of_model(config.layers, attention=config.attention, fuse=config.fuse)


class _Graph:
    """Tasks and edges under construction."""

    def __init__(self, config: DorylusConfig) -> None:
        self.config = config
        self.steps = steps_of(config)
        self.tasks: list[Task] = []
        self.edges: list[Edge] = []
        self._position: dict[str, int] = {}
        tensors = 0
        self.entry: dict[str, str] = {}
        for place, step in enumerate(self.steps):
            self.entry[step.name] = step.name
            if _launches_at(config, self.steps, place):
                self.entry[step.name] = f"begin{tensors}"
            elif step.tensor and config.lambdas:
                first = "launch" if config.launches else "call"
                self.entry[step.name] = f"{first}{tensors}"
            tensors += step.tensor

    def add(self, template: Task, name: str, kind: str, **changes: Any) -> None:
        """Add a task that stands where ``template`` does."""
        self._position[name] = len(self.tasks)
        of_kind = PROGRAMS.get(kind, template.program)
        program = of_kind
        if self.config.attention:
            program = PROGRAMS.get(f"attention {kind}", of_kind)
        changes["settings"] = {**template.settings, **changes.get("settings", {})}
        self.tasks.append(
            replace(template, name=name, kind=kind, program=program, **changes)
        )

    def join(
        self,
        source: str,
        to: str,
        lag: int = 0,
        *,
        latest: bool = False,
        credit: bool = False,
        channel: str = "",
    ) -> None:
        """Add an edge by the names of its tasks; the rest as in `Edge`."""
        at = self._position
        self.edges.append(Edge(at[source], at[to], lag, credit, channel, latest))

    def on_server(self, server: int) -> Task:
        """Return what the tasks of a server have in common."""
        return Task(
            "",
            "",
            pinned=self.config.servers[server],
            process=f"server{server}",
            settings={"server": server},
        )

    def on_parameter_server(self, number: int) -> Task:
        """Return what the tasks of a parameter server have in common."""
        machine = self.config.parameter_servers[number]
        settings = {"parameter_server": number}
        process = f"parameters{number}"
        return Task("", "", pinned=machine, process=process, settings=settings)

    @property
    def updates(self) -> list[list[str]]:
        """Tasks that update each layer, by parameter server."""
        many = len(self.config.parameter_servers)
        return [
            [f"wu{layer}" + (f"_{q}" if many > 1 else "") for q in range(many)]
            for layer in range(self.config.layers)
        ]

    @property
    def sums(self) -> list[list[str]]:
        """Tasks that collect the gradients of each layer, by parameter server."""
        many = len(self.config.parameter_servers)
        if many == 1:
            return self.updates
        layers = range(self.config.layers)
        return [[f"sum{layer}_{q}" for q in range(many)] for layer in layers]


def dorylus_job(config: DorylusConfig) -> Job:
    """Return the job of ``config``, whose iterations are epochs.

    Tasks of every interval, then of the parameter servers, the gates, the receivers.

    Raises
    ------
    ValueError
        As `Job`.
    """
    graph = _Graph(config)
    for interval in range(config.count):
        _interval_tasks(graph, interval)
    _parameter_tasks(graph)
    graph.add(graph.on_server(0), "done", "barrier", gate=True)
    receive = _receivers_together if config.receives_together else _receivers
    exchanges = [
        (step, graph.steps[place + 1], step.name.replace("sc", "in"))
        for place, step in enumerate(graph.steps)
        if step.kind.startswith("scatter")
    ]
    for interval in range(config.count):
        _interval_edges(graph, interval)
    _parameter_edges(graph)
    for scatter, gather, prefix in exchanges:
        receive(graph, scatter, gather, prefix)
    if config.mode == "no_pipe":
        _stages(graph)
    return Job(tuple(graph.tasks), tuple(graph.edges), config.epochs, config.settings)


def _interval_tasks(graph: _Graph, i: int) -> None:
    config, tensors = graph.config, 0
    server = graph.on_server(i // config.intervals)
    server = replace(server, settings={**server.settings, "interval": i})
    for step in graph.steps:
        what = {"layer": step.layer, "step": step.name}
        if step.tensor and config.lambdas:
            _lambda_tasks(graph, server, i, tensors, step)
            tensors += 1
        elif step.tensor:
            pool = config.apply_pool
            graph.add(server, f"{step.name}_{i}", step.kind, takes=pool, settings=what)
        elif graph.entry[step.name] != step.name:
            # The lambda is launched when this task has its thread.
            begin = f"{graph.entry[step.name]}_{i}"
            graph.add(server, begin, "begin", takes=THREADS, frees="", settings=what)
            graph.add(
                server, f"{step.name}_{i}", step.kind, frees=THREADS, settings=what
            )
        else:
            name = f"{step.name}_{i}"
            graph.add(server, name, step.kind, takes=THREADS, settings=what)


def _lambda_tasks(graph: _Graph, server: Task, i: int, number: int, step: Step) -> None:
    """Add what the launch of one lambda of an interval takes, to its answer."""
    config = graph.config
    what = {"layer": step.layer, "step": step.name, "tensor": number}
    taken = {"takes": LAMBDAS, "frees": ""}
    if config.launches:
        graph.add(server, f"launch{number}_{i}", "launch", settings=what, **taken)
        taken = {}
    graph.add(server, f"call{number}_{i}", "call", settings=what, **taken)
    away = replace(server, pinned=config.lambdas[i], process=f"lambda{i}")
    if config.stream > 1:
        first = {**what, "part": 0}
        graph.add(away, f"{step.name}_{i}.first", step.kind, settings=first)
    rest = {**what, "part": config.stream - 1}
    graph.add(away, f"{step.name}_{i}", step.kind, settings=rest)
    graph.add(server, f"back{number}_{i}", "answer", frees=LAMBDAS, settings=what)


def _launches_at(config: DorylusConfig, steps: Sequence[Step], place: int) -> bool:
    """Return True where a lambda is launched when this graph task starts."""
    if not (config.launches and config.lambdas) or steps[place].tensor:
        return False
    # That of edges has its slot once it has its rows: held while other intervals have
    # none, it would keep them from sending those.
    following = steps[place + 1] if place + 1 < len(steps) else steps[place]
    return following.tensor and following.kind != "edge_apply"


def _interval_edges(graph: _Graph, i: int) -> None:
    """Join the tasks of an interval, its weights and its gates."""
    config, tensors, before = graph.config, 0, ""
    for step in graph.steps:
        name = f"{step.name}_{i}"
        if step.tensor and config.lambdas:
            call = f"call{tensors}_{i}"
            _weight_edges(graph, i, step, call)
            before = _lambda_edges(graph, i, tensors, step, before)
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
    graph.join("done", f"{start}_{i}", config.lag)


def _lambda_edges(graph: _Graph, i: int, number: int, step: Step, before: str) -> str:
    """Join a lambda with the task before it; return its last task."""
    config, name = graph.config, f"{step.name}_{i}"
    call, back = f"call{number}_{i}", f"back{number}_{i}"
    if config.launches:
        launch = f"launch{number}_{i}"
        if before:
            ready = before.startswith("back") or step.kind == "edge_apply"
            graph.join(before, launch if ready else call)
        graph.join(launch, call)
    elif before:
        graph.join(before, call)
    if config.stream > 1:
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


def _weight_edges(graph: _Graph, i: int, step: Step, asks: str) -> None:
    """Join a tensor task with its parameter server: weights, stash, gradient.

    Parameters
    ----------
    asks
        Task after which the stashed weights are sent.
    """
    config, name = graph.config, f"{step.name}_{i}"
    server = i % len(config.parameter_servers)
    first = f"{name}.first" if config.stream > 1 and config.lambdas else name
    fused = config.fuse and step.layer == config.layers - 1
    if step.kind.endswith("apply_back") or (fused and not config.attention):
        graph.join(name, graph.sums[step.layer][server])
    if step.kind == "apply":
        update, latest = graph.updates[step.layer][server], config.mode == "async"
        graph.join(update, first, config.lag, latest=latest)
    elif step.needs_weights(rematerialize=config.rematerialize):
        stash = _stash(step, i)
        graph.join(f"av{step.layer}_{i}", stash)
        graph.join(asks, stash)
        graph.join(stash, first)


def _parameter_tasks(graph: _Graph) -> None:
    """Add the updates of all weights, and what the servers stash for each interval."""
    config = graph.config
    many = len(config.parameter_servers)
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
        if step.needs_weights(rematerialize=config.rematerialize):
            for i in range(config.count):
                here = graph.on_parameter_server(i % many)
                what = {"layer": step.layer, "interval": i, "for": step.kind}
                graph.add(here, _stash(step, i), "stash", settings=what)


def _stash(step: Step, i: int) -> str:
    """Return the name of the task that sends an interval the weights it has used."""
    return f"stash_{step.name}_{i}" if step.of_edges else f"stash{step.layer}_{i}"


def _parameter_edges(graph: _Graph) -> None:
    """Join what each parameter server has summed with the updates of all."""
    for sums, updates in zip(graph.sums, graph.updates, strict=True):
        for summed in sums if len(sums) > 1 else ():
            for update in updates:
                graph.join(summed, update)


def _receivers(graph: _Graph, scatter: Step, gather: Step, prefix: str) -> None:
    """Receive the ghosts of every interval by a task of its own."""
    config, asynchronous = graph.config, graph.config.mode == "async"
    lag = config.lag if asynchronous else 0
    full = _first_epoch(graph, gather, prefix)
    for i in range(config.count):
        for g in range(len(config.servers)):
            source = f"{scatter.name}_{i}"
            if i // config.intervals != g:
                source = f"{prefix}_{i}_{g}"
                own = {"layer": scatter.layer, "interval": i, "kind": scatter.kind}
                graph.add(graph.on_server(g), source, "ghosts", settings=own)
                graph.join(f"{scatter.name}_{i}", source)
            for j in config.of_server(g):
                if j != i:
                    to = f"{graph.entry[gather.name]}_{j}"
                    graph.join(source, to, lag, latest=asynchronous)
            if full:
                graph.join(source, full[g], credit=True)


def _receivers_together(
    graph: _Graph, scatter: Step, gather: Step, prefix: str
) -> None:
    """Receive the ghosts of all intervals by one task per server.

    Its iteration m shows the gathers what every interval has sent in epoch m or later.
    """
    config, asynchronous = graph.config, graph.config.mode == "async"
    lag = config.lag if asynchronous else 0
    full = _first_epoch(graph, gather, prefix)
    for g in range(len(config.servers)):
        receiver = f"{prefix}_{g}"
        own = {"layer": scatter.layer, "kind": scatter.kind}
        graph.add(graph.on_server(g), receiver, "ghosts", settings=own)
        for i in range(config.count):
            graph.join(f"{scatter.name}_{i}", receiver, latest=asynchronous)
        for j in config.of_server(g):
            graph.join(
                receiver, f"{graph.entry[gather.name]}_{j}", lag, latest=asynchronous
            )
        if full:
            graph.join(receiver, full[g], credit=True)


def _first_epoch(graph: _Graph, gather: Step, prefix: str) -> list[str]:
    """Add and return a gate per server that holds the gathers of the first epoch."""
    config = graph.config
    if config.mode != "async" or not config.first_epoch_sync:
        return []
    gates = []
    for g in range(len(config.servers)):
        gate = prefix.replace("in", "full") + f"_{g}"
        graph.add(graph.on_server(g), gate, "barrier", gate=True, iterations=1)
        for j in config.of_server(g):
            graph.join(gate, f"{graph.entry[gather.name]}_{j}", credit=True)
        gates.append(gate)
    return gates


def _stages(graph: _Graph) -> None:
    """Let every task wait until all intervals have ended the one before it."""
    config, tensors = graph.config, 0
    for place, step in enumerate(graph.steps):
        first, last = graph.entry[step.name], step.name
        if step.tensor and config.lambdas:
            first, last = f"call{tensors}", f"back{tensors}"
            tensors += 1
        if place:
            for i in range(config.count):
                graph.join(f"stage{place}", f"{first}_{i}", credit=True)
        if place + 1 < len(graph.steps):
            gate = f"stage{place + 1}"
            graph.add(graph.on_server(0), gate, "barrier", gate=True)
            for i in range(config.count):
                graph.join(f"{last}_{i}", gate, credit=True)


def invocations(job: Job) -> list[tuple[int, int]]:
    """Return the tasks that end the launch of a lambda, and that take its answer."""
    begins: dict[tuple[str, int, int], int] = {}
    found = []
    for position, task in enumerate(job.tasks):
        if task.kind in {"launch", "call", "answer"}:
            key = task.job_name, task.settings["interval"], task.settings["tensor"]
            first = begins.setdefault(key, position)  # the launch where there is one
            if task.kind == "answer":
                found.append((first, position))
    return found
