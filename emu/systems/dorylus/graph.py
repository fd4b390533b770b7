"""Shape of a Dorylus job, and its tasks and edges under construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from emu.problem import Edge, Task
from emu.systems.dorylus.deaths import Attempt, DyingLambdas, draw_attempts
from emu.systems.dorylus.steps import PROGRAMS, Step, steps_of_model

#: Pools of a server: its vCPUs, and its quota of lambdas.
THREADS, LAMBDAS = "threads", "lambdas"
#: Intervals of all servers from which a server has one receiving task.
MANY_INTERVALS = 64

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
    dying: DyingLambdas = field(default_factory=DyingLambdas)
    """Lambdas that do not answer in time."""
    seed: int = 0
    """Chooses these."""
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
        if self.dying.share and self.stream > 1:
            raise ValueError("lambdas that may die have one part")

    @property
    def count(self) -> int:
        """Intervals of all servers."""
        return len(self.servers) * self.intervals

    @property
    def receives_together(self) -> bool:
        """True where a server has one receiving task."""
        return one_receiver(self.count, stated=self.one_receiver)

    @property
    def lag(self) -> int:
        """Epochs from an update to the reads that need it at the least."""
        return self.staleness + 1

    def of_server(self, server: int) -> range:
        """Return the intervals of a server."""
        return range(server * self.intervals, (server + 1) * self.intervals)


def one_receiver(intervals: int, *, stated: bool | None) -> bool:
    """Return True where a server has one receiving task for so many intervals."""
    return intervals >= MANY_INTERVALS if stated is None else stated


#: (interval, number of the tensor task) -> who works at it.
Attempts = dict[tuple[int, int], list[Attempt]]


def _attempts_of(config: DorylusConfig, tensors: int) -> Attempts:
    """Return the attempts of a job, of those that need several.

    Raises UnansweredLambda as `drawn_attempts`.
    """
    if not config.lambdas:
        return {}
    shape = config.epochs, config.count, tensors
    return draw_attempts(config.dying, config.seed, shape)


def steps_of(config: DorylusConfig) -> list[Step]:
    """Return the tasks of an interval in their order."""
    return steps_of_model(config.layers, attention=config.attention, fuse=config.fuse)


class Graph:
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
        self.attempts = _attempts_of(config, tensors)

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

    def sends_gradient(self, step: Step) -> bool:
        """Return True where a tensor task sends a gradient of weights."""
        is_last = self.config.fuse and step.layer == self.config.layers - 1
        loss = step.kind == "apply" and is_last and not self.config.attention
        return step.kind.endswith("apply_back") or loss

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


def _launches_at(config: DorylusConfig, steps: Sequence[Step], place: int) -> bool:
    """Return True where a lambda is launched when this graph task starts."""
    if not (config.launches and config.lambdas) or steps[place].tensor:
        return False
    # That of edges has its slot once it has its rows: held while other intervals have
    # none, it would keep them from sending those.
    following = steps[place + 1] if place + 1 < len(steps) else steps[place]
    return following.tensor and following.kind != "edge_apply"
