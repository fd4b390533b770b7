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

from typing import TYPE_CHECKING, Any

from emu.problem import Task
from emu.systems.dorylus.deaths import IDLE, LATE
from emu.systems.dorylus.steps import Step

if TYPE_CHECKING:
    from emu.systems.dorylus.job import Graph


def add_relaunches(graph: Graph, server: Task, remote: Task, step: Step) -> None:
    """Add who works at a step of an interval where the first does not answer.

    ``server``, ``remote``: what the tasks of this interval and step on its server, and
    in its lambda, have in common.
    """
    interval = remote.settings["interval"]
    tensor = remote.settings["tensor"]
    attempts = graph.attempts.get((interval, tensor), [])
    key = f"{tensor}_{interval}"
    name = f"{step.name}_{interval}"
    before = ""  # mark of the attempt before
    for number, attempt in enumerate(attempts, 1):
        mark = f".{number}" if number > 1 else ""
        call = f"call{key}{mark}"
        work = f"{name}{mark}"
        settings: dict[str, Any] = {"attempt": number, **attempt.settings}
        # The server waits, launches and drops in full, whatever part a lambda does.
        on_server = {**settings, "done": [float(end != IDLE) for end in attempt.ends]}

        if number > 1:
            graph.add(server, call, "recall", settings=on_server)
            graph.add(remote, work, step.kind, settings=settings)
            graph.join(f"call{key}{before}", call, credit=True)
            graph.join(call, work)
            graph.join(work, f"back{key}")
            if LATE in attempts[number - 2].ends:
                held = f"{name}{before}.late"
                graph.join(f"{name}{before}", held)
                graph.join(call, held, credit=True)
                graph.join(held, f"late{key}{before}")
        if LATE in attempt.ends:
            late = {**on_server, "of": step.kind}
            graph.add(remote, f"{work}.late", "held", settings=late)
            graph.add(server, f"late{key}{mark}", "late", settings=late)
        if number > 1:
            _join_parameter_server(graph, interval, step, call, work, on_server)
        before = mark


def _join_parameter_server(
    graph: Graph,
    interval: int,
    step: Step,
    call: str,
    work: str,
    settings: dict[str, Any],
) -> None:
    """Give a lambda launched later the weights of the first, and take its gradient."""
    home = interval % len(graph.section.parameter_servers)
    if step.kind == "apply" or graph.stashes(step):
        stash = f"stash_{work}"
        place = {"layer": step.layer, "interval": interval, "for": step.kind}
        template = graph.on_parameter_server(home)
        graph.add(template, stash, "stash", settings={**place, **settings})
        graph.join(f"av{step.layer}_{interval}", stash)
        graph.join(call, stash, credit=True)
        graph.join(stash, work)
    if graph.sends_gradient(step):
        graph.join(work, graph.sums[step.layer][home])
