"""Tasks and edges of lambdas that are launched where others do not answer.

Number a of those that work at step k of interval i, from 2 on, has the names of the
first with ``.a`` behind. ``call{k}_i.a`` waits for the timeout, launches it and sends,
``av0_i.a`` computes in the same process, with the weights of the first, which
``stash_av0_i.a`` sends once more. The answer goes to ``back{k}_i``, which drops what is
empty. One that answers too late does so as soon as the next is launched: ``av0_i.late``
sends it, or ``av0_i.a.late``, and ``late{k}_i`` on the server drops it. Only the
attempts are there that some epoch needs; in the others they take no time and send no
bytes. The slot of the quota is held until the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emu.problem import Task
from emu.systems.dorylus.deaths import IDLE, LATE, Attempt
from emu.systems.dorylus.steps import Step

if TYPE_CHECKING:
    from emu.systems.dorylus.job import Graph


@dataclass(frozen=True)
class _Names:
    """Names of the tasks of an attempt."""

    step: str
    tensor: int
    interval: int
    number: int

    @property
    def _mark(self) -> str:
        return f".{self.number}" if self.number > 1 else ""

    @property
    def call(self) -> str:
        return f"call{self.tensor}_{self.interval}{self._mark}"

    @property
    def work(self) -> str:
        return f"{self.step}_{self.interval}{self._mark}"

    @property
    def stash(self) -> str:
        return f"stash_{self.work}"

    @property
    def held(self) -> str:
        return f"{self.work}.late"

    @property
    def late(self) -> str:
        return f"late{self.tensor}_{self.interval}{self._mark}"


def add_relaunches(graph: Graph, server: Task, remote: Task, step: Step) -> None:
    """Add who works at a step of an interval where the first does not answer.

    ``server``, ``remote``: what the tasks of this interval and step on its server, and
    in its lambda, have in common.
    """
    interval = remote.settings["interval"]
    tensor = remote.settings["tensor"]
    previous: Attempt | None = None
    before: _Names | None = None
    for number, attempt in enumerate(graph.attempts.get((interval, tensor), []), 1):
        names = _Names(step.name, tensor, interval, number)
        works = [float(end != IDLE) for end in attempt.ends]
        settings: dict[str, Any] = {
            "attempt": number,
            "ends": [*attempt.ends],
            "done": works,
        }
        if before is not None and previous is not None:
            work = {**settings, **attempt.settings}
            graph.add(server, names.call, "recall", settings=settings)
            graph.add(remote, names.work, step.kind, settings=work)
            graph.join(before.call, names.call, credit=True)
            graph.join(names.call, names.work)
            graph.join(names.work, f"back{tensor}_{interval}")
            if LATE in previous.ends:
                graph.join(before.work, before.held)
                graph.join(names.call, before.held, credit=True)
                graph.join(before.held, before.late)

        if LATE in attempt.ends:
            held = {**settings, "of": step.kind}
            graph.add(remote, names.held, "held", settings=held)
            graph.add(server, names.late, "late", settings=held)
        if number > 1:
            _join_parameter_server(graph, names, step, settings)
        before = names
        previous = attempt


def _join_parameter_server(
    graph: Graph, names: _Names, step: Step, settings: dict[str, Any]
) -> None:
    """Give a lambda launched later the weights of the first, and take its gradient."""
    interval = names.interval
    home = interval % len(graph.section.parameter_servers)
    needs_stash = step.needs_weights(rematerialize=graph.section.rematerialize)
    if step.kind == "apply" or needs_stash:
        stashed = {"layer": step.layer, "interval": interval, "for": step.kind}
        template = graph.on_parameter_server(home)
        graph.add(template, names.stash, "stash", settings={**stashed, **settings})
        graph.join(f"av{step.layer}_{interval}", names.stash)
        graph.join(names.call, names.stash, credit=True)
        graph.join(names.stash, names.work)
    if graph.sends_gradient(step):
        graph.join(names.work, graph.sums[step.layer][home])
