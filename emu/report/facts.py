"""Facts of a run and of a lab, one list each for terminal and page; their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emu.prediction.analysis.bounds import optimality_line
from emu.report import explanation_tables as words
from emu.report.terminal import Fact, facts_table, plain_table
from emu.runs.lab_file import LabResult
from emu.runs.result import Result, Row
from emu.units import format_duration, format_rate, format_ratio, format_size

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
        label, note = words.setup_row(setup)
        facts.append(Fact("setup", label, note))
    facts += [Fact(*row) for row in words.pace_rows(result.get("pace", {}))]
    facts += [Fact(*row) for row in words.model_rows(result.get("models", []))]
    if "cost" in result:
        facts.append(Fact("cost", *words.cost_row(result["cost"])))

    if relaunches := result.get("relaunches"):
        note = (
            f"{relaunches['late']} for one that answered too late, "
            f"{format_duration(relaunches['seconds'], 4)} waited for them"
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
    error = format_ratio(verdict["error"])
    most = f"{100 * verdict['max_error']:g} % may be"
    yield Fact(
        "verdict",
        trust,
        f"the host moved the end by {error}, {most}",
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
        notes.append(words.length_text(iterations, batches))
    for key, text in (
        ("credit_window", "credit window {}"),
        ("processes", "{} processes"),
        ("policy", "rates by {}"),
    ):
        if key in result:
            notes.append(text.format(result[key]))

    yield Fact("scenario", str(result.get("scenario", "run")), ", ".join(notes))
    if failures := result.get("failures"):
        count = f"{sum(failures.values())} drawn"
        yield Fact("failures", count, words.most_failing(failures))
    if "placing" in result:
        placing = result["placing"]
        yield Fact("placement", result["placement"], words.placing_line(placing))
        if warning := words.warn_of_unclaimed(placing):
            yield Fact("", "", warning)


def _nic_facts(nics: Result | None) -> Iterator[Fact]:
    """Yield how far NICs are off the stated rates, measured before anything began."""
    if nics is None:  # of an earlier emu
        return
    _, deviation, place = max(
        # The largest either way, which is then told with its sign.
        (abs(share - 1), share - 1, f"{machine} {direction}")
        for machine, directions in nics["shares"].items()
        for direction, share in directions.items()
    )
    took = format_duration(nics["seconds"], 2)
    note = f"off the stated rate at most ({place}); measured in {took} beforehand"
    yield Fact("NICs", format_ratio(deviation), note)


def _lengths(result: Result, digits: int) -> Iterator[Fact]:
    if "makespan" in result:
        meaning = "a flow ends with its rates; bytes may be ahead of them (fluid)"
        if result.get("flow_ends", "fluid") == "arrival":
            meaning = "a flow ends when its last byte is in the receiver's memory"
        if attempts := (result.get("recovery") or {}).get("attempts"):
            first = attempts[-1]["next_iteration"]
            meaning = f"of all attempts, the last from iteration {first} on; {meaning}"
        length = format_duration(result["makespan"], digits)
        yield Fact(
            label="emulated makespan",
            value=length,
            note=meaning,
            key="makespan",
        )

    times = f"times were {result.get('times', 'stated')}"
    predicted = "predicted before the run"
    stated = (result.get("recovery") or {}).get("foreseen_makespan")
    if stated is not None:
        length = format_duration(stated, digits)
        predicted = f"with the deaths that came ({length} as foreseen)"
    for key, reference, note in (
        ("makespan_error", "predicted_makespan", f"{predicted}; {times}"),
        ("replay_error", "replayed_makespan", _REPLAYED),
    ):
        if key in result:
            text = f"of {format_duration(result[reference], digits)} {note}"
            yield Fact(
                label=key.replace("_", " "),
                value=format_ratio(result[key]),
                note=text,
                key=key,
            )
    if line := optimality_line(result):
        bound = format_duration(result["bound"], digits)
        yield Fact(
            label="lower bound",
            value=bound,
            note=line,
            key="bound",
        )


def _virtual(figures: Result, simulated: float, digits: int) -> Iterator[Fact]:
    """Yield what a virtual run says of itself, beside the simulation of its job."""
    makespan = figures["makespan"]
    error = format_ratio(simulated / makespan - 1) if makespan else "0 %"
    note = f"by the clocks of the ranks; its job, simulated and drawn here, {error}"
    yield Fact("virtual makespan", format_duration(makespan, digits), note)
    steps = figures["steps"]
    if steps["count"]:
        note = f"median of {steps['count']} steps but the first, which took "
        note += format_duration(steps["first"], digits)
        yield Fact("step", format_duration(steps["median"], digits), note)

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
    note = f"in {len(attempts)}: {words.write_loss(losses)}"
    if prediction := recovery.get("predicted_lost"):
        note += f"; simulated {words.write_loss(prediction)}"
    note += "; recovery is as stated, and no part of the errors"
    yield Fact("lost to deaths", format_duration(sum(losses.values()), digits), note)

    # What the host takes is its own load (2 to 11 s for 8 processes in 14 runs): it
    # stands beside the emulated seconds, and in no sum with them.
    took = format_duration(sum(attempt.get("took", 0.0) for attempt in attempts))
    yield Fact("", "", f"this computer took {took} of wall time to go on, not counted")
    for attempt in attempts:
        first = attempt["next_iteration"]
        yield Fact("", "", f"goes on at iteration {first}: {attempt['error']}")


def _name_first(name: str, texts: Sequence[str]) -> list[Fact]:
    """Return a line each, the first with the name."""
    return [
        Fact(name if position == 0 else "", "", text)
        for position, text in enumerate(texts)
    ]


def _prediction(
    verdict: Result | None, label: str = "prediction", off: str = "the run is off"
) -> Iterator[Fact]:
    """Yield how far one is off the other: since when, where, and why."""
    if verdict is None:
        return
    # Without a prediction there is nothing to be off; the reasons say why.
    if verdict["error"] is None:
        yield Fact(label, "not judged", "; ".join(verdict["reasons"]))
        return

    outcome = str(verdict["outcome"])
    most = f"{100 * verdict['threshold']:g} % may be"
    line = f"{off} by {format_ratio(verdict['error'])}, {most}"
    if verdict["since"] is not None:
        line += f"; since {format_duration(verdict['since'], 3)}"
    if verdict["links"]:
        line += f", on {', '.join(verdict['links'])}"

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
            yield from _prediction(pair, f"{pair['of']} over {pair['over']}", "off")


def _learnt(result: Result) -> Iterator[Fact]:
    """Yield when last bytes came, what was trained, and what each job took."""
    transport = result.get("transport", {})
    # 0 is a figure as well: a missing key alone is none.
    if (early := transport.get("early_wall_seconds")) is not None:
        yield _last_bytes(early, transport)
    for part in (result, *result.get("jobs", ())):
        if (step := part.get("diverged")) is not None:
            yield Fact("training", f"diverged at step {step}", part.get("job", ""))

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
        yield Fact("other reads", f"{reads['other']:,} of {reads['count']:,}", note)
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
        jobs = sorted(jobs, key=lambda job: -job["slowdown"])[: words.MOST_JOBS]
    for job in jobs:
        note = f"{job['slowdown']:.3f} times {format_duration(job['alone'], 4)} alone"
        yield Fact(f"job {job['job']}", format_duration(job["seconds"], 4), note)


def _computer(result: Result) -> Iterator[Fact]:
    if "wall_seconds" in result:
        startup = result["startup"]
        memory = format_size(startup["memory"]) if startup["memory"] else "unknown"
        note = (
            f"wall time, after {format_duration(startup['seconds'], 2)} to start; "
            f"processes hold {memory}"
        )
        length = format_duration(result["wall_seconds"])
        yield Fact(
            label="this computer",
            value=length,
            note=note,
            key="wall_seconds",
        )

    if hosts := result.get("hosts"):
        machines = [f"{host['host']}: {', '.join(host['machines'])}" for host in hosts]
        yield Fact(
            label="hosts",
            value=str(len(hosts)),
            note="; ".join(machines),
            key="hosts",
        )
    if choice := result.get("auto_scale"):
        yield Fact("time scale", f"{choice['time_scale']:g}", _say_choice(choice))


def _say_choice(choice: Result) -> str:
    """Return how a time scale was chosen, and how far it held what was aimed at."""
    actual = choice["actual"]
    prediction = choice["predicted"]
    if "kernel" not in choice:
        line = (
            f"chosen by {len(choice['trials'])} trials; late flows "
            f"{100 * actual['late_flows']:.2g} %"
        )
        if choice["held"]:
            return f"{line}, {100 * prediction['late_flows']:.2g} % in the trial"
        return f"{line}; untried, as no trial met the aims"

    line = (
        "by what kernel NICs cost: delay before first bytes "
        f"{100 * actual['delay']:.2g} % ({100 * prediction['delay']:.2g} "
        f"foreseen), cores {actual['cpu_busy']:.0%} busy "
        f"({prediction['cpu_busy']:.0%} by this run)"
    )
    # Delays are wall time of this host: as a share of the run they fall as the scale
    # grows, so that a scale so many times as large would meet the aim.
    over = actual["delay"] / prediction["delay"] if prediction["delay"] else 1.0
    if over > _SLOW:
        state = f"{over * choice['time_scale']:.2g}"
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
    drops = sum(sum(counts.values()) for counts in lab["dropped"].values())
    facts = [
        Fact(
            "time",
            # Of the machines' clock: a second there takes ``scale`` wall seconds.
            format_duration(lab["wall_seconds"] / scale),
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
        Fact(
            "sent again",
            f"{_count_tcp(lab, 'retransmitted'):,}",
            f"segments; {_count_tcp(lab, 'timeouts')} timeouts",
        ),
        Fact("dropped by queues", f"{drops:,}", "packets"),
    ]

    if crossing := lab.get("crossed"):
        payload = sum(sum(row.values()) for row in crossing["bytes"].values())
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
    return sum(counts[name] for counts in lab["tcp"].values())


def flow_table(rows: Sequence[Row], payloads: str = "") -> Table:
    """Return one row per pair of task kinds: flows between machines, bytes, times.

    ``rows`` are ``edges`` of result.json; ``payloads`` see `payload_line`.
    """
    columns = ["from", "to", ">flows", ">bytes", ">waiting", ">moving"]
    has_simulation = any("simulated_mean_seconds" in row for row in rows)
    if has_simulation:
        columns += [">simulated", ">apart"]
    table = plain_table("Flows between machines", *columns)

    table.caption = payloads or None
    for row in rows:
        moving = row["mean_seconds"]
        waiting = row.get("mean_waiting_seconds")
        cells = [
            row["from"],
            row["to"],
            f"{row['flows']:,}",
            format_size(row["bytes"]),
            "" if waiting is None else format_duration(waiting),
            format_duration(moving),
        ]
        if has_simulation:
            simulation = row["simulated_mean_seconds"]
            # Flows that took no time in the simulation have no share to be off by.
            error = moving / simulation - 1 if simulation else 0.0
            cells += [format_duration(simulation), format_ratio(error)]
        table.add_row(*cells)
    return table


def payload_line(payloads: Mapping[str, float]) -> str:
    """Return the bytes between machines by kind of payload; empty for nothing."""
    return ", ".join(f"{kind} {format_size(size)}" for kind, size in payloads.items())


#: More links are shown by the busiest of them.
_MOST_PORTS = 64
#: Links that are shown then.
_BUSIEST = 20


def port_table(rows: Sequence[Row]) -> Table:
    """Return the use of the links in ``ports`` of result.json, NICs by direction.

    Of very many the busiest are shown: a trace of 150 machines has 300.
    """
    title = "NICs and links"
    if len(rows) > _MOST_PORTS:
        title = f"The {_BUSIEST} busiest of {len(rows)} NICs and links"
        rows = sorted(rows, key=lambda row: -row["used"])[:_BUSIEST]

    table = plain_table(title, "port", ">capacity", ">bytes", ">used", "")
    for row in rows:
        table.add_row(
            row["port"],
            format_rate(row["bytes_per_second"]),
            format_size(row["bytes"]),
            f"{row['used']:.0%}",
            Text("█" * round(30 * min(row["used"], 1.0)), style="blue"),
        )
    return table


def run_tables(result: Result) -> RenderableType:
    """Return the headline and the tables per kind of task, of edge, and per port."""
    tables = [headline(result)]
    if any(result.get("error_budget", {}).values()):
        tables.append(budget_table(result))
    payloads = payload_line(result.get("payloads", {}))
    tables += [kinds_table(result), flow_table(result["edges"], payloads)]
    tables.append(port_table(result["ports"]))
    return Group(*(part for table in tables for part in (table, "")))


def headline(result: Result) -> Table:
    """Return the numbers that the run was for."""
    return facts_table(run_facts(result))


def budget_table(result: Result) -> Table:
    """Return the difference between emulation and simulation, by cause."""
    title = "Error budget, on the critical path"
    table = plain_table(title, "cause", ">time", ">of the makespan")
    makespan = result["replayed_makespan"] or 1.0
    for cause, seconds in result["error_budget"].items():
        if format_duration(seconds) != format_duration(0.0):  # by rounding alone
            table.add_row(cause, *words.difference(float(seconds), makespan))

    # Rows of hosts are parts of the causes above, by where they arose; no further sum.
    for host in result.get("hosts", ()):
        seconds = float(host["seconds"])
        table.add_row(f"of it on {host['host']}", *words.difference(seconds, makespan))
    if share := result.get("verdict", {}).get("clock_uncertainty"):
        length = f"± {format_duration(share * makespan, 3)}"
        table.add_row("clocks of hosts, at most", length, f"± {100 * share:.3g} %")
    return table


def kinds_table(result: Result) -> Table:
    """Return the figures of the tasks, per kind."""
    table = plain_table(
        "Tasks", "kind", ">tasks", ">mean time", ">longest", ">late", ">latest by"
    )
    for kind, row in result["kinds"].items():
        cells = [
            kind,
            str(row["tasks"]),
            format_duration(row["mean_seconds"]),
            format_duration(row["max_seconds"]),
        ]
        if late := row["late_iterations"]:
            cells += [str(late), format_duration(row["max_late_seconds"])]
        table.add_row(*cells)

    return table
