"""Prediction of a lab: a scenario simulated at its NICs before it, judged after it.

The scenario is of `emu fit`, from a lab with other NICs. Iterations are found in what
crossed, and compared with the simulated ones; every message with what max-min makes of
it, from its own start on, so that the network's part is apart from the programs'.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.lab.fitting.causes import FittedSteps
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.iterations import FittedIterations, fit_traffic
from emu.lab.fitting.steps import Marks
from emu.prediction.analysis.link_load import FullQueues, full_queues
from emu.prediction.analysis.traffic import CONNECTION, Traffic, messages
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Schedule,
    Task,
)
from emu.scenario import load, prepare
from emu.scenario.run_sections import LabFile
from emu.trust import prediction as verdicts
from emu.trust.prediction import SHARE, Cause, Outcome, Prediction

#: Bytes of a full packet, whose own time is before a message is seen to begin.
_PACKET = 1448
#: Seconds without a packet that part two messages, and packets of the slowest NIC: what
#: a program waits in between would be the network's else.
_SILENCE = 0.005
_PACKETS = 4
#: Packets of the slowest NIC by which a message is off for no reason: those of others
#: are before or behind its own.
_ROUGH = 4
#: Wall seconds that a timeout of TCP takes at least; it parts a message in two.
_TIMEOUT = 0.2
#: Starts of messages that are laid out at most, by connection and number.
_MOST = 20_000_000


def predict_lab(file: LabFile) -> Schedule | None:
    """Return the simulation of the scenario that predicts a lab; None without one.

    Raises ScenarioError when it cannot be read, has other machines than the lab, or its
    times say nothing of its cores.
    """
    section = file.lab.prediction
    if section is None:
        return None
    path = str(file.folder / section.scenario)
    scenario = load(path)
    places = dict(scenario.cluster.names_and_positions())
    lab = file.to_cluster().machines
    cores = {m.name: file.cores.get(m.name, 1.0) for m in lab}
    problem = ""
    if cores.keys() != places.keys():
        problem = f"is of machines {', '.join(places)}, the lab of {', '.join(cores)}: "
        problem += "name a fit of this lab"
    elif len(set(places.values())) < len(places):
        problem = "counts machines: write one entry for each"
    elif {*cores.values()} != {1.0} and not scenario.job.goes_by_speed:
        problem = "goes by no speed, and machines of the lab have cores: fit it again, "
        problem += "or state job.times: measured there"
    if problem:
        trail = ("lab", "prediction", "scenario")
        raise file.origin.error(trail, f"{section.scenario} {problem}")
    nics = [
        f"cluster.machines[{places[m.name]}].nic="
        f"{{out: {m.bandwidth_out!r} B/s, in: {m.bandwidth_in!r} B/s}}"
        for m in lab
    ]
    speeds = [f"cluster.machines[{places[n]}].speed={c!r}" for n, c in cores.items()]
    return prepare(load(path, [*nics, *speeds])).simulate()


def forecast(predicted: Schedule, time_scale: float = 1.0) -> FullQueues:
    """Return where TCP may make a predicted lab differ, known before it starts.

    Under max-min rates; queues are those of a lab that states none. A NIC dilated by
    ``time_scale`` has the queue of an undilated one, TCP's timeouts are of wall time.
    """
    times = Realization(predicted.work, np.nan_to_num(predicted.flow_bytes))
    queues = full_queues(
        predicted,
        time_scale=1.0,
        byte_scale=1.0,
        older_first=simulate(predicted.problem, times, "fifo").makespan,
    )
    return dataclasses.replace(queues, waits=queues.waits / time_scale)


def judge_lab(
    traffic: Traffic,
    predicted: Schedule,
    *,
    threshold: float,
    skip: int = 0,
    marks: Marks | None = None,
    timeouts: int = 0,
    time_scale: float = 1.0,
    nics: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the verdict on the prediction of a lab, as result.json has those of runs.

    The error is of seconds per iteration, of which ``skip`` at the beginning are left
    out. Where no iterations are found in what crossed, the outcome is ``unknown``, with
    the reason. ``threshold`` is the share by which they may differ; marks are as in
    `fit_traffic`; TCP waited for ``timeouts``; ``nics`` are as in `judge_prediction`.
    """
    try:
        outcome = fit_traffic(traffic, skip=skip, marks=marks)
    except Unfittable as why:
        return unknown(threshold, why)
    period = predicted.makespan / predicted.problem.job.iterations
    error = outcome.seconds / period - 1
    if abs(error) <= threshold:
        return Prediction(Outcome.AGREES, error, threshold).to_json()
    apart = (outcome.seconds - period) * outcome.count
    one = _TIMEOUT / time_scale
    waits = f"TCP waited for {timeouts} timeouts, {one:.3g} s each or more"
    delay = min(one * timeouts, abs(apart))  # of several connections at once
    causes = [_of_bytes(traffic, outcome, predicted), Cause(waits, delay)]
    links, more = _of_messages(traffic, outcome, apart, nics or {})
    reasons = verdicts.largest_cause([*causes, *more], apart)
    simulated = np.nanmax(predicted.task_end, axis=0)
    turn, number = np.divmod(np.arange(outcome.count), len(simulated))
    ends = turn * predicted.makespan + simulated[number]
    off = np.abs(outcome.ends - outcome.starts[0] - ends)
    wrong = off > threshold * ends[-1]
    since = float(np.min(outcome.ends, initial=outcome.ends[-1], where=wrong))
    differs = Prediction(
        Outcome.DIFFERS, error, threshold, since, tuple(links), reasons
    )
    return differs.to_json()


def unknown(threshold: float, why: Exception) -> dict[str, Any]:
    """Return the verdict where no iterations were found, with the reason."""
    text = str(why).replace("--mark LINE", "lab.prediction.mark: LINE")
    text = text.replace("--skip", "lab.prediction.skip").replace("--mark", "mark")
    nothing = Prediction(Outcome.UNKNOWN, None, threshold, reasons=(text,))
    return nothing.to_json()


def _of_messages(
    traffic: Traffic,
    found: FittedIterations | FittedSteps,
    apart: float,
    nics: Mapping[str, float],
) -> tuple[list[str], list[Cause]]:
    """Return the links whose messages moved the iterations, and what may have done it.

    How far a cause moves them is its part of what messages lost to max-min, each from
    its own beginning; where none lost or won, the programs took other times.
    """
    laid = laid_out(traffic, (found.starts[0], found.ends[-1]))
    if laid is None:
        return [], []
    schedule, fluid = laid
    flows = schedule.flows()
    at = tuple(flows.T)
    ideal = (fluid.flow_end - fluid.flow_start)[at]
    late = (schedule.flow_end - schedule.flow_start)[at] - ideal
    late[np.abs(late) < _ROUGH * _PACKET / traffic.nics.min()] = 0.0
    pairs = zip(map(tuple, flows.tolist()), late.tolist(), strict=True)
    drifts = {flow: seconds for flow, seconds in pairs if seconds * apart > 0}
    losses = [(edge, seconds) for (edge, _), seconds in drifts.items()]
    links = verdicts.links_to_blame(schedule, losses, SHARE * abs(apart))
    if not links:
        own = (
            "programs took other times than predicted between what they received and "
            "what they sent next: messages took what max-min makes of them"
        )
        return [], [Cause(own, apart)]
    problem = schedule.problem
    ports = {p for p in range(len(problem.links)) if problem.links[p].name in links}
    worst = [each for each in drifts if not ports.isdisjoint(problem.hops[each[0]])]
    suspects = (
        verdicts.of_network(schedule, links, worst, 1.0, nics) if apart > 0 else ()
    )
    per_second = apart / sum(drifts.values())
    return links, [
        Cause(text, per_second * sum(drifts.get(flow, 0.0) for flow in of))
        for text, of in suspects
    ]


def _of_bytes(
    traffic: Traffic, found: FittedIterations | FittedSteps, predicted: Schedule
) -> Cause:
    """Return other volumes than predicted, and what they make of the simulation."""
    packets = traffic.packets
    problem = predicted.problem
    when = (packets["time"] > found.starts[0]) & (packets["time"] <= found.ends[-1])
    size = float(packets["bytes"][when].sum()) / found.count
    volumes = np.nan_to_num(predicted.flow_bytes)
    count = problem.job.iterations
    aim = float(volumes[[bool(hops) for hops in problem.hops]].sum()) / count
    share = size / aim if aim else 1.0
    lengths = [
        makespan(problem, Realization(predicted.work, volumes * times), "maxmin")
        for times in (1.0, share)
    ]
    text = f"{100 * (share - 1):+.2g} % of bytes crossed per iteration"
    return Cause(text, (lengths[1] - lengths[0]) / count * found.count)


def laid_out(
    traffic: Traffic, within: tuple[float, float]
) -> tuple[Schedule, Schedule] | None:
    """Return messages as flows of a schedule: as they went, and as max-min has them.

    Every direction of a connection is an edge, whose source ends when a message begins,
    ``within`` these seconds. None where they are too many.
    """
    silence = max(_SILENCE, _PACKETS * _PACKET / float(traffic.nics.min()))
    rows = messages(traffic.packets, silence)
    rows = rows[(rows["first"] > within[0]) & (rows["first"] <= within[1])]
    ways, of = np.unique(rows[CONNECTION], return_inverse=True)
    counts = np.bincount(of, minlength=len(ways))
    if not len(rows) or len(ways) * int(counts.max()) > _MOST:
        return None
    order = np.argsort(of, kind="stable")
    starts = np.cumsum(counts) - counts
    at = of[order], np.arange(len(rows)) - np.repeat(starts, counts)
    shape = len(ways), int(counts.max())
    first, last, sizes = (np.full(shape, np.nan) for _ in range(3))
    first[at] = rows["first"][order] - within[0]
    last[at] = rows["last"][order] - within[0]
    sizes[at] = np.maximum(rows["bytes"][order].astype(float) - _PACKET, 1.0)
    problem = _problem(traffic, ways, counts.tolist())
    gaps = np.diff(first, axis=1, prepend=0.0)
    work = np.concatenate([gaps, np.zeros_like(gaps)])
    times = Realization(np.nan_to_num(work), np.nan_to_num(sizes))
    ends = np.concatenate([first, last])
    schedule = Schedule(
        problem,
        task_start=ends,
        task_end=ends,
        flow_ready=first,
        flow_start=first,
        flow_end=last,
        flow_bytes=sizes,
    )
    return schedule, simulate(problem, times, "maxmin")


def _problem(traffic: Traffic, ways: NDArray[np.void], counts: list[int]) -> Problem:
    """Return a sender and a receiver for every direction of a connection."""
    (out, into), pairs = traffic.nics, [*enumerate(counts)]
    machines = [
        Machine(name, bandwidth_in=float(i), bandwidth_out=float(o))
        for name, o, i in zip(traffic.machines, out, into, strict=True)
    ]
    both = [(end, *pair) for end in ("from", "to") for pair in pairs]
    tasks = [Task(f"{end}{way}", end, iterations=count) for end, way, count in both]
    edges = [Edge(way, len(pairs) + way) for way, _ in pairs]
    at = [*ways["source"].tolist(), *ways["destination"].tolist()]
    job = Job(tuple(tasks), tuple(edges), max(counts))
    return Problem(Cluster(tuple(machines)), job, Placement(tuple(at)))


def list_lab_misses(file: LabFile, result: dict[str, Any]) -> list[str]:
    """Return one sentence per line of ``lab.expect`` that a lab did not meet."""
    expect = file.lab.expect
    outcome = result.get("prediction", {}).get("outcome")
    rows = (
        ("verdict", expect.trust, result["trust"]),
        ("prediction", expect.prediction, outcome),
    )
    return [
        f"{name} is {value}, expected {aim}"
        for name, aim, value in rows
        if aim is not None and value != aim
    ]
