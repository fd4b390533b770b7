"""Drawn scenarios on NICs that the kernel limits, against their predictions.

    tools/study kernel OUT [--scenarios N] [--wall S] [--sharing fair,tcp]
    tools/study kernel OUT --repeats 4
    tools/study kernel OUT --sharing userspace,assigned
    tools/study kernel OUT --scenarios 0 --pairs 30 --sharing fair [--wall S]

The golden scenario and N drawn ones (training jobs and random graphs, NICs up to 1:20
apart) run on kernel NICs; nothing there knows the simulator. Every makespan is held
against the one that was simulated before the run: under max-min for ``fair`` and
``tcp``, under OES for ``assigned`` and for ``userspace``, where senders keep to the
rates and the kernel limits none; these two are then held against each other. With
``--pairs``, drawn scenarios run in two placements each, some a few per cent apart and
some far, and it is counted how often kernel and simulation agree on which is better.
Runs under ``tcp`` stand apart by what `emu.prediction.analysis.link_load` says
beforehand. With ``--repeats`` every drawn scenario runs so often, and the interval that
all runs but the last give is held against the last one.

Seeds begin at the date of the commit (20261125 draws from 20261125000 on), so that no
change was tuned on them; ``--first 0`` draws those of the figures before that.
"""

from __future__ import annotations

import itertools
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from emu.errors import EmulatorError
from emu.experiment.dry_run import dry_run
from emu.lab.machines.lab import missing_needs
from emu.runs.repeats import further
from emu.scenario import Scenario, load, prepare
from tests.fidelity.corpus import draw_scenario
from tools.runner import Study, Work, distribution, heading
from tools.trials.pairs import agreement, pair_apart
from tools.trials.trial import Trial, attempt

#: Real bytes per second of the fastest NIC: two cores carry some 19 Gbit/s, but small
#: bursts make small packets, 8.6 CPU seconds per GB.
FASTEST = 12.5e6
USERSPACE = "userspace"
#: Seeds of a day.
_A_DAY = 1000
#: Share by which a run may differ from its prediction: `max_difference` by default.
MOST_DIFFERENCE = 0.03
#: About how far apart two placements are, in turns.
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)


def options(parser: ArgumentParser) -> None:
    """Add what is drawn, and how the NICs are shared."""
    add = parser.add_argument
    add("--scenarios", type=int, default=39)
    add("--first", type=int, help="first seed; default is of the commit's date")
    add("--pairs", type=int, default=0, help="scenarios in two placements")
    add("--repeats", type=int, default=1, help="runs of each drawn scenario")
    add("--wall", type=float, default=8.0, help="seconds per run")
    add("--sharing", default="fair,tcp", help="of fair, tcp, assigned, userspace")


def first_seed() -> int:
    """Return the seed that the date of the commit begins.

    Raises EmulatorError when this is no checkout.
    """
    command = ["git", "log", "-1", "--format=%cd", "--date=format:%Y%m%d"]
    try:
        said = subprocess.run(
            command,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return int(said) * _A_DAY
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        problem = "no commit says which seeds are new: state --first"
        raise EmulatorError(problem) from error


def changed(scenario: Scenario, policy: str, **emulation: Any) -> Scenario:
    """Return the scenario under a policy, with these keys of ``emulation``."""
    return scenario.model_copy(
        update={
            "schedule": scenario.schedule.model_copy(update={"policy": policy}),
            "emulation": scenario.emulation.model_copy(update=emulation),
        }
    )


def expected(scenario: Scenario) -> float:
    """Return the makespan that is simulated under max-min, seconds."""
    return float(prepare(changed(scenario, "maxmin")).simulate().makespan)


def drawn(seed: int, **content: Any) -> Scenario:
    """Return a drawn scenario whose payloads are made up, with other content."""
    own = draw_scenario(seed, most_processes=24) | {"emulation": {}}
    return Scenario.model_validate(own | content)


def singles(
    count: int, wall: float, first: int = 0, repeats: int = 1
) -> Iterator[tuple[str, Scenario, float]]:
    """Yield the golden scenario and drawn ones, with their time scales, repeated."""
    if count:
        some = (drawn(first + 2 * number) for number in range(count))
        for scenario in (load("golden"), *some):
            time_scale = wall / expected(scenario)
            for repeat in range(repeats):
                yield f"{scenario.name}@{{}}/{repeat}", scenario, time_scale


def pairs(
    count: int, wall: float, first: int = 0
) -> Iterator[tuple[str, Scenario, float]]:
    """Yield drawn scenarios in two placements each, at a time scale that both have.

    The longer of the two takes ``wall`` seconds. How far apart they are takes turns.
    """
    seeds, found = itertools.count(first, 2), 0
    while found < count:
        seed = next(seeds)

        def makespan(variant: dict[str, Any], seed: int = seed) -> float:
            return expected(drawn(seed, placement=variant["placement"]))

        content = draw_scenario(seed, most_processes=24)
        pair = pair_apart(content, seed, SHARES[found % len(SHARES)], makespan)
        if pair is None:
            continue
        found += 1
        time_scale = wall / max(map(makespan, pair))
        for number, variant in enumerate(pair):
            name = f"placement-{seed}"
            scenario = drawn(seed, placement=variant["placement"], name=name)
            yield f"{name}@{{}}/{number}", scenario, time_scale


def work(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield every scenario with every kind of sharing.

    Raises EmulatorError when this computer has no kernel NICs.
    """
    if needs := missing_needs():
        raise EmulatorError("; ".join(needs))
    first = first_seed() if options.first is None else options.first
    chosen = itertools.chain(
        singles(options.scenarios, options.wall, first, options.repeats),
        pairs(options.pairs, options.wall, first),
    )
    for place, scenario, time_scale in chosen:
        for sharing in options.sharing.split(","):
            case = place.format(sharing)
            runs = options.out / "runs"
            yield case, partial(one, case, scenario, time_scale, sharing, runs)


def one(
    case: str, scenario: Scenario, time_scale: float, sharing: str, runs: Any
) -> list[Trial]:
    """Return the row of one run, at scales at which this computer carries it."""
    machines = scenario.to_cluster().machines
    fastest = max(max(m.bandwidth_in, m.bandwidth_out) for m in machines)
    emulation = {"time_scale": time_scale, "network": USERSPACE}
    emulation["byte_scale"] = FASTEST * time_scale / fastest
    if sharing != USERSPACE:
        emulation |= {"network": "kernel", "sharing": sharing}
    policy = "oes" if sharing in {"assigned", USERSPACE} else "maxmin"
    experiment = prepare(changed(scenario, policy, **emulation))
    known = dry_run(experiment).tcp
    note = "" if known is None else "holds" if known.holds else "fills"
    return [replace(attempt(case, experiment, runs), note=note)]


def table(rows: list[Trial], _: Namespace) -> Iterator[str]:
    """Yield distributions of the makespan error, and what the pairs decide."""
    done = [row for row in rows if row.trust != "failed"]
    alone = [row for row in done if not _paired(row)]
    yield heading("|makespan error|, %", "runs")
    for name in sorted({row.variant for row in alone}):
        mine = [row for row in alone if row.variant == name]
        yield distribution(name, [abs(row.makespan_error) for row in mine])
        for note in sorted({row.note for row in mine} - {""}):
            some = [abs(row.makespan_error) for row in mine if row.note == note]
            yield distribution(f"{name}, {note}", some)
        yield from judged(mine)
    took = {(row.scenario, row.variant): row.emulated for row in alone}
    apart = [
        abs(seconds / took[name, USERSPACE] - 1)
        for (name, sharing), seconds in took.items()
        if sharing == "assigned" and (name, USERSPACE) in took
    ]
    if apart:
        yield distribution("assigned against userspace", apart)
    for name in sorted({row.variant for row in rows}):
        both = [row for row in rows if _paired(row) and row.variant == name]
        if both:
            yield from (f"{name}:", *agreement(both))


def judged(rows: list[Trial]) -> Iterator[str]:
    """Yield how many runs are trusted by how far they are off, and what repeats say."""
    near = [row for row in rows if abs(row.makespan_error) <= 0.01]
    far = [row for row in rows if abs(row.makespan_error) > MOST_DIFFERENCE]
    for words, chosen in (("within 1 %", near), ("over 3 %", far)):
        trusted = sum(row.trust == "trusted" for row in chosen)
        yield f"  {words}: {trusted} of {len(chosen)} trusted"

    outcomes = [
        [row.makespan_error for row in runs]
        for _, runs in itertools.groupby(rows, lambda row: row.scenario)
    ]
    repeated = [errors for errors in outcomes if len(errors) > 2]
    if repeated:
        spans = [(further(errors[:-1]), errors[-1]) for errors in repeated]
        held = sum(span.low <= error <= span.high for span, error in spans)
        yield f"  the last run is in the interval of the others: {held} of {len(spans)}"


def _paired(row: Trial) -> bool:
    return row.scenario.startswith("placement-")


STUDY = Study(row=Trial, work=work, table=table, options=options, settled=("wall",))
