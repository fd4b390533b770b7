"""Facts of a run and of a lab, one list each for terminal and page; their tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emu.prediction.analysis.bounds import optimality_line
from emu.report import explanation_tables as words
from emu.report import figure_rows
from emu.report.terminal import Fact
from emu.runs.lab_file import LabResult
from emu.runs.result import Result
from emu.units import format_count, format_duration, format_ratio, format_size

#: Colour of a verdict; any other is red.
_COLOURS = {"trusted": "green", "degraded": "yellow"}
#: Meaning of ``sharing`` over kernel NICs.
_SHARING = {
    "fair": "TCP shared NICs that the kernel limits, each with a queue per connection; "
    "no rate was assigned",
    "tcp": "TCP shared NICs that the kernel limits, each with one queue; no rate was "
    "assigned",
    "assigned": "the kernel held every connection to the rate of the schedule, and "
    "every NIC to its own",
}
#: Note of the replay error: it is of the host and the network alone.
_REPLAYED = "simulated with the times and volumes that the run had"
#: Times that delay before first bytes may exceed what chose a scale: half of what is
#: allowed was aimed at.
_SLOW = 2.0


def run_facts(result: Result, digits: int = 4) -> list[Fact]:
    """Return the figures that a run was for; those of keys that are missing are not.

    Makespans have so many digits.
    Raises KeyError, TypeError, ValueError when a part of it is damaged.
    """
    facts = [*setting(result)]
    if result.get("network") == "kernel":
        tcp = result["transport"]
        sharing = _SHARING[result["sharing"]]
        facts.append(Fact("network", "kernel", sharing))
        facts += _nic_facts(result.get("nics"))
        note = f"of {tcp['segments']} segments; {tcp['timeouts']} timeouts"
        facts.append(Fact("TCP", f"{tcp['retransmitted']} again", note))
    if recovery := result.get("recovery"):
        facts += _recovery(recovery, digits)

    facts += _lengths(result, digits)
    if virtual := result.get("virtual"):
        facts += _virtual(virtual, result["job_makespan"], digits)
    if setup := result.get("setup"):
        label, note = figure_rows.setup_row(setup)
        facts.append(Fact("setup", label, note))
    pace_rows = figure_rows.pace_rows(result.get("pace", {}))
    facts += [Fact(*row) for row in pace_rows]
    model_rows = figure_rows.model_rows(result.get("models", []))
    facts += [Fact(*row) for row in model_rows]
    if "cost" in result:
        total, purposes = figure_rows.cost_row(result["cost"])
        facts.append(Fact("cost", total, purposes))

    if relaunches := result.get("relaunches"):
        wait = format_duration(relaunches["seconds"], 4)
        note = (
            f"{relaunches['late']} for one that answered too late, "
            f"{wait} waited for them"
        )
        count = f"{relaunches['count']} lambdas"
        facts.append(Fact("launched again", count, note))
    if verdict := result.get("verdict"):
        facts += _verdict(verdict)

    facts += _prediction(result.get("prediction"))
    facts += _draw(result)
    if witness := result.get("witness"):
        facts += _witness(witness, digits)
    return [*facts, *_learnt(result), *_computer(result)]


def _verdict(verdict: Result) -> Iterator[Fact]:
    """Yield how far a run is to be trusted, why, and what would help."""
    trust = str(verdict["trust"])
    most = f"{100 * verdict['max_error']:g} % may be"
    if "shift" in verdict:
        shift = format_ratio(verdict["shift"]).removeprefix("+")
        note = f"the end is off by up to {shift}, {most}"
    else:  # of an earlier emu, which had it decide by parts of this
        error = format_ratio(verdict["error"])
        note = f"the host moved the end by {error}, {most}"
    yield Fact(
        label="verdict",
        value=trust,
        note=note,
        key="verdict",
        style=_COLOURS.get(trust, "red"),
    )
    for name in ("reasons", "remedies"):
        yield from _name_first(name, verdict[name])


def setting(result: Result) -> Iterator[Fact]:
    """Yield the scenario, and the method of its placement."""
    notes = []
    if iterations := result.get("iterations"):
        # A pipeline takes further iterations to fill and to drain; other jobs take
        # none.
        batches = result.get("mini_batches") or iterations
        length = words.length_text(iterations, batches)
        # Of several jobs it is the longest one's number.
        notes.append("iterations of each job" if "jobs" in result else length)
    if "credit_window" in result:
        notes.append(f"credit window {result['credit_window']}")
    if "processes" in result:
        notes.append(format_count(result["processes"], "process"))
    if "policy" in result:
        notes.append(f"rates by {result['policy']}")

    name = str(result.get("scenario", "run"))
    yield Fact("scenario", name, ", ".join(notes))
    if failures := result.get("failures"):
        count = f"{sum(failures.values())} drawn"
        yield Fact("failures", count, words.most_failing(failures))
    if "placing" in result:
        placing = result["placing"]
        line = words.placing_line(placing)
        yield Fact("placement", result["placement"], line)
        if warning := words.warn_of_unclaimed(placing):
            yield Fact("", "", warning)


def _nic_facts(nics: Result | None) -> Iterator[Fact]:
    """Yield how far NICs are off the stated rates, measured before anything began."""
    if nics is None:  # of an earlier emu
        return

    deviations = []
    for machine, directions in nics["shares"].items():
        for direction, share in directions.items():
            deviation = share - 1
            row = (abs(deviation), deviation, f"{machine} {direction}")
            deviations.append(row)
    # The largest by its amount; it is shown with its sign.
    _, largest, place = max(deviations)

    took = format_duration(nics["seconds"], 2)
    note = f"off the stated rate at most ({place}); measured in {took} beforehand"
    yield Fact("NICs", format_ratio(largest), note)


def _lengths(result: Result, digits: int) -> Iterator[Fact]:
    recovery = result.get("recovery") or {}
    if "makespan" in result:
        meaning = "a flow ends with its rates; bytes may be ahead of them (fluid)"
        if result.get("flow_ends", "fluid") == "arrival":
            meaning = "a flow ends when its last byte is in the receiver's memory"
        attempts = recovery.get("attempts")
        if attempts:
            first = attempts[-1]["next_iteration"]
            meaning = f"of all attempts, the last from iteration {first} on; {meaning}"
        length = format_duration(result["makespan"], digits)
        yield Fact(
            label="emulated makespan",
            value=length,
            note=meaning,
            key="makespan",
        )

    yield from _errors(result, recovery, digits)
    if line := optimality_line(result):
        bound = format_duration(result["bound"], digits)
        yield Fact(
            label="lower bound",
            value=bound,
            note=line,
            key="bound",
        )


def _errors(
    result: Result,
    recovery: Result,
    digits: int,
) -> Iterator[Fact]:
    """Yield how far the run is off its prediction, and off its replay."""
    source_of_times = result.get("times", "stated")
    times = f"times were {source_of_times}"
    predicted = "predicted before the run"
    foreseen = recovery.get("foreseen_makespan")
    if foreseen is not None:
        length = format_duration(foreseen, digits)
        predicted = f"with the deaths that came ({length} as foreseen)"
    for key, reference, note in (
        ("makespan_error", "predicted_makespan", f"{predicted}; {times}"),
        ("replay_error", "replayed_makespan", _REPLAYED),
    ):
        if key in result:
            reference_length = format_duration(result[reference], digits)
            text = f"of {reference_length} {note}"
            yield Fact(
                label=key.replace("_", " "),
                value=format_ratio(result[key]),
                note=text,
                key=key,
            )


def _virtual(
    figures: Result,
    simulated: float,
    digits: int,
) -> Iterator[Fact]:
    """Yield what a virtual run says of itself, beside the simulation of its job."""
    makespan = figures["makespan"]
    error = "0 %"
    if makespan:
        error = format_ratio(simulated / makespan - 1)
    note = f"by the clocks of the ranks; its job, simulated and drawn here, {error}"
    length = format_duration(makespan, digits)
    yield Fact("virtual makespan", length, note)
    steps = figures["steps"]
    if steps["count"]:
        note = f"median of {steps['count']} steps but the first, which took "
        note += format_duration(steps["first"], digits)
        median = format_duration(steps["median"], digits)
        yield Fact("step", median, note)

    trust = figures["trust"]
    yield Fact(
        label="verdict",
        value=trust,
        note="",
        style=_COLOURS.get(trust, "red"),
    )
    yield from _name_first("reasons", figures["reasons"])


def _recovery(recovery: Result, digits: int) -> Iterator[Fact]:
    """Yield what the ends of attempts have lost."""
    losses = recovery["lost"]
    attempts = recovery["attempts"]
    # Lost are stated recovery and measured work that was done again, both emulated.
    loss = words.write_loss(losses)
    note = f"in {len(attempts)}: {loss}"
    if prediction := recovery.get("predicted_lost"):
        predicted_loss = words.write_loss(prediction)
        note += f"; simulated {predicted_loss}"
    note += "; recovery is as stated, and no part of the errors"
    lost = format_duration(sum(losses.values()), digits)
    yield Fact("lost to deaths", lost, note)

    # What the host takes is its own load (2 to 11 s for 8 processes in 14 runs): it
    # stands beside the emulated seconds, and in no sum with them.
    wall_seconds = sum(attempt.get("took", 0.0) for attempt in attempts)
    took = format_duration(wall_seconds)
    yield Fact("", "", f"this computer took {took} of wall time to go on, not counted")
    for attempt in attempts:
        first = attempt["next_iteration"]
        yield Fact("", "", f"goes on at iteration {first}: {attempt['error']}")


def _name_first(name: str, texts: Sequence[str]) -> list[Fact]:
    """Return a line each, the first with the name."""
    facts = []
    for position, text in enumerate(texts):
        label = name if position == 0 else ""
        facts.append(Fact(label, "", text))
    return facts


def _prediction(
    verdict: Result | None, label: str = "prediction", off: str = "the run is off"
) -> Iterator[Fact]:
    """Yield how far one is off the other: since when, where, and why."""
    if verdict is None:
        return
    # Without a prediction there is nothing to be off; the reasons say why.
    if verdict["error"] is None:
        reasons = "; ".join(verdict["reasons"])
        yield Fact(label, "not judged", reasons)
        return

    outcome = str(verdict["outcome"])
    most = f"{100 * verdict['threshold']:g} % may be"
    error = format_ratio(verdict["error"])
    line = f"{off} by {error}, {most}"
    if verdict["since"] is not None:
        begin = format_duration(verdict["since"], 3)
        line += f"; since {begin}"
    if verdict["links"]:
        links = ", ".join(verdict["links"])
        line += f", on {links}"

    colour = "green" if outcome == "agrees" else "yellow"
    yield Fact(
        label=label,
        value=outcome,
        note=line,
        key=label,
        style=colour,
    )
    yield from _name_first("likely reason", verdict["reasons"])


def _draw(result: Result) -> Iterator[Fact]:
    """Yield that one run is one draw, and how far its own iterations spread."""
    if "prediction" not in result:
        return
    spread = result.get("spread")
    line = "a further run may end otherwise: emu run FILE --repeat auto"
    if spread is not None:
        most = format_ratio(spread).removeprefix("+")
        line = f"by its iterations a further run ends within {most} of it; "
        line += "--repeat auto measures that"

    yield Fact(
        label="repeats",
        value="one draw",
        note=line,
        key="spread",
    )


def _witness(seen: Result, digits: int) -> Iterator[Fact]:
    """Yield the makespan over packets, and who agrees with whom of three."""
    lengths = {
        name: format_duration(seconds, digits)
        for name, seconds in seen["makespans"].items()
    }
    line = (
        f"beside {lengths['fluid']} by rates and {lengths['measured']} measured: ns-3 "
        f"{seen['ns3']}, {seen['congestion_control']}, {seen['sharing']} queues, "
        f"{seen['dropped']:,} packets dropped"
    )

    yield Fact(
        label="over packets",
        value=lengths["packets"],
        note=line,
        key="witness",
    )

    for pair in seen["pairs"]:
        if "packets" in (pair["of"], pair["over"]):  # the other is the prediction
            label = f"{pair['of']} over {pair['over']}"
            yield from _prediction(pair, label, "off")


def _learnt(result: Result) -> Iterator[Fact]:
    """Yield when last bytes came, what was trained, and what each job took."""
    transport = result.get("transport", {})
    # 0 is a figure as well: a missing key alone is none.
    early = transport.get("early_wall_seconds")
    if early is not None:
        yield _last_bytes(early, transport)
    for part in (result, *result.get("jobs", ())):
        step = part.get("diverged")
        if step is not None:
            job = part.get("job", "")
            yield Fact("training", f"diverged at step {step}", job)

    if points := result.get("training"):
        first = points[0]["loss"]
        last = points[-1]["loss"]
        yield Fact("training loss", f"{last:.4f}", f"from {first:.4f} at first")
    for split, accuracy in result.get("accuracy", {}).items():
        yield Fact(f"{split} accuracy", f"{accuracy:.4f}")
    if reads := result.get("reads_apart"):
        note = "than simulated before the run"
        if "accuracy" in reads:
            note += f"; accuracy is {reads['accuracy']:+.4f} off the simulated"
        counts = f"{reads['other']:,} of {reads['count']:,}"
        yield Fact("other reads", counts, note)
    yield from _jobs(result.get("jobs", ()))


def _last_bytes(early: float, transport: Result) -> Fact:
    """Return when last bytes came, by the wall seconds that they were early."""
    lead = format_duration(abs(early), 3)
    if early < 0:
        value = f"{lead} after"
        note = "what their rates had carried"
    else:
        value = f"{lead} ahead"
        note = "of what their rates had carried"
    late = f"{transport.get('late_flows', 0)} of {transport['flows']} late"
    return Fact("last bytes", value, f"{note} (wall time, median); {late}")


def _jobs(jobs: Sequence[Result]) -> Iterator[Fact]:
    """Yield what each job took; of very many those that were slowed down most."""
    if len(jobs) > words.MOST_JOBS:
        note = f"the {words.MOST_JOBS} most slowed down follow"
        yield Fact("jobs", f"{len(jobs)}", note)
        slowest_first = sorted(jobs, key=lambda job: -job["slowdown"])
        jobs = slowest_first[: words.MOST_JOBS]
    for job in jobs:
        alone_length = format_duration(job["alone"], 4)
        note = f"{job['slowdown']:.3f} times {alone_length} alone"
        length = format_duration(job["seconds"], 4)
        yield Fact(f"job {job['job']}", length, note)


def _computer(result: Result) -> Iterator[Fact]:
    if "wall_seconds" in result:
        startup = result["startup"]
        start = format_duration(startup["seconds"], 2)
        note = f"wall time, after {start} to start"
        # The memory of processes on other hosts, or behind kernel NICs, is not counted.
        if startup["memory"]:
            memory = format_size(startup["memory"])
            note = f"{note}; processes hold {memory}"
        length = format_duration(result["wall_seconds"])
        yield Fact(
            label="this computer",
            value=length,
            note=note,
            key="wall_seconds",
        )

    if hosts := result.get("hosts"):
        machines = []
        for host in hosts:
            names = ", ".join(host["machines"])
            machines.append(f"{host['host']}: {names}")
        yield Fact(
            label="hosts",
            value=str(len(hosts)),
            note="; ".join(machines),
            key="hosts",
        )
    if choice := result.get("auto_scale"):
        note = _say_choice(choice)
        yield Fact("time scale", f"{choice['time_scale']:g}", note)


def _say_choice(choice: Result) -> str:
    """Return how a time scale was chosen, and how far it held what was aimed at."""
    actual = choice["actual"]
    prediction = choice["predicted"]
    if "kernel" not in choice:
        late = 100 * actual["late_flows"]
        trials = len(choice["trials"])
        line = f"chosen by {trials} trials; late flows {late:.2g} %"
        if choice["held"]:
            late_in_trial = 100 * prediction["late_flows"]
            return f"{line}, {late_in_trial:.2g} % in the trial"
        return f"{line}; untried, as no trial met the aims"

    delay = 100 * actual["delay"]
    foreseen = 100 * prediction["delay"]
    line = (
        "by what kernel NICs cost: delay before first bytes "
        f"{delay:.2g} % ({foreseen:.2g} "
        f"foreseen), cores {actual['cpu_busy']:.0%} busy "
        f"({prediction['cpu_busy']:.0%} by this run)"
    )
    # Delays are wall time of this host: as a share of the run they fall as the scale
    # grows, so that a scale so many times as large would meet the aim.
    over = 1.0
    if prediction["delay"]:
        over = actual["delay"] / prediction["delay"]
    if over > _SLOW:
        scale = over * choice["time_scale"]
        state = f"{scale:.2g}"
        line += f"; this host is too slow for it: state {state}"
    return line


def lab_facts(lab: LabResult) -> list[Fact]:
    """Return the figures of a lab's run."""
    scale = lab.get("time_scale", 1.0)
    pace = "real time"
    if scale != 1:
        wall = format_duration(lab["wall_seconds"])
        pace = f"time scale {scale:g}: took {wall}"

    startup = format_duration(lab["startup_seconds"])
    trust = lab["trust"]
    dropped = lab["dropped"].values()
    drops = sum(sum(counts.values()) for counts in dropped)
    # Of the machines' clock: a second there takes ``scale`` wall seconds.
    seconds = lab["wall_seconds"] / scale
    retransmitted = _count_tcp(lab, "retransmitted")
    timeouts = _count_tcp(lab, "timeouts")
    facts = [
        Fact(
            "time",
            format_duration(seconds),
            f"{pace}; machines took {startup} to start",
        ),
        Fact(
            label="verdict",
            value=trust,
            note=_say_cores(lab),
            style=_COLOURS.get(trust, "red"),
        ),
        *_prediction(lab.get("prediction")),
        *_nic_facts(lab.get("measured")),
        Fact("sent again", f"{retransmitted:,}", f"segments; {timeouts} timeouts"),
        Fact("dropped by queues", f"{drops:,}", "packets"),
    ]

    if crossing := lab.get("crossed"):
        crossed_bytes = crossing["bytes"].values()
        payload = sum(sum(row.values()) for row in crossed_bytes)
        note = f"{crossing['packets']:,} packets, {crossing['messages']:,} messages"
        facts.append(Fact("payload", format_size(payload), note))
        if queues := crossing.get("shared_queues"):
            met = "of connections met in one queue of a NIC: less than their fair share"
            facts.append(Fact("shared queues", f"{queues} pairs", met))
    return facts


def _say_cores(lab: LabResult) -> str:
    """Return what programs computed, what they waited for cores, and had of these."""
    computation = format_duration(lab["computed_seconds"])
    wait = format_duration(lab["waited_seconds"])
    line = f"programs computed {computation} and waited {wait} for a core"
    if cpu := lab.get("cpu"):
        least = min(cpu.values())
        most = max(cpu.values())
        cores = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        gain = format_duration(lab.get("early_seconds", 0.0))
        line += f"; of {cores} cores each; {gain} early after pauses"
    return line


def _count_tcp(lab: LabResult, name: str) -> int:
    counts_of_machines = lab["tcp"].values()
    return sum(counts[name] for counts in counts_of_machines)
