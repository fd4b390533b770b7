"""The page of a run: its sections put together, and written into the run directory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from emu.errors import DataError
from emu.host.files import write_atomic
from emu.host.input_file import read_json
from emu.prediction.analysis.critical_path import (
    MOVING,
    Cause,
    ChainLink,
    critical_path,
    divergences,
)
from emu.prediction.analysis.explanation import Explanation, kind_name
from emu.prediction.analysis.task_moves import NO_MOVES
from emu.prediction.placement import resource_loads
from emu.problem import Problem, Schedule
from emu.report import explanation_tables as words
from emu.report import facts, run_tables
from emu.report.html import markup as html
from emu.report.html.chart_data import Charts, chart_data, training_data
from emu.report.html.lab_page import lab_parts
from emu.report.html.link_drawing import link_graph
from emu.report.many_runs import schedules_of
from emu.report.terminal import plain_table
from emu.runs.recorded_run import RecordedRun, check_run_directory, load_run
from emu.runs.result import Result, port_rows
from emu.scenario.scenario_file import has_recorded_job
from emu.systems.cache_section import cache_line
from emu.units import format_duration, format_rate

#: Figures that come first; the others are folded below them.
FIRST = (
    *("emulated makespan", "makespan error", "verdict"),
    *("replay error", "lower bound", "iteration time"),
    *("virtual makespan", "step"),
)
#: Facts that are in the title, or in a section of their own.
_ELSEWHERE = ("scenario", "placement", "reasons", "remedies", "")


def headline(result: Result) -> str:
    """Return the six numbers that the run was for, and the others folded below."""
    all_facts = facts.run_facts(result, digits=6)
    first = [fact for fact in all_facts if fact.label in FIRST]
    labels = (*FIRST, *_ELSEWHERE)
    further = [fact for fact in all_facts if fact.label not in labels]
    shown = html.figures(first)
    folded = html.figures(further)
    return (
        f"{shown}<details class=more>"
        f"<summary>Further figures</summary>{folded}</details>"
    )


def verdict_reasons(verdict: Result | None) -> str:
    """Return why a run is not trusted, and what to do; nothing when it is."""
    if verdict is None:
        return ""

    titles = {"reasons": "Reasons", "remedies": "What to do"}
    sections = []
    for key, title in titles.items():
        if verdict.get(key):
            bullets = html.bullets(verdict[key])
            sections.append(f"<h3>{title}</h3>{bullets}")
    return "".join(sections)


def chain_table(run: RecordedRun) -> str:
    """Return the time of the critical path by cause, emulated beside simulated."""
    schedules = schedules_of(run)

    def cause_of(link: ChainLink) -> str:
        place = _name_place(run.problem, link) or "messages and wake-ups"
        return f"{link.cause.value}: {place}"

    sums = []
    for schedule in schedules.values():
        seconds = critical_path(schedule).sums(cause_of)
        # The path is that of the last attempt: without what deaths cost the column
        # would not sum to the makespan.
        if schedule.outages.seconds:
            seconds["deaths"] = schedule.outages.seconds
        sums.append(seconds)
    causes: dict[str, None] = {}
    for seconds in sums:
        causes |= dict.fromkeys(seconds)
    if not causes:
        return ""

    columns = [f">{name}" for name in schedules]
    grid = plain_table("", "cause", *columns)
    # Of a job whose times are all 0 every share is 0, not a division by it.
    makespans = [schedule.makespan or math.inf for schedule in schedules.values()]
    for cause in causes:
        cells = []
        for seconds, makespan in zip(sums, makespans, strict=True):
            time = seconds.get(cause, 0.0)
            length = format_duration(time)
            share = time / makespan
            cells.append(f"{length} ({share:.1%})")
        grid.add_row(cause, *cells)
    totals = []
    for seconds in sums:
        total = math.fsum(seconds.values())
        totals.append(format_duration(total))
    grid.add_row("sum = makespan", *totals)
    return html.table(grid)


def story(schedule: Schedule) -> str:
    """Return one sentence: what most of the makespan was spent on."""
    chain = critical_path(schedule)
    shares = chain.sums(_cause)
    if not shares or not schedule.length:
        return ""

    # `sums` has the longest first.
    cause = next(iter(shares))

    def cause_and_place(link: ChainLink) -> tuple[Cause, str]:
        return _cause(link), _name_place(schedule.problem, link)

    parts = chain.sums(cause_and_place)
    place = next(name for kind, name in parts if kind is cause)
    # Of the last attempt, as the path is: seconds of deaths are no share of it.
    share = shares[cause] / schedule.length
    span = "the last attempt" if schedule.outages.seconds else "the time"
    text = f"{share:.0%} of {span} {_TOLD[cause]}"
    if place:
        word = "at" if cause is Cause.TRANSFER else "for"
        text += f", most of it {word} {place}"
    return f"<p class=story>{escape(text)}.</p>"


def _cause(link: ChainLink) -> Cause:
    """Return the cause; whatever moves is a transfer, as on the cards."""
    if link.cause in MOVING:
        return Cause.TRANSFER
    return link.cause


def _name_place(problem: Problem, link: ChainLink) -> str:
    """Return the kind of task or the port that a link is about; empty in a gap."""
    if link.cause is Cause.GAP:
        return ""
    if link.task >= 0:
        return problem.job.tasks[link.task].kind
    if link.cause is Cause.LATENCY:
        return kind_name(problem, link)
    return problem.links[link.port].name


#: Sentence of a cause in the story of a run.
_TOLD = {
    Cause.COMPUTE: "the job waited for tasks that compute",
    Cause.TRANSFER: "the job waited for transfers",
    Cause.LATENCY: "the job waited for what was sent to arrive",
    Cause.SLOT: "tasks waited for slots that others held",
    Cause.CREDIT: "tasks waited for the credit of their consumers",
    Cause.GAP: "nothing of the schedule happened: messages and wake-ups",
}


def placement_cards(problem: Problem, schedule: Schedule | None) -> str:
    """Return a card per machine: tasks, resources, and the mean use of its NIC."""
    loads = resource_loads(problem.job, problem.cluster, problem.placement)
    # A problem without a schedule still has its placement, and nothing that moved.
    use_of_ports = [] if schedule is None else port_rows(schedule)
    cards = []
    for position, machine in enumerate(problem.cluster.machines):
        job = problem.job
        places = zip(job.tasks, problem.placement.machine_of, strict=True)
        names = {
            job.lane_name(number): task.kind
            for number, (task, place) in enumerate(places)
            if place == position
        }
        chips = []
        for name, kind in names.items():
            chip = f'<span class=chip title="{escape(kind)}">{escape(name)}</span>'
            chips.append(chip)

        meters = []
        for load in loads:
            if load.machine == machine.name and (load.used or load.fraction):
                text = words.load_words(load, " of ", " of no limit")
                meter = html.meter(load.resource, load.fraction, text)
                meters.append(meter)
        ports = problem.links.of_machine(position) if use_of_ports else ()
        for port in ports:
            link = problem.links[port]
            use = use_of_ports[port]["used"]
            text = f"{use:.0%} of {format_rate(link.capacity)}"
            meter = html.meter(f"NIC {link.direction}", use, text)
            meters.append(meter)

        title = escape(machine.name)
        cards.append(
            f"<div class=card><h3>{title}</h3>"
            f"<div class=chips>{''.join(chips)}</div>{''.join(meters)}</div>"
        )
    all_cards = "".join(cards)
    return f"<div class=cards>{all_cards}</div>"


def edges_section(result: Result) -> str:
    """Return the bytes over the network: per kind of payload, and per kind of edge."""
    lines = [run_tables.payload_line(result.get("payloads", {}))]
    if "cache" in result:
        lines.append(cache_line(result["cache"]))
    remarks = [f"<p class=remark>{escape(line)}.</p>" for line in lines if line]
    table = run_tables.flow_table(result["edges"])
    return "".join(remarks) + html.table(table)


#: Improvements that are shown; ``emu explain`` has all.
SHOWN = 10


def which_task(found: Explanation) -> str:
    """Return the moves to the best placement found; empty where none was sought."""
    if found.moves is NO_MOVES:
        return ""
    line = words.moves_line(found)
    text = f"<p>{escape(line)}</p>"
    if found.moves.steps:
        last_step = found.moves.steps[-1]
        table = words.moves_table(found.moves)
        text += html.table(table)
        if lines := words.placement_text(last_step):
            text += (
                "<details><summary>The placement after them</summary>"
                f"<pre>{escape(lines)}</pre></details>"
            )

    return text


def would_help(found: Explanation) -> str:
    """Return the changes that shorten the run most, each simulated; or why not."""
    if found.moves is NO_MOVES:
        return "".join(f"<p>{escape(note)}</p>" for note in found.notes)
    grid = words.improvements(found, SHOWN)
    if not grid.row_count:
        return "<p>Nothing that was tried.</p>"
    return html.table(grid)


def difference_by_cause(run: RecordedRun) -> str:
    """Return emulated minus simulated along the emulated chain, by cause and sum.

    Empty when one of the two is missing.
    """
    if run.emulated is None or run.simulated is None:
        return ""
    parts = divergences(run.emulated, run.simulated)
    table = words.apart(run.emulated, run.simulated, parts)
    return html.table(table)


#: Sources that the browser may load: none. The page is whole.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:"
)
#: Scripts of the page, in the order in which they need each other.
_SCRIPTS = (
    *("scale.js", "export.js", "gantt.js"),
    *("curves.js", "accuracy.js", "report.js"),
)
#: Makes a named part of the page, or nothing of numbers that are damaged.
_Part: TypeAlias = Callable[[str, Callable[[], str]], str]
#: Errors that a damaged result.json raises: its sections are named, the page stands.
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError)


def write_report(
    run: Path,
    out: Path | None = None,
    *,
    helpful: bool = False,
) -> Path:
    """Write report.html of a run directory, or ``out``, and return its path.

    ``helpful``: whether to look for what would help, which takes seconds: a search over
    placements and an integer program.

    Raises DataError when ``run`` is no run directory, or the file cannot be written.
    """
    # A page of nothing would be left in any folder.
    has_ended = (run / "lab.json").exists() or has_recorded_job(run)
    if not has_ended:
        check_run_directory(run)
    target = out or run / "report.html"
    page = report_page(run, helpful=helpful)
    write_atomic(target, page)
    return target


def report_page(run: Path, *, helpful: bool = False) -> str:
    """Return the page, as `write_report`; what is missing of the run is named in it.

    Raises DataError when it is of a lab whose lab.json cannot be read.
    """
    missing: list[str] = []
    # A lab has programs and packets in place of a schedule.
    if (run / "lab.json").exists():
        title, body, script = lab_parts(run, missing)
        return whole_page(title, _warnings(missing) + body, script)

    def read(load: Callable[[], Any]) -> Any:
        try:
            return load()
        except DataError as error:
            missing.append(str(error))
            return None

    record: RecordedRun | None = read(lambda: load_run(run))
    if record is not None:
        # What reads training.csv below says more of its error, and would say it twice.
        missing += [name for name in record.missing if "training.csv" not in name]
        result = record.result
        data = chart_data(record)
    else:
        # Without its problem nothing can be drawn, but the figures of the run still
        # stand.
        content = read(lambda: read_json(run / "result.json"))
        result = content if isinstance(content, dict) else {}
        data = {"runs": []}
    data["training"] = []
    if "virtual" not in result:
        data["training"] = read(lambda: training_data(run / "training.csv")) or []
    body = _body(
        record,
        result=result,
        data=data,
        missing=missing,
        helpful=helpful,
    )
    name = str(result.get("scenario", run.name))
    return whole_page(name, body, data)


def _body(
    recorded: RecordedRun | None,
    result: Result,
    data: Charts,
    missing: list[str],
    *,
    helpful: bool,
) -> str:
    """Return the sections; one whose numbers are damaged is named instead."""

    def part(name: str, make: Callable[[], str]) -> str:
        try:
            return make()
        except _DAMAGED as error:
            missing.append(f"result.json has no usable {name} ({error!r})")
            return ""

    # Where only one of the two schedules is left, that one is shown.
    best = None if recorded is None else recorded.emulated or recorded.simulated
    name = str(result.get("scenario", "run"))
    settings = facts.setting(result)

    def join_notes() -> str:
        notes = []
        for fact in settings:
            # Who failed says nothing without what is counted; other notes do.
            note = fact.note
            if fact.label == "failures":
                note = f"failures: {fact.value}, {fact.note}"
            notes.append(note)
        return ", ".join(filter(None, notes))

    notes = part("title", join_notes)
    parts = []
    if best is not None:
        sentences = part("critical path", lambda: story(best))
        parts.append(sentences)
    figures = part("headline", lambda: headline(result))
    verdict = result.get("verdict") or result.get("virtual")
    reasons = part("verdict", lambda: verdict_reasons(verdict))
    doubts = html.section("doubt", "How far this run can be believed", reasons)
    parts += [figures, doubts]

    if recorded is not None and data["runs"]:
        parts += _causes(recorded, result, part, helpful=helpful)
    if data["training"]:
        curves = html.chart("training", "Training", _TRAINING)
        parts.append(curves)
    parts += _machines(recorded, best, part)
    parts += _tables(result, part)
    # Put together last: every part above may have added to what is missing.
    title = html.page_title(name, notes)
    warnings = _warnings(missing)
    return title + warnings + "".join(parts)


def _machines(
    recorded: RecordedRun | None, best: Schedule | None, part: _Part
) -> Iterator[str]:
    """Yield what the links carried, and where tasks stand."""
    if best is not None:
        graph = part("links", lambda: link_graph(best.problem.cluster, best))
        yield html.section("links", "Links and their load", graph, note=_LINKS)
    if recorded is not None:
        cards = placement_cards(recorded.problem, best)
        yield html.section("placement", "Placement", cards, note=_PLACEMENT)


def _tables(result: Result, part: _Part) -> Iterator[str]:
    """Yield the tables of what a result has: kinds of tasks, edges, NICs."""

    def kinds() -> str:
        return html.table(run_tables.kinds_table(result))

    def ports() -> str:
        return html.table(run_tables.port_table(result["ports"]))

    tables: dict[str, tuple[str, Callable[[], str]]] = {
        "kinds": ("Tasks per kind", kinds),
        "edges": (_EDGES, lambda: edges_section(result)),
        "ports": (_NICS, ports),
    }
    for key, (title, make) in tables.items():
        if key in result:
            table = part(key, make)
            yield html.section(f"{key}-table", title, table)


def _causes(
    recorded: RecordedRun,
    result: Result,
    part: _Part,
    *,
    helpful: bool,
) -> Iterator[str]:
    """Yield what a schedule says of the run: which tasks should move, and why."""
    if (recorded.emulated or recorded.simulated) is None:
        return

    helps = _UNASKED
    if helpful:
        # Whether code of others may run, the command that draws has decided.
        # It is made once for both sections, since the search for moves takes seconds.
        explanation = recorded.explain(run_code=True)
        helps = part("schedule", lambda: would_help(explanation))
        moves = part("schedule", lambda: which_task(explanation))
        yield html.section("moves", words.QUESTION, moves, note=_MOVES)

    yield html.chart("gantt", "What ran when, and what travelled", _GANTT)
    chain = part("critical path", lambda: chain_table(recorded))
    yield html.section("why", "Why this long", chain, note=_WHY)
    note = _HELPS if helpful else ""
    yield html.section("helps", "What would help", helps, note=note)

    distance = part("schedule", lambda: difference_by_cause(recorded))
    distance += part("error budget", lambda: _budget(result))
    title = "Where emulation and simulation parted"
    yield html.section("apart", title, distance, note=_APART)
    yield html.chart("ports", "Rate through every NIC and link", _PORTS)


def _budget(result: Result) -> str:
    """Return the difference by what the host did; empty where that is nothing."""
    error_budget = result.get("error_budget", {})
    if not any(error_budget.values()):
        return ""
    return html.table(run_tables.budget_table(result))


def _warnings(missing: list[str]) -> str:
    if not missing:
        return ""
    bullets = html.bullets(dict.fromkeys(missing))
    return (
        "<section class=missing id=missing><h2>Missing from this run directory</h2>"
        f"{bullets}</section>"
    )


def whole_page(title: str, body: str, data: Charts) -> str:
    """Return a page with its style, its scripts and their data."""
    assets = files("emu.report.html") / "assets"
    style = (assets / "report.css").read_text("utf-8")
    script_texts = [(assets / name).read_text("utf-8") for name in _SCRIPTS]
    scripts = "\n".join(script_texts)

    # A "<" in a name must not end the element that holds the data.
    # NaN is no JSON: with one the browser would refuse the data of all charts.
    content = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        # An empty icon: browsers ask for one, which the policy would refuse.
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)} - emu</title>\n<style>\n{style}</style></head>\n"
        f"<body>{body}\n"
        '<script type="application/json" id="data">'
        f"{content.replace('<', chr(92) + 'u003c')}</script>\n"
        f"<script>\n{scripts}</script></body></html>\n"
    )


#: Notes below the titles of charts and sections.
_GANTT = (
    "Each machine: one lane per task, then its NIC, outgoing and incoming flows. "
    "Upper, strong bars are emulated, lower, pale ones simulated; colours repeat every "
    "six iterations. The black (white) line is the critical path, through a flow it "
    "is drawn at the port that held it back. Drag to zoom, Shift-drag to move, "
    "Ctrl-wheel to zoom at the pointer, double-click for everything. Grey: what was "
    "slow or stood still; before 0 the attempts that a death ended, dark while the job "
    "was down, pale where it did what it does again. A click on a name "
    "keeps its lane at the top; SVG and CSV save what is shown."
)
_MOVES = (
    "The moves that lead to the best placement found, in the order in which each step "
    "gains most, simulated with the times and volumes of this run."
)
_WHY = (
    "The critical path goes from the end back to the start, each part beginning the "
    "moment the one before ends, so its parts sum to the makespan."
)
_HELPS = (
    "The same run with one thing changed, after the moves where some help, simulated; "
    "the gain is of the simulated makespan."
)
_UNASKED = (
    "<p>Not looked for: <code>emu report --explain</code> draws the page with it, "
    "<code>emu explain</code> prints it.</p>"
)
_APART = (
    "Emulated minus simulated, of the same times and volumes, part by part along the "
    "emulated critical path; then by what the host did."
)
_PORTS = (
    "Allocated: what the scheduler assigned. Moved: the same, scaled flow by flow to "
    "the bytes and the end that were measured. Dashed: the capacity of the NIC."
)
_LINKS = (
    "Discs: machines. Squares: what links meet at, such as switches. A link keeps to "
    "the right of its direction; wide and red is the busiest, grey one of hardly any "
    "use beside it, dashed one that nothing crossed. The pointer shows bytes and times."
)
_TRAINING = (
    "Line: mean over the tasks of an iteration, when the last of them reported. Dots: "
    "single tasks."
)
_EDGES = "Flows between machines, per kind of edge"
_NICS = "NICs, per direction, and links"
_PLACEMENT = "Tasks on every machine, and the load on each of its resources."
