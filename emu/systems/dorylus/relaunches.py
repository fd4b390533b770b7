"""Tasks of the lambdas that are launched where others do not answer.

Number a of those that work at step k of interval i, from 2 on, has the names of the
first with ``.a`` behind: ``call{k}_i.a`` waits for the timeout, launches it and sends,
``av0_i.a`` computes in the same process, with the weights of the first, which
``stash_av0_i.a`` sends once more. The answer goes to ``back{k}_i``, which drops what is
empty. One that answers too late does so as soon as the next is launched:
``av0_i.late`` sends it, or ``av0_i.a.late``, and ``late{k}_i`` on the server drops it.

Only the attempts are there that some epoch needs; in the others they take no time and
send no bytes. The slot of the quota is held until the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.systems.dorylus.deaths import LATE

if TYPE_CHECKING:
    from emu.problem import Task
    from emu.systems.dorylus.graph import Graph
    from emu.systems.dorylus.steps import Step


def suffix(number: int) -> str:
    """Return what stands behind the names of an attempt's tasks."""
    return f".{number}" if number > 1 else ""


def relaunched_tasks(graph: Graph, server: Task, away: Task, step: Step) -> None:
    """Add who works at a step of an interval where the first does not answer.

    Parameters
    ----------
    server, away
        What the tasks of this interval and step on its server, and in its lambda, have
        in common.
    """
    i, tensor = away.settings["interval"], away.settings["tensor"]
    known = graph.attempts.get((i, tensor), [])
    for number, attempt in enumerate(known, 1):
        end = suffix(number)
        own: dict[str, Any] = {"attempt": number, **attempt.presence}
        if number > 1:
            graph.add(server, f"call{tensor}_{i}{end}", "recall", settings=own)
            whole = {**own, **attempt.settings}
            graph.add(away, f"{step.name}_{i}{end}", step.kind, settings=whole)
        if LATE in attempt.ends:
            own["of"] = step.kind
            graph.add(away, f"{step.name}_{i}{end}.late", "held", settings=own)
            graph.add(server, f"late{tensor}_{i}{end}", "late", settings=own)
        if number > 1 and _pulls_weights(graph, step):
            chosen = i % len(graph.config.parameter_servers)
            what = {"layer": step.layer, "interval": i, "for": step.kind, **own}
            here = graph.on_parameter_server(chosen)
            graph.add(here, _stash(step, i, end), "stash", settings=what)


def relaunched_edges(graph: Graph, i: int, tensor: int, step: Step) -> None:
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
            held = f"{name}{before}.late"
            graph.join(name + before, held)
            graph.join(call, held, credit=True)
            graph.join(held, f"late{tensor}_{i}{before}")
        if _pulls_weights(graph, step):
            stash = _stash(step, i, end)
            graph.join(f"av{step.layer}_{i}", stash)
            graph.join(call, stash, credit=True)
            graph.join(stash, name + end)
        if graph.sends_gradient(step):
            server = i % len(graph.config.parameter_servers)
            graph.join(name + end, graph.sums[step.layer][server])


def _pulls_weights(graph: Graph, step: Step) -> bool:
    needs = step.needs_weights(rematerialize=graph.config.rematerialize)
    return step.kind == "apply" or needs


def _stash(step: Step, i: int, end: str) -> str:
    return f"stash_{step.name}_{i}{end}"
