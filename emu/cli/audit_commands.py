"""``emu audit`` and ``emu evaluate``: a run checked, and its weights."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from emu.cli.app import app, argument, option
from emu.cli.options import JsonTarget, RunCode, emit
from emu.errors import ExpectationMissed, ScenarioError
from emu.experiment.recompute import audit_whole
from emu.experiment.run_result import evaluate_run
from emu.host.input_file import one_error
from emu.report.measured_tables import accuracy_table, audit_table
from emu.report.run_tables import payload_line
from emu.report.terminal import terminal
from emu.runs.audit_inputs import read_to_audit
from emu.runs.result import Result
from emu.runs.shared_run import share_run, unpack_shared
from emu.runs.signature import signer_of
from emu.trust.violation import AuditReport
from emu.units import DURATION, RATIO, format_duration


@app.command()
def audit(
    result: Path = argument(
        "RUN", "Run directory, result file, or a .zip of emu share."
    ),
    tolerance: str | None = option(
        "TIME", "How far times may be off, e.g. 5 ms; default is 1 us: rounding."
    ),
    relative: str = option("SHARE", "How far bytes and rates may be off.", "0.0001 %"),
    scenario: Path | None = option(
        "FILE", "Scenario that states times and volumes; default is the run's copy."
    ),
    *,
    policy: bool = option(
        "--policy", "Recompute the rates by the scenario's rule, slowly."
    ),
    training: bool = option(
        "--training", "Train again in one process; compare the losses."
    ),
    run_code: RunCode = False,
    json_target: JsonTarget = None,
) -> None:
    """Check a schedule against the paper's constraints.

    They are (5) to (15) of the DGTP paper. The schedule may be simulated or emulated.
    Times and volumes are compared with those of its scenario. Of an emulated run the
    problem is built again from the scenario's text, every number of result.json from
    what processes reported, and its guards are asked again.
    """
    seconds, share = _parse_margins(tolerance, relative)
    if run_code and result.suffix == ".zip":
        problem = "is a run of others, whose code no audit runs: leave --run-code out"
        raise ScenarioError(problem, file=str(result))

    # Whatever is wrong with the records of others is one line.
    with one_error(result), unpack_shared(result) as run:
        signer = signer_of(run)
        subject = read_to_audit(run, scenario)
        limit = subject.tolerance if seconds is None else seconds
        origin = None if scenario is None else subject.scenario
        report, silent = audit_whole(
            subject, limit, share, rule=policy, training=training, stated=origin
        )

    # A file that was shared is unpacked into a folder of no meaning.
    name = subject.name if run == result else result.name
    # The table has the first violation of all guards: here is what each has found.
    lines = [*silent, *(f"guard {finding}" for finding in report.findings)]
    content = {
        "tolerance": limit,
        "relative": share,
        "checked": report.checked,
        "violations": [asdict(violation) for violation in report.violations],
        "guards": [finding.to_json() for finding in report.findings],
        "not_compared": silent,
        "signed_by": signer or None,
        "payloads": subject.payloads,
    }
    if emit(json_target, content):
        terminal().print(audit_table(report))
        if subject.payloads:
            lines.insert(0, f"between machines: {payload_line(subject.payloads)}")
        margin = f"{format_duration(limit)} and {share:.2g}"
        lines.append(f"{name}: {_constraints_line(report, margin)}")
        if subject.run is not None:
            lines.append(_verdict_line(subject.run.result, report))
        if signer:
            lines.append(f"signed by {signer}: compare it with that of whom you trust")
        for line in lines:
            terminal().print(f"\n{line}")

    if not report.passed:
        raise ExpectationMissed(report.summary)


def _constraints_line(report: AuditReport, margin: str) -> str:
    """Return whether the paper's constraints hold, and what else does not."""
    constraints = dict.fromkeys(row.constraint for row in report.violations)
    of_paper = [name for name in constraints if name.startswith("(")]
    checks = [name for name in constraints if name not in of_paper]
    # A link that has both directions breaks "(13),(14)".
    numbers = {number for name in of_paper for number in name.split(",")}

    line = f"keeps (5)-(15) to within {margin}"
    if numbers:
        in_order = sorted(numbers, key=lambda number: int(number.strip("()")))
        line = f"breaks {', '.join(in_order)} by more than {margin}"
    if checks:
        line += f"; wrong beside these: {', '.join(checks)}"
    return line


def _verdict_line(recorded: Result, report: AuditReport) -> str:
    """Return what the verdict of a run is by its records alone, beside the recorded."""
    trust = recorded.get("verdict", {}).get("trust")
    outcome = recorded.get("prediction", {}).get("outcome")
    verdict = f"recorded verdict: {trust}, {outcome}"
    if not report.checked.get("verdict"):
        return f"{verdict}; not computed again"
    differences = [
        violation.sentence
        for violation in report.violations
        if violation.constraint == "verdict"
    ]
    if differences:
        return f"{verdict}; from the records alone: {'; '.join(differences)}"
    return f"{verdict}; the records alone give the same"


def _parse_margins(tolerance: str | None, relative: str) -> tuple[float | None, float]:
    """Return the seconds and the share that figures may be off, as the options say."""
    try:
        seconds = None if tolerance is None else DURATION.parse(tolerance)
        return seconds, RATIO.parse(relative)
    except ValueError as error:
        raise ScenarioError(str(error), file="--tolerance or --relative") from error


@app.command()
def share(
    run: Path = argument("RUN", "Run directory."),
    out: Path = argument("OUT.zip", "File to write."),
    sign: Path | None = option(
        "KEY", "Sign it: a private key of Ed25519, as ssh-keygen writes it."
    ),
) -> None:
    """Write a run's records and verdicts into one file for others.

    Without paths and names of hosts. Whoever has it checks it by `emu audit OUT.zip`,
    which runs no code of it. A signature says who vouches for what no audit can see.
    """
    if out.suffix != ".zip":
        problem = "is to be named .zip: emu audit knows it by that"
        raise ScenarioError(problem, file=str(out))
    share_run(run, out, sign)
    terminal().print(f"written to {out}")


@app.command()
def evaluate(
    run: Path = argument("RUN", "Run directory."),
    *,
    run_code: RunCode = False,  # noqa: ARG001 - see emu.cli.app.Command
    json_target: JsonTarget = None,
) -> None:
    """Evaluate a run's weights on the whole graph.

    Accuracy by split, of weights.npz, with every neighbour of every vertex: one look,
    where three in a row decide on `until`. It needs the data set that was trained on.
    """
    figures = evaluate_run(run)
    # One job alone has no name: its splits stand at the top.
    if emit(json_target, figures.get("", figures)):
        terminal().print(accuracy_table(figures))
