"""The graph of a Dorylus job under construction: tasks, edges, and who stands where."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emu.problem import Task
from emu.problem.workloads.all_reduce import NamedEdge
from emu.systems.dorylus.deaths import Attempt, draw_attempts
from emu.systems.dorylus.steps import PROGRAMS, Step

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
        self.entry = self._entries()

        self.attempts: dict[tuple[int, int], list[Attempt]] = {}
        if self.lambdas:
            tensors = sum(step.tensor for step in self.steps)
            shape = (section.epochs, self.count, tensors)
            self.attempts = draw_attempts(section.dying_lambdas, context.seed, shape)

    def _entries(self) -> dict[str, str]:
        # Where launches take no time, the call itself takes the slot.
        takes_time = bool(self.lambdas) and self.section.launch.takes_time
        first = "launch" if takes_time else "call"

        following_steps = [*self.steps[1:], None]
        pairs = zip(self.steps, following_steps, strict=True)
        entries = {}
        tensor = 0  # number of the next tensor task
        for step, following in pairs:
            entries[step.name] = step.name
            if step.tensor:
                if self.lambdas:
                    entries[step.name] = f"{first}{tensor}"
                tensor += 1
            elif takes_time and following and following.launches_early:
                # The next lambda is launched when this graph task starts.
                entries[step.name] = f"begin{tensor}"
        return entries

    def of_server(self, server: int) -> range:
        """Return the intervals of a server."""
        intervals = self.section.intervals
        first = server * intervals
        return range(first, first + intervals)

    def add(
        self,
        template: Task,
        name: str,
        kind: str,
        **changes: Any,
    ) -> None:
        """Add a task that stands where ``template`` does."""
        program = PROGRAMS.get(kind, template.program)
        if self.section.attends:
            # A GAT has programs of its own for some kinds.
            program = PROGRAMS.get(f"attention {kind}", program)

        more_settings = changes.pop("settings", {})
        task = replace(
            template,
            name=name,
            kind=kind,
            program=program,
            settings={**template.settings, **more_settings},
            **changes,
        )
        self.tasks.append(task)

    def add_gate(self, server: int, name: str, **changes: Any) -> None:
        """Add a gate, which runs in no process: its server has no cost of it."""
        template = self.on_server(server)
        self.add(template, name, "barrier", gate=True, **changes)

    def join(
        self,
        source: str,
        to: str,
        lag: int = 0,
        **more: Any,
    ) -> None:
        """Add an edge by the names of its tasks; the rest as in `NamedEdge`."""
        edge = NamedEdge(source, to, lag, **more)
        self.edges.append(edge)

    def order(self, source: str, to: str) -> None:
        """Add an edge that a task waits for, and over which nothing is sent."""
        self.join(source, to, credit=True)

    def on_server(self, server: int) -> Task:
        """Return what the tasks of a server have in common."""
        return Task(
            name="",
            kind="",
            pinned=self.servers[server],
            process=f"server{server}",
            settings={"server": server},
        )

    def on_parameter_server(self, number: int) -> Task:
        """Return what the tasks of a parameter server have in common."""
        machine = self.section.parameter_servers[number]
        return Task(
            name="",
            kind="",
            pinned=machine,
            process=f"parameters{number}",
            settings={"parameter_server": number},
        )

    def sends_gradient(self, step: Step) -> bool:
        """Return True where a tensor task sends a gradient of weights."""
        if step.kind.endswith("apply_back"):
            return True
        section = self.section
        is_last = step.layer == section.model.layers - 1
        # A GAT cannot fuse: between its last apply and the loss its edges are gathered.
        is_fused = section.fuse and not section.attends
        return step.kind == "apply" and is_last and is_fused

    def stashes(self, step: Step) -> bool:
        """Return True where a task gets the weights of the forward pass once more."""
        return step.needs_weights(rematerialize=self.section.rematerialize)

    @property
    def updates(self) -> list[list[str]]:
        """Tasks that update each layer, by parameter server."""
        layers = range(self.section.model.layers)
        return [self._by_server(f"wu{layer}") for layer in layers]

    @property
    def sums(self) -> list[list[str]]:
        """Tasks that collect the gradients of each layer, by parameter server."""
        if len(self.section.parameter_servers) == 1:
            return self.updates
        layers = range(self.section.model.layers)
        return [self._by_server(f"sum{layer}") for layer in layers]

    def _by_server(self, name: str) -> list[str]:
        count = len(self.section.parameter_servers)
        if count == 1:
            return [name]
        return [f"{name}_{server}" for server in range(count)]
