"""Systems side by side: their speed, or time to an accuracy, and what limits it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from io import StringIO
from typing import Any

from rich.table import Table

from emu.experiment.crossover import Crossover
from emu.experiment.draw import Confirmation
from emu.experiment.question import Answer
from emu.experiment.refusal import reason
from emu.report.comparison import COLUMNS, write_makespans
from emu.report.explanation_tables import placing_line
from emu.report.figure_rows import setup_row
from emu.report.html import markup as html
from emu.report.html.chart_data import Charts
from emu.report.many_runs import compare, flat, write_pair
from emu.report.terminal import plain_table
from emu.runs.intervals import pair
from emu.runs.result import Result
from emu.scenario.machine_choice import machines_words
from emu.systems.job_section import JobSection
from emu.systems.training_section import TrainingSection
from emu.units import (
    format_duration,
    format_number,
    format_ratio,
    format_size,
)


def answer_json(row: Answer, first: Answer) -> Result:
    """Return the row of a system by the names that JSON has.

    ``change`` is against the first, seed by seed.
    """
    if row.refused:
        return {"system": row.system, "refused": reason(row.refused)}
    port, share = row.busiest
    content: Result = {
        "system": row.system,
        **compare(row.makespans, first.makespans),
        "premises": row.premises.line(),
        "seeds_per_iteration": row.seeds_per_step,
        "iteration_seconds": row.iteration_seconds,
        "samples_per_second": row.rate,
        "limit": row.limit,
        "limits": row.limits,
        "placing": row.placing,
        "busiest_link": row.busiest_link,
        "busiest": {"port": port, "used": share},
        "memory": row.memory,
        "gpu_memory": row.gpu_memory,
        "busy": row.busy,
        "bytes": row.figures["bytes"],
        "cost": row.cost,
        "setup": row.setup,
        "edits": {key: [*values] for key, values in row.edits.items()},
        "settings": dict(row.question.settings),
        "tried": [
            {"settings": dict(settings), "seconds": seconds}
            for settings, seconds in row.tried
        ],
    }

    if row.run:
        content["run"] = asdict(row.run)
    if row.looks:
        content |= _reached_json(row)
    return content


def _reached_json(row: Answer) -> Result:
    """Return what a row with a target has besides."""
    return {
        "reached": {seed: look._asdict() for seed, look in row.looks.items()},
        "epochs": row.epochs,
        "epoch_seconds": row.epoch_seconds,
        "all_machines": row.everywhere,
        "curves": {seed: [*curve] for seed, curve in row.curves.items()},
        "recorded": row.question.curve_file,
        "trend": asdict(row.trend) if row.trend else None,
    }


def answers_json(results: Sequence[Answer]) -> list[Result]:
    """Return the rows of all systems, each beside the first of its class."""
    return [
        answer_json(row, row if row.refused else first_of_class(results, row))
        for row in results
    ]


def crossover_json(found: Crossover) -> Result:
    """Return the documented form; seconds."""
    sides = [
        {
            "value": side.value,
            "best": side.best.system,
            "machines": [*side.best.machines],
            "systems": [answer_json(row, side.answers[0]) for row in side.answers],
        }
        for side in (found.below, found.above)
    ]

    return {
        "key": found.key,
        "found": found.found,
        "estimate": found.estimate,
        "simulations": found.simulations,
        "sides": sides,
    }


def systems_table(results: Sequence[Answer]) -> Table:
    """Return one row per system; the change is against the first of its class."""
    table = plain_table(
        "Simulated", "system", *COLUMNS, ">iteration", ">seeds", ">seeds per s"
    )
    for row in results:
        # A refused row has no makespans, and says so in that cell; the others stay
        # empty.
        cells = [row.system, *write_makespans(row.makespans)]
        if not row.refused:
            first = first_of_class(results, row)
            cells += [
                write_pair(pair(row.makespans, first.makespans)),
                format_duration(row.iteration_seconds),
                f"{row.seeds_per_step:,}",
                format_number(row.samples_per_second, 4),
            ]
        table.add_row(*cells)

    return table


def _list_answers(results: Sequence[Answer]) -> list[Answer]:
    """Return the rows that are not refused."""
    return [row for row in results if not row.refused]


def rank(results: Sequence[Answer]) -> list[Answer]:
    """Return the rows that are not refused, the fastest first."""
    return sorted(_list_answers(results), key=lambda row: row.makespan)


def limits_table(results: Sequence[Answer]) -> Table:
    """Return what crosses, what limits each system, and what its machines need."""
    table = plain_table(
        "What limits them",
        "system",
        ">bytes",
        ">setup",
        "busiest link",
        "limited by",
        ">memory",
        ">busy",
    )

    answers = rank(results)
    for row in answers:
        link, share = row.busiest
        volume = row.figures["bytes"] or 0.0
        memory = [
            format_size(max(sizes.values()))
            for sizes in (row.memory, row.gpu_memory)
            if sizes
        ]
        table.add_row(
            row.system,
            format_size(volume),
            format_duration(row.setup["seconds"], 3) if row.setup else "",
            # Where nothing crosses, no link is the busiest.
            f"{link} {share:.0%}" if volume else "",
            row.limit,
            " + ".join(memory),
            "" if row.busy is None else f"{row.busy:.0%}",
        )

    has_gpus = any(row.gpu_memory for row in answers)
    of_gpus = ", and of its GPUs" if has_gpus else ""
    table.caption = (
        f"memory: of the fullest machine{of_gpus}; busy: what trains, the mean"
    )
    errors = [draw.ghost_error for row in answers for draw in row.draws.values()]
    if error := max(errors, default=0.0):
        table.caption += (
            f"; rows that parts of the whole graph read of others: by a sample, ± "
            f"{error:.2%} (95 %) at most"
        )
    return table


def runs_of_rows(results: Sequence[Answer]) -> list[Table]:
    """Return a table of the rows that were run over sockets, none where none was."""
    table = plain_table(
        "Over sockets",
        "system",
        ">simulated",
        ">over sockets",
        ">makespan error",
        "verdict",
        "prediction",
    )
    for row in rank(results):
        if run := row.run:
            # The run is of the first seed: its simulation stands beside it, no mean.
            first_makespan = next(iter(row.makespans.values()))
            table.add_row(
                row.system,
                format_duration(first_makespan, 5),
                over_sockets(run),
                format_ratio(run.makespan_error),
                run.trust,
                run.outcome,
            )

    return [table] if table.row_count else []


def over_sockets(run: Confirmation) -> str:
    """Return how long a row took, and of several runs how long a further one takes."""
    makespan = format_duration(run.makespan, 5)
    if run.further is None:
        return makespan
    low, high = run.further
    shortest = format_duration(max(low, 0.0))
    longest = format_duration(high)
    return f"{makespan} ({run.runs} runs: {shortest} to {longest})"


def systems_csv(results: Sequence[Answer]) -> str:
    """Return one line per system, whose columns are keys of JSON with one value."""
    # Lists, as of machines and looks, have as many values as they please.
    rows = [
        {key: value for key, value in flat(row) if "[" not in key}
        for row in answers_json(results)
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    file = StringIO()
    writer = csv.DictWriter(file, [*names], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def first_of_class(results: Sequence[Answer], row: Answer) -> Answer:
    """Return the first row with which another is compared.

    Steps on the whole graph and of mini-batches are compared to a target alone.
    """
    answers = _list_answers(results)
    # To a target all are compared by time, whatever a step of theirs is.
    if row.question.target:
        return answers[0]
    return next(other for other in answers if other.whole_graph == row.whole_graph)


def ranking(results: Sequence[Answer]) -> Iterator[str]:
    """Yield which system is how much faster, by seeds per second, class by class."""
    answers = _list_answers(results)
    whole_graph_rows = [row for row in answers if row.whole_graph]
    mini_batch_rows = [row for row in answers if not row.whole_graph]
    yield from _ranking_of(mini_batch_rows, "mini-batches" if whole_graph_rows else "")
    yield from _ranking_of(
        whole_graph_rows, "the whole graph" if mini_batch_rows else ""
    )
    if whole_graph_rows and mini_batch_rows:
        yield (
            "Steps on the whole graph and of mini-batches learn differently, and are "
            "not ranked beside each other: --to accuracy=0.88, say, does."
        )

    count = len(answers[0].makespans)
    if count > 1:
        yield f"Times: means over {count} seeds; cost, bytes, memory: of the first."
    if any(key.startswith("job.times") for row in answers for key in row.edits):
        # 512 seeds of amazon_computers have 1.5 times the inputs of 128, not 4 times.
        yield (
            "Times are scaled by seeds, which overstates those of larger batches: "
            "with job.rates each system counts its own operations."
        )


def _say_device(job: JobSection) -> str:
    """Return at which rate a device collects features, where they lie in its memory."""
    if not isinstance(job, TrainingSection):
        return ""
    places = job.features or job.usual_features
    if places == "host":
        return ""
    line = f"job.features: {places}; a device collects in line"
    if job.rates is None:
        return line
    if job.rates.collect_device is not None:
        return f"{line} at job.rates.collect_device"
    return f"{line} at job.rates.collect, since no collect_device is stated"


def _ranking_of(rows: Sequence[Answer], steps_on: str) -> Iterator[str]:
    """Yield the order of the systems of one class."""
    if len(rows) < 2:
        return
    # By their rate, not their makespan: systems differ in seeds per iteration.
    best, *slower = sorted(rows, key=lambda row: -row.samples_per_second)
    phrases = ", ".join(_as_fast(best, row) for row in slower)
    of_class = f" on {steps_on}" if steps_on else ""

    counts = [row.seeds_per_step or 0 for row in rows]
    least = min(counts)
    most = max(counts)
    seeds = "as many" if least == most else f"{least:,} to {most:,}"
    yield (
        f"By seeds per second {best.system} is {phrases} here{of_class}. "
        f"All train on {seeds} seeds per iteration."
    )


def _as_fast(best: Answer, slower: Answer) -> str:
    # Both may be infinite.
    is_even = best.samples_per_second == slower.samples_per_second
    ratio = 1.0 if is_even else best.samples_per_second / slower.samples_per_second
    # As printed: 1.00 x would claim a difference that the digits do not show.
    times = "" if f"{ratio:.2f}" == "1.00" else f"{ratio:.2f} x "
    return f"{times}as fast as {slower.system}"


def edit_lines(result: Answer) -> list[str]:
    """Return lines on a system's placement and each key that the file has otherwise."""

    def show(value: Any) -> str:
        return json.dumps(value) if isinstance(value, list) else str(value)

    if result.refused:
        return [f"{result.system}: {reason(result.refused)}"]
    seconds, cause = setup_row(result.setup)
    lines = [placing_line(result.placing), f"setup {seconds} {cause}"]
    first = next(iter(result.scenarios.values()))
    if line := _say_device(first.job):
        lines.append(line)
    for key, (before, after) in sorted(result.edits.items()):
        if before is None:
            value = show(after)
            lines.append(f"added {key}: {value}")
        elif after is None:
            value_before = show(before)
            lines.append(f"dropped {key} (was {value_before})")
        else:
            value = show(after)
            value_before = show(before)
            lines.append(f"{key}: {value} (was {value_before})")
    return [f"{result.system}: {line}" for line in lines]


#: Keys that change how many operations a task has.
_WORK = ("job.model", "job.dataset", "job.fanouts")


def crossover_table(found: Crossover) -> Table:
    """Return both systems on both sides of a crossover, or at the ends of the range."""
    below = _say_place(found.below.best)
    above = _say_place(found.above.best)
    low = found.below.value
    high = found.above.value
    if found.found:
        text = f"{below} is faster up to {low}, {above} from {high}"
    elif below == above:
        text = f"{below} is faster at {low} and at {high}"
    else:
        # It stands on other machines at the two ends, which the table has.
        text = f"{found.below.best.system} is faster at {low} and at {high}"
    # A long key as a header is broken in the middle of a word.
    table = plain_table(
        f"{text}, by seeds per second; values of {found.key}",
        "value",
        "system",
        "on",
        ">seeds per s",
        "limited by",
        ">busiest link",
    )
    for side in (found.below, found.above):
        for row in side.answers:
            # The table has room for how many machines they are, not for their names.
            words = machines_words(row.placing).removeprefix("on ")
            machines, _, _ = words.partition(":")
            table.add_row(
                str(side.value),
                row.system,
                machines,
                format_number(row.samples_per_second, 4),
                row.limit,
                format_duration(row.busiest_link),
                style="bold" if row is side.best else "",
            )

    table.caption = _say_estimate(found)
    if _keeps_times(found):
        table.caption += (
            "\ntimes of tasks are as stated at every value: with job.rates each system "
            "counts its own operations"
        )
    return table


def _say_estimate(found: Crossover) -> str:
    """Return where first principles see the crossover, and the simulations it took."""
    # The estimate looks at bytes alone, and may see no crossover where slots or cores
    # make one.
    place = "between no two values that were tried"
    if found.estimate is not None:
        place = f"at {found.estimate}"
    return (
        f"first principles: the busiest link has as much to carry in both {place}; "
        f"{found.simulations} simulations"
    )


def _keeps_times(found: Crossover) -> bool:
    """Return True where a key changes what is computed, and no time follows it."""
    if not found.key.startswith(_WORK):
        return False
    return any(
        # Sections of jobs that train nothing have no such key.
        getattr(scenario.job, "rates", None) is None
        for row in found.below.answers
        for scenario in row.scenarios.values()
    )


def _say_place(row: Answer) -> str:
    return f"{row.system} {machines_words(row.placing)}"


#: Note below the curves of accuracy.
_CURVES = (
    "Of the first seed, from the first look on. A curve ends at the first of the looks "
    "that hold the target. Drag to zoom, double-click for everything; SVG and CSV save "
    "what is shown."
)


def systems_page(
    name: str,
    results: Sequence[Answer],
    tables: Sequence[Table],
    lines: Sequence[str],
    target: tuple[float, str] | None = None,
) -> str:
    """Return the page of a scenario's systems, with the tables of the terminal.

    ``lines`` say which is first; ``target`` is the accuracy that all train to, and of
    which split.
    """
    # Pages and what they draw with take half a second to import.
    from emu.report.html.accuracy_chart import accuracy_chart  # noqa: PLC0415
    from emu.report.html.page import whole_page  # noqa: PLC0415

    text = "".join(f"<p>{escape(line)}</p>" for line in lines)
    changes = "".join(
        f"<details><summary>{escape(row.system)}</summary>"
        f"{html.bullets(edit_lines(row))}</details>"
        for row in results
    )
    # The first table answers the question, so that it stands before the curves.
    first, *rest = tables
    parts = [
        html.page_title(name, str(first.title)),
        html.section("first", "Which system is first", text, html.table(first)),
    ]
    charts: Charts = {"runs": [], "training": []}
    if target is not None:
        accuracy, split = target
        charts = accuracy_chart(
            curves_of(results),
            accuracy,
            split=split,
            missed={row.system for row in results if row.refused},
        )
        parts.append(html.chart("accuracy", "Accuracy over time", _CURVES))
    for number, table in enumerate(rest):
        title = str(table.title)
        parts.append(html.section(f"table{number}", title, html.table(table)))
    title = "What each takes otherwise than the file"
    parts.append(html.section("changes", title, changes))
    return whole_page(name, "".join(parts), charts)


def curves_of(
    results: Sequence[Answer],
) -> dict[str, Sequence[tuple[float, float]]]:
    """Return the accuracy over time of every system, with its first seed."""
    return {
        row.system: next(iter(row.curves.values())) for row in results if row.curves
    }
