"""Prediction of a lab: a scenario simulated at its NICs before it, judged after it.

The scenario is of `emu fit`, from a lab with other NICs. Iterations are found in what
crossed, and compared with the simulated ones; every message with what max-min makes of
it, from its own start on, so that the network's part is apart from the programs'.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Records
from emu.lab.fitting.causes import FittedSteps
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.iterations import FittedIterations, fit_traffic
from emu.lab.fitting.steps import Marks
from emu.prediction.analysis.full_queues import FullQueues, full_queues
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
from emu.scenario import Scenario, load, prepare
from emu.scenario.run_sections import LabFile
from emu.trust import link_shares
from emu.trust.causes import LEAST, NO_REASON
from emu.trust.prediction import SHARE, Outcome, Prediction, PredictionKeys

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
Fitted: TypeAlias = FittedIterations | FittedSteps


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
    machines = file.to_cluster().machines
    cores = {}
    for machine in machines:
        cores[machine.name] = file.cores.get(machine.name, 1.0)
    problem = _mismatch(scenario, cores)
    if problem:
        trail = ("lab", "prediction", "scenario")
        raise file.origin.error(trail, f"{section.scenario} {problem}")

    nics = []
    speeds = []
    positions = dict(scenario.cluster.names_and_positions())
    for machine in machines:
        name = machine.name
        position = positions[name]
        row = f"cluster.machines[{position}]"
        rates = f"out: {machine.bandwidth_out!r} B/s, in: {machine.bandwidth_in!r} B/s"
        speed = cores[name]
        nics.append(f"{row}.nic={{{rates}}}")
        speeds.append(f"{row}.speed={speed!r}")
    # Read a second time, with the lab's NICs and cores in place of the fit's.
    predicting = load(path, [*nics, *speeds])
    experiment = prepare(predicting)
    return experiment.simulate()


def fit_note(file: LabFile) -> str:
    """Return how far the fit that predicts a lab is off at other NICs, as it says."""
    section = file.lab.prediction
    if section is None:
        return ""
    scenario = load(str(file.folder / section.scenario))
    job = scenario.job
    return job.fit_note or "of no fit"


def _mismatch(scenario: Scenario, cores: Mapping[str, float]) -> str:
    """Return why a scenario cannot predict a lab of these machines; empty if it can."""
    positions = dict(scenario.cluster.names_and_positions())
    if cores.keys() != positions.keys():
        names = ", ".join(positions)
        names_of_lab = ", ".join(cores)
        return (
            f"is of machines {names}, the lab of {names_of_lab}: name a fit of this lab"
        )

    # An entry of several machines has room for the NIC of one.
    entries = set(positions.values())
    if len(entries) < len(positions):
        return "counts machines: write one entry for each"
    is_slowed = set(cores.values()) != {1.0}
    if is_slowed and not scenario.job.goes_by_speed:
        return (
            "goes by no speed, and machines of the lab have cores: fit it again, "
            "or state job.times: measured there"
        )
    return ""


def forecast(predicted: Schedule, time_scale: float = 1.0) -> FullQueues:
    """Return where TCP may make a predicted lab differ, known before it starts.

    Under max-min rates; queues are those of a lab that states none. A NIC dilated by
    ``time_scale`` has the queue of an undilated one, TCP's timeouts are of wall time.
    """
    volumes = np.nan_to_num(predicted.flow_bytes)
    times = Realization(predicted.work, volumes)
    older_first = simulate(predicted.problem, times, "fifo")
    queues = full_queues(
        predicted,
        time_scale=1.0,
        byte_scale=1.0,
        older_first=older_first.makespan,
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
) -> PredictionKeys:
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

    # Per iteration, since a lab may run more of them, or fewer, than its fit.
    period = predicted.makespan / predicted.problem.job.iterations
    error = outcome.seconds / period - 1
    if abs(error) <= threshold:
        agrees = Prediction(Outcome.AGREES, error, threshold)
        return agrees.to_json()

    longer = outcome.seconds - period
    excess = longer * outcome.count
    timeout = _TIMEOUT / time_scale
    waited = timeout * timeouts
    delay = min(waited, abs(excess))  # of several connections at once
    text = f"TCP waited for {timeouts} timeouts, {timeout:.3g} s each or more"
    links, of_messages = _of_messages(traffic, outcome, excess, nics or {})
    of_bytes = _of_bytes(traffic, outcome, predicted)
    of_timeouts = LabCause(text, delay)
    causes = [of_bytes, of_timeouts, *of_messages]
    differs = Prediction(
        Outcome.DIFFERS,
        error,
        threshold,
        since=_since(outcome, predicted, threshold),
        links=tuple(links),
        reasons=largest_cause(causes, excess),
    )
    return differs.to_json()


class LabCause(NamedTuple):
    """A cause that may be, and the seconds by which it moves the end."""

    sentence: str
    seconds: float


def largest_cause(
    causes: Iterable[LabCause],
    off: float,
) -> tuple[str, ...]:
    """Return the cause that explains most of a difference, and `LEAST` of it, in words.

    One that moves the end the other way explains nothing of it.
    """
    most = max(causes, key=lambda cause: cause.seconds / off)
    share = most.seconds / off
    if share < LEAST:
        return NO_REASON
    percent = 100 * share
    return (f"{most.sentence}: {percent:.0f} % of the difference",)


def unknown(threshold: float, why: Exception) -> PredictionKeys:
    """Return the verdict where no iterations were found, with the reason."""
    text = str(why).replace("--mark LINE", "lab.prediction.mark: LINE")
    text = text.replace("--skip", "lab.prediction.skip")
    text = text.replace("--mark", "mark")
    nothing = Prediction(Outcome.UNKNOWN, None, threshold, reasons=(text,))
    return nothing.to_json()


def _since(
    outcome: Fitted,
    predicted: Schedule,
    threshold: float,
) -> float:
    """Return when the first iteration ended that was off; the last, if none was."""
    simulated = np.nanmax(predicted.task_end, axis=0)
    # A lab of more iterations goes on as the predicted ones did.
    iterations = np.arange(outcome.count)
    turn, number = np.divmod(iterations, len(simulated))
    ends = turn * predicted.makespan + simulated[number]
    found_ends = outcome.ends - outcome.starts[0]
    error = np.abs(found_ends - ends)
    most = threshold * ends[-1]
    is_wrong = error > most
    last = outcome.ends[-1]
    first_wrong = np.min(outcome.ends, initial=last, where=is_wrong)
    return float(first_wrong)


def _of_messages(
    traffic: Traffic,
    outcome: Fitted,
    excess: float,
    nics: Mapping[str, float],
) -> tuple[list[str], list[LabCause]]:
    """Return the links whose messages moved the iterations, and what may have done it.

    How far a cause moves them is its part of what messages lost to max-min, each from
    its own beginning; where none lost or won, the programs took other times.
    """
    span = (outcome.starts[0], outcome.ends[-1])
    laid = laid_out(traffic, span)
    if laid is None:
        return [], []
    schedule, fluid = laid

    slowest_rate = float(traffic.nics.min())
    rough_delay = _ROUGH * _PACKET / slowest_rate
    drifts = _drifts(schedule, fluid, excess, rough_delay)
    losses = []
    for (edge, _), seconds in drifts.items():
        losses.append((edge, seconds))
    least = SHARE * abs(excess)
    links = link_shares.links_to_blame(schedule, losses, least)
    if not links:
        text = (
            "programs took other times than predicted between what they received and "
            "what they sent next: messages took what max-min makes of them"
        )
        return [], [LabCause(text, excess)]
    if excess <= 0:
        return links, []  # links do not make a lab faster
    return links, _explain_losses(schedule, links, drifts, excess, nics)


def _explain_losses(
    schedule: Schedule,
    links: list[str],
    drifts: Mapping[tuple[int, int], float],
    excess: float,
    nics: Mapping[str, float],
) -> list[LabCause]:
    """Return what may have made messages over some links late: `_of_messages`."""
    problem = schedule.problem
    ports = {port for port, link in enumerate(problem.links) if link.name in links}
    worst = [
        (edge, number)
        for edge, number in drifts
        if not ports.isdisjoint(problem.hops[edge])
    ]
    # What delayed messages by so much moved the end by so much, all together.
    per_second = excess / sum(drifts.values())
    none = np.zeros_like(schedule.flow_end)
    shares = link_shares.max_min_shares(schedule, worst, none)
    slow = link_shares.slow_links(schedule, links, shares, none, nics)
    unequal = link_shares.unequal_shares(schedule, links, worst, shares)

    found = [(cause.sentence, cause.flows) for cause in slow]
    found += [(cause.sentence, cause.flows) for cause in unequal]
    causes = []
    for sentence, flows in found:
        loss = 0.0
        for edge, number in flows.tolist():
            loss += drifts.get((edge, number), 0.0)
        moved = LabCause(sentence, per_second * loss)
        causes.append(moved)
    return causes


def _drifts(
    schedule: Schedule,
    fluid: Schedule,
    excess: float,
    rough_delay: float,
) -> dict[tuple[int, int], float]:
    """Return the seconds that messages lost to max-min, by edge and number.

    Of those that moved the end the way that it moved, and by more than a rough delay.
    """
    took = schedule.flow_end - schedule.flow_start
    needed = fluid.flow_end - fluid.flow_start
    delays = took - needed
    drifts = {}
    for edge, number in schedule.flows().tolist():
        delay = float(delays[edge, number])
        is_rough = abs(delay) < rough_delay
        # A late message explains no early end, nor an early one a late end.
        if not is_rough and delay * excess > 0:
            drifts[edge, number] = delay
    return drifts


def _of_bytes(
    traffic: Traffic,
    outcome: Fitted,
    predicted: Schedule,
) -> LabCause:
    """Return other volumes than predicted, and what they make of the simulation."""
    packets = traffic.packets
    times = packets["time"]
    is_within = times > outcome.starts[0]
    is_within &= times <= outcome.ends[-1]
    sizes_within = packets["bytes"][is_within]
    size = float(sizes_within.sum()) / outcome.count

    problem = predicted.problem
    volumes = np.nan_to_num(predicted.flow_bytes)
    iterations = problem.job.iterations
    # What stays on a machine is not captured either.
    crosses = [bool(hops) for hops in problem.hops]
    crossing = volumes[crosses]
    predicted_size = float(crossing.sum()) / iterations
    share = 1.0
    if predicted_size:
        share = size / predicted_size

    def length(factor: float) -> float:
        sent = volumes * factor
        realization = Realization(predicted.work, sent)
        return makespan(problem, realization, "maxmin")

    percent = 100 * (share - 1)
    text = f"{percent:+.2g} % of bytes crossed per iteration"
    longer = length(share) - length(1.0)
    seconds = longer / iterations * outcome.count
    return LabCause(text, seconds)


def laid_out(
    traffic: Traffic,
    within: tuple[float, float],
) -> tuple[Schedule, Schedule] | None:
    """Return messages as flows of a schedule: as they went, and as max-min has them.

    Every direction of a connection is an edge, whose source ends when a message begins,
    ``within`` these seconds. None where they are too many.
    """
    begin, end = within
    slowest_rate = float(traffic.nics.min())
    silence = max(_SILENCE, _PACKETS * _PACKET / slowest_rate)
    rows = messages(traffic.packets, silence)
    first_times = rows["first"]
    is_within = (first_times > begin) & (first_times <= end)
    rows = rows[is_within]
    directions, edges = np.unique(rows[CONNECTION], return_inverse=True)
    if not len(rows):
        return None

    count = len(directions)
    counts = np.bincount(edges, minlength=count)
    most = int(counts.max())
    shape = (count, most)
    if math.prod(shape) > _MOST:
        return None

    # Messages by direction, each row in the order of time.
    # A sort that is not stable would mix them up within a direction.
    order = np.argsort(edges, kind="stable")
    starts = np.cumsum(counts) - counts
    starts_of_rows = np.repeat(starts, counts)
    number = np.arange(len(rows)) - starts_of_rows
    cell = (edges[order], number)

    def table(values: Floats) -> Floats:
        cells = np.full(shape, np.nan)
        cells[cell] = values[order]
        return cells

    first = table(rows["first"] - begin)
    last = table(rows["last"] - begin)
    late_bytes = rows["bytes"].astype(float) - _PACKET
    sizes = table(np.maximum(late_bytes, 1.0))
    problem = _problem(traffic, directions, counts.tolist())
    # A sender computes up to each message, so that all begin when they did.
    gaps = np.diff(first, axis=1, prepend=0.0)
    no_work = np.zeros_like(gaps)
    work = np.concatenate([gaps, no_work])
    realization = Realization(
        times=np.nan_to_num(work),
        volumes=np.nan_to_num(sizes),
    )
    fluid = simulate(problem, realization, "maxmin")
    schedule = _schedule(problem, first, last, sizes)
    return schedule, fluid


def _schedule(
    problem: Problem,
    first: Floats,
    last: Floats,
    sizes: Floats,
) -> Schedule:
    """Return the messages as they went: a sender ends as its message begins."""
    ends = np.concatenate([first, last])
    return Schedule(
        problem,
        task_start=ends,
        task_end=ends,
        flow_ready=first,
        flow_start=first,
        flow_end=last,
        flow_bytes=sizes,
    )


def _problem(
    traffic: Traffic,
    directions: Records,
    counts: list[int],
) -> Problem:
    """Return a sender and a receiver for every direction of a connection."""
    machines = []
    for number, name in enumerate(traffic.machines):
        rate_out, rate_in = traffic.nics[:, number].tolist()
        machine = Machine(name, bandwidth_in=rate_in, bandwidth_out=rate_out)
        machines.append(machine)

    tasks = []
    for kind in ("from", "to"):
        for number, messages_sent in enumerate(counts):
            task = Task(f"{kind}{number}", kind, iterations=messages_sent)
            tasks.append(task)
    count = len(counts)
    edges = [Edge(number, count + number) for number in range(count)]
    senders = directions["source"].tolist()
    receivers = directions["destination"].tolist()
    positions = [*senders, *receivers]
    return Problem(
        cluster=Cluster(tuple(machines)),
        job=Job(tuple(tasks), tuple(edges), iterations=max(counts)),
        placement=Placement(tuple(positions)),
    )


def list_lab_misses(file: LabFile, result: Mapping[str, Any]) -> list[str]:
    """Return one sentence per line of ``lab.expect`` that a lab did not meet."""
    expect = file.lab.expect
    prediction = result.get("prediction", {})
    rows = (
        ("verdict", expect.trust, result["trust"]),
        ("prediction", expect.prediction, prediction.get("outcome")),
    )
    misses = []
    for name, aim, value in rows:
        if aim is not None and value != aim:
            misses.append(f"{name} is {value}, expected {aim}")
    return misses
