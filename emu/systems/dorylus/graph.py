"""Tasks and edges of a Dorylus job under construction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emu.problem import Edge, Task
from emu.systems.dorylus.deaths import Attempt, draw_attempts
from emu.systems.dorylus.steps import PROGRAMS, Step

if TYPE_CHECKING:
    from emu.systems.dorylus.section import DorylusJobSection
    from emu.systems.job_section import BuildContext


class Graph:
    """Tasks and edges of the job that a section states, under construction.

    Raises UnansweredLambda as `draw_attempts`.

    Attributes
    ----------
    section
        Section ``job``.
    servers, lambdas
        Machines of the graph servers, and of every interval's lambda; without lambdas
        tensor tasks run on the servers.
    count
        Intervals of all servers.
    steps
        Tasks of an interval in their order.
    entry
        First task of every step, by the step's name.
    attempts
        (Interval, number of the tensor task) -> who works at it, of those that need
        several in some epoch.
    """

    def __init__(self, section: DorylusJobSection, context: BuildContext) -> None:
        self.section, self.servers = section, section.ranks(context.machines)
        self.lambdas = section.lambdas_of(self.servers)
        self.count = len(self.servers) * section.intervals
        self.steps: list[Step] = section.steps
        self.tasks: list[Task] = []
        self.edges: list[Edge] = []
        self._position: dict[str, int] = {}
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
        self._position[name] = len(self.tasks)
        program = PROGRAMS.get(kind, template.program)
        if self.section.attends:
            program = PROGRAMS.get(f"attention {kind}", program)
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
            pinned=self.servers[server],
            process=f"server{server}",
            settings={"server": server},
        )

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
