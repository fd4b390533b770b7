"""The page put together, and written into the run directory."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from emu.atomic_file import write_atomic
from emu.errors import DataError
from emu.input_file import read_json
from emu.report.explanation_tables import QUESTION
from emu.report.flows import port_table
from emu.report.html import sections
from emu.report.html.chart_data import chart_data, training_data
from emu.report.html.lab_page import lab_parts
from emu.report.html.markup import chart, section, table
from emu.report.job_tables import placing_line, unclaimed_line
from emu.report.run_tables import kinds_table
from emu.runs.recorded_run import load_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emu.runs.recorded_run import RecordedRun

#: Sources that the browser may load: none. The page is whole.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:"
)
_SCRIPTS = ("scale.js", "export.js", "gantt.js", "curves.js", "report.js")
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError)


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write report.html of a run directory and return its path.

    Parameters
    ----------
    out
        File to write instead of ``run/report.html``.

    Raises
    ------
    DataError
        When ``run`` is not a directory, or the file cannot be written.
    """
    if not run.is_dir():
        raise DataError("is not a run directory", path=str(run))
    target = out or run / "report.html"
    write_atomic(target, report_page(run))
    return target


def report_page(run: Path) -> str:
    """Return the page; what is missing of the run is named in it.

    Raises
    ------
    DataError
        When it is of a lab whose lab.json cannot be read.
    """
    missing: list[str] = []
    if (run / "lab.json").exists():
        title, body, drawn = lab_parts(run, missing)
        return _page(title, _warnings(missing) + body, drawn)
    recorded, result = _read(run, missing)
    training = _tried(lambda: training_data(run / "training.csv"), missing) or []
    data: dict[str, Any] = {"runs": []}
    if recorded is not None:
        data = chart_data(recorded)
    data["training"] = training
    body = _body(recorded, result, data, missing)
    return _page(str(result.get("scenario", run.name)), body, data)


def _read(run: Path, missing: list[str]) -> tuple[RecordedRun | None, dict[str, Any]]:
    try:
        recorded = load_run(run)
    except DataError as error:
        missing.append(str(error))
        result = _tried(lambda: read_json(run / "result.json"), missing)
        return None, result if isinstance(result, dict) else {}
    missing += [name for name in recorded.missing if "training.csv" not in name]
    return recorded, recorded.result


def _tried(read: Callable[[], Any], missing: list[str]) -> Any:
    try:
        return read()
    except DataError as error:
        missing.append(str(error))
        return None


def _body(
    recorded: RecordedRun | None,
    result: dict[str, Any],
    data: dict[str, Any],
    missing: list[str],
) -> str:
    """Return the sections; one whose numbers are damaged is named instead."""

    def part(name: str, make: Callable[[], str]) -> str:
        try:
            return make()
        except _DAMAGED as error:
            missing.append(f"result.json has no usable {name} ({error!r})")
            return ""

    parts = [part("headline", lambda: sections.headline(result))]
    best = None if recorded is None else recorded.emulated or recorded.simulated
    if best is not None:
        parts.insert(0, part("critical path", lambda: sections.story(best)))
    reasons = part("verdict", lambda: sections.verdict_reasons(result.get("verdict")))
    parts.append(section("doubt", "How far this run can be believed", reasons))
    if found := sections.explained(recorded) if data["runs"] else None:
        moves = part("schedule", lambda: sections.which_task(found))
        gantt = chart("gantt", "What ran when, and what travelled", _GANTT)
        parts += [section("moves", QUESTION, moves, note=_MOVES), gantt]
    if recorded is not None and found is not None:
        chain = part("critical path", lambda: sections.chain_table(recorded))
        parts.append(section("why", "Why this long", chain, note=_WHY))
        helps = part("schedule", lambda: sections.would_help(found))
        parts += [section("helps", "What would help", helps, note=_HELPS)]
        apart = part("schedule", lambda: sections.parted(recorded, found))
        apart += part("error budget", lambda: sections.budget(result))
        rates = chart("ports", "Rate through every NIC and link", _PORTS)
        parts += [section("apart", _PARTED, apart, note=_APART), rates]
    if data["training"]:
        parts.append(chart("training", "Training", _TRAINING))
    if recorded is not None:
        cards = sections.placement_cards(recorded.problem, best)
        parts.append(section("placement", "Placement", cards, note=_PLACEMENT))
    for key, title, make in (
        ("kinds", "Tasks per kind", lambda result: table(kinds_table(result))),
        ("edges", "Flows between machines, per kind of edge", sections.edges_section),
        ("ports", _NICS, lambda result: table(port_table(result["ports"]))),
    ):
        if key in result:
            made = part(key, lambda make=make: make(result))  # type: ignore[misc]
            parts.append(section(f"{key}-table", title, made))
    return _title(result) + _warnings(missing) + "".join(parts)


def _title(result: dict[str, Any]) -> str:
    said = [
        f"{result[key]} {word}"
        for key, word in (("iterations", "iterations"), ("processes", "processes"))
        if key in result
    ]
    if "credit_window" in result:
        said.append(f"credit window {result['credit_window']}")
    if "placing" in result:
        line = unclaimed_line(result["placing"])
        said += [placing_line(result["placing"]), *([line] if line else [])]
    elif "placement" in result and not isinstance(result["placement"], dict):
        said.append(f"placed by {result['placement']}")
    if "policy" in result:
        said.append(f"rates by {result['policy']}")
    name = escape(str(result.get("scenario", "run")))
    return f"<header><h1>{name}</h1><p>{escape(', '.join(said))}</p></header>"


def _warnings(missing: list[str]) -> str:
    if not missing:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in dict.fromkeys(missing))
    return (
        "<section class=missing id=missing><h2>Missing from this run directory</h2>"
        f"<ul>{items}</ul></section>"
    )


def _page(title: str, body: str, data: dict[str, Any]) -> str:
    assets = files("emu.report.html") / "assets"
    style = (assets / "report.css").read_text("utf-8")
    scripts = "\n".join((assets / name).read_text("utf-8") for name in _SCRIPTS)
    content = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)} - emu</title>\n<style>\n{style}</style></head>\n"
        f"<body>{body}\n"
        '<script type="application/json" id="data">'
        f"{content.replace('<', chr(92) + 'u003c')}</script>\n"
        f"<script>\n{scripts}</script></body></html>\n"
    )


_GANTT = (
    "Each machine: one lane per task, then its NIC, outgoing and incoming flows. "
    "Upper, strong bars are emulated, lower, pale ones simulated; colours repeat every "
    "six iterations. The black (white) line is the critical path, through a flow it "
    "is drawn at the port that held it back. Drag to zoom, Shift-drag to move, "
    "Ctrl-wheel to zoom at the pointer, double-click for everything. A click on a name "
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
_NICS = "NICs, per direction, and links"
_PARTED = "Where emulation and simulation parted"
_APART = (
    "Emulated minus simulated, of the same times and volumes, part by part along the "
    "emulated critical path; then by what the host did."
)
_PORTS = (
    "Allocated: what the scheduler assigned. Moved: the same, scaled flow by flow to "
    "the bytes and the end that were measured. Dashed: the capacity of the NIC."
)
_TRAINING = (
    "Line: mean over the tasks of an iteration, when the last of them reported. Dots: "
    "single tasks."
)
_PLACEMENT = "Tasks on every machine, and the load on each of its resources."
