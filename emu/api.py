"""The functions of ``import emu``: one step each from a scenario to an answer.

They call the layers below and hold no decision of their own. Nothing below imports
this module; the command line does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emu.errors import DataError, ScenarioError
from emu.host.foreign_code import code_of_others
from emu.prediction.analysis.explanation import Explanation
from emu.prediction.analysis.explanation import explain as explain_schedule
from emu.problem import Schedule
from emu.problem.schedule import ROUNDING
from emu.runs.recorded_run import RecordedRun, load_run
from emu.runs.run_directory import RunDirectory
from emu.scenario import Experiment, Scenario, load, prepare
from emu.scenario.edits import ScenarioEdits, placement_edit
from emu.scenario.experiment import makespan_of, refuse_deaths
from emu.scenario.setup import setup_rows
from emu.trust.audit import audit as audit_schedule
from emu.trust.violation import AuditReport

if TYPE_CHECKING:
    from emu.prediction.packets import Control, Shares
    from emu.report.comparison import Comparison

    Packets = tuple[Shares | None, Control | None]

_LOAD = "write emu.load(NAME), of a file or a shipped one, or emu.loads(TEXT)"
#: Share by which bytes and rates may be off.
EXACTNESS = 1e-6


def place(
    scenario: Scenario,
    policy: str | None = None,
    *,
    progress: Callable[[int, int, float], None] | None = None,
) -> Experiment:
    """Decide which task stands on which machine.

    ``policy`` is in place of the scenario's: ``ifs``, ``etp``, ``best``, ...; searches
    call ``progress`` with (candidates so far, in all, best makespan).

    Returns
    -------
    Experiment
        ``tasks`` is task -> machine, ``placed`` what the policy says of it;
        `simulate`, `run`, `compare` and `explain` take it in place of the scenario.

    Raises
    ------
    ScenarioError
        When there is no such policy, a search has no times to simulate, or it is no
        scenario but the name of one, say.
    PlacementError
        When the stated placement breaks a constraint; `InfeasiblePlacement` when the
        cluster is too small.
    DataError
        When the profile or the data set is missing or damaged.
    """
    scenario = _with_placement(scenario)
    if policy is not None:
        scenario = load(scenario, {**placement_edit(scenario, policy), "expect": None})
    return prepare(scenario, progress=progress)


def simulate(
    what: Scenario | Experiment,
    placement: Mapping[str, str] | None = None,
    *,
    network: str = "fluid",
    sharing: str | None = None,
    congestion_control: str | None = None,
) -> Schedule:
    """Return the schedule of a scenario in virtual time.

    Parameters
    ----------
    what
        A scenario, or what `place` returned.
    placement
        Task -> machine in place of the scenario's placement.
    network
        ``fluid``, rates of the policy, or ``ns3``, packets of TCP.
    sharing, congestion_control
        Of ``ns3``: ``fair`` (default) or ``tcp`` queues, ``cubic`` (default) or
        ``reno``.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As `place`; with ``ns3`` when it is missing, or has no packets for the job.
    NodeLost
        When the scenario kills it, and nothing or too little restarts it.
    SchedulingError
        When ns-3 fails.
    ValueError
        When a name is none of these, or of packets without ``ns3``.
    """
    packets = _packets("network", network, "fluid", (sharing, congestion_control))
    experiment = _ready(what, placement)
    if packets is None:
        from emu.experiment.question import ask  # noqa: PLC0415 - 0.1 s

        _, schedule = ask(experiment).first
        return schedule
    refuse_deaths(experiment)
    from emu.prediction.packets import Control, Shares, simulate_packets  # noqa: PLC0415

    shares, control = packets
    return simulate_packets(
        experiment.problem,
        experiment.realization,
        sharing=shares or Shares.FAIR,
        control=control or Control.CUBIC,
        byte_scale=experiment.scenario.emulation.stated_byte_scale,
    ).schedule


def setup(
    what: Scenario | Experiment, placement: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what is sent before time 0 of a training, simulated.

    It has the keys of ``setup`` in result.json: ``seconds``, ``bytes``, ``causes``,
    ``flows``. Empty of custom jobs. As `simulate` otherwise; raises what `place` does.
    """
    return setup_rows(_ready(what, placement))


def run(
    what: Scenario | Experiment,
    placement: Mapping[str, str] | None = None,
    *,
    runs: str | Path = "runs",
    witness: str | None = None,
    sharing: str | None = None,
    congestion_control: str | None = None,
    force: bool = False,
) -> RecordedRun:
    """Carry a scenario out over sockets, on this host, and read what it left.

    Its run directory holds everything that ``emu run`` writes, and `load_run` returns
    the same again. The verdict is in ``result["verdict"]``. A UserWarning says where
    times are measured and over 5 % of this host is taken.

    Parameters
    ----------
    what, placement
        As in `simulate`.
    runs
        Directory that takes the run directory.
    witness
        ``ns3``: the job is then simulated over packets; ``result["witness"]`` says who
        agrees with whom.
    sharing, congestion_control
        Of the witness, as in `simulate`; default are those of kernel NICs, else
        ``fair`` and ``cubic``.
    force
        Whether to measure times (``compute: real``) even where over 20 % of this host
        is taken.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As `place`, when the directory cannot be written, or this host has not the
        memory; with a witness as `simulate`.
    RunUntrusted
        When times are measured, over 20 % of this host is taken, and nothing forces it.
    RunError
        When the run could not be finished; its directory then holds the beginning.
    SchedulingError
        When ns-3 fails; the directory then holds the run without its witness.
    ValueError
        When a name is none of these, or of packets without a witness.
    KeyboardInterrupt
        After Ctrl-C or SIGTERM, with what was under way; all processes have ended.
    """
    # asyncio, sockets and the charts take half a second to import.
    from emu.experiment.dry_run import check_ready  # noqa: PLC0415
    from emu.experiment.profiling import check_load, host_load  # noqa: PLC0415
    from emu.report.html.page import write_report  # noqa: PLC0415

    packets = _packets("witness", witness, None, (sharing, congestion_control))
    scenario = _with_placement(what, placement)
    check_ready(scenario, Path(runs))
    if scenario.emulation.compute == "real":
        check_load(host_load(), warnings.warn, force=force)
    directory = RunDirectory.create(scenario.name, Path(runs))
    import asyncio  # noqa: PLC0415
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    # Where no event loop runs: a notebook has one in its main thread.
    work = partial(_carry_out, scenario, directory, packets)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        work()
    else:
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(work).result()
    write_report(directory.path)
    return load_run(directory.path)


def _carry_out(
    scenario: Scenario,
    directory: RunDirectory,
    packets: Packets | None,
) -> None:
    """Run a scenario, and send its packets where they are a witness."""
    from emu.experiment import run_experiment  # noqa: PLC0415
    from emu.experiment.auto_scale import with_scales  # noqa: PLC0415
    from emu.experiment.dry_run import check_memory, dry_run  # noqa: PLC0415
    from emu.experiment.witness import PacketNetwork, with_witness  # noqa: PLC0415
    from emu.prediction.packets import check_packets  # noqa: PLC0415

    def check(experiment: Experiment) -> None:
        if packets is not None:
            check_packets(experiment.problem)

    experiment, choice = with_scales(scenario, check=check)
    check_memory(dry_run(experiment), scenario.job.credit_window)
    settings = run_experiment.emulation_settings(experiment.scenario)
    outcome = run_experiment.carry_out(experiment, settings, directory, choice=choice)
    if packets is not None:
        network = PacketNetwork.of(experiment.scenario, *packets)
        with_witness(outcome, network, directory)


def compare(
    what: Scenario | Experiment,
    *,
    placements: Sequence[str] = (),
    policies: Sequence[str] = (),
    moves: Sequence[tuple[str, str]] = (),
    swaps: Sequence[tuple[str, str]] = (),
    seeds: int = 1,
    keep_placement: bool = False,
    jobs: int = 1,
) -> Comparison:
    """Simulate a scenario as it is, and variants of it.

    Each is placed under its own rate policy. One that cannot be has ``refused``, the
    error, and no makespan. Raises what `place` does, where a name is unknown, a move
    cannot be or there are no seeds as well; RunError when a process was killed.

    Parameters
    ----------
    what
        A scenario, or what `place` returned.
    placements, policies
        Names; every combination is tried, none means the scenario's own. ``all`` is
        every one that needs nothing stated.
    moves
        (task, machine): the placement with this task moved.
    swaps
        (task, task): the placement with these two swapped.
    seeds
        How many: the scenario's own and those that follow it.
    keep_placement
        Whether every placement is that of the scenario's rate policy.
    jobs
        Processes that the seeds are spread over; 0 is one for each core.
    """
    from emu.experiment.variants import compare_variants  # noqa: PLC0415
    from emu.report.comparison import Comparison  # noqa: PLC0415 - rich

    for key, names in {"placements": placements, "policies": policies}.items():
        # Its letters would be taken for names.
        if isinstance(names, str):
            problem = f"found {names!r}, write [{names!r}]"
            raise ScenarioError(f"{key}: {problem}")
    if seeds < 1:
        problem = f"found {seeds}, write 1 or more"
        raise ScenarioError(f"seeds: {problem}")

    rows = compare_variants(
        _ready(what),
        placements,
        policies,
        moves=moves,
        swaps=swaps,
        seeds=seeds,
        keep_placement=keep_placement,
        jobs=jobs,
    )
    return Comparison(rows)


def explain(
    what: Scenario | Experiment | RecordedRun,
    *,
    helpful: bool = True,
    run_code: bool = False,
    watch: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Say why a scenario or run takes so long, and what would help.

    A scenario is simulated; for a run it is also said where emulation and simulation
    parted. Raises what `place` does, or DataError when nothing of the run can be read.

    Parameters
    ----------
    helpful
        Whether to look for what would help, some 50 simulations.
    run_code
        Of a run: whether a rule of others, which its manifest names, may run for that.
    watch
        Of a scenario: is called with what is tried next.
    """
    if not isinstance(what, RecordedRun):
        from emu.experiment.question import ask  # noqa: PLC0415 - 0.1 s

        answer = ask(_ready(what))
        experiment, schedule = answer.first
        is_chosen = experiment.unchosen is not None
        with_deaths = None
        # A machine may die that holds nothing now: a change may put tasks there.
        if experiment.scenario.states_deaths:
            with_deaths = partial(makespan_of, experiment)
        return explain_schedule(
            schedule,
            experiment.realization,
            experiment.policy,
            emulated=False,
            helpful=helpful,
            stated=ScenarioEdits(experiment.scenario, chosen=is_chosen),
            with_deaths=with_deaths,
            again=answer.deaths.lost["again"],
            watch=watch,
        )
    return what.explain(helpful=helpful, run_code=run_code)


def audit(
    what: Schedule | RecordedRun,
    *,
    tolerance: float | None = None,
    relative: float = EXACTNESS,
    policy: bool = False,
    training: bool = False,
    run_code: bool = False,
) -> AuditReport:
    """Check a schedule, simulated or emulated, against the paper's constraints.

    Of an emulated run all that follows from its scenario's text and from what its
    processes reported is computed again, and its guards are asked again. Raises
    DataError when no schedule of the run can be read, or it is neither of the two.

    Parameters
    ----------
    tolerance
        Seconds by which times may be off; default is 1 us.
    relative
        Share by which bytes and rates may be off.
    policy, training
        Of an emulated run: whether rates are computed again by its scenario's rule,
        slowly, and whether it is trained again in one process to compare losses.
    run_code
        Of an emulated run: whether rules and models of others, which its manifest
        names, may run for that. Else what needs them is not compared.
    """
    if not isinstance(what, Schedule | RecordedRun):
        raise DataError(
            f"found {what!r}, neither a schedule nor a run: write emu.simulate or "
            "emu.load_run"
        )
    if isinstance(what, RecordedRun) and what.emulated is not None:
        # They bring sockets.
        from emu.experiment.recompute import audit_whole  # noqa: PLC0415
        from emu.runs.audit_inputs import run_to_audit  # noqa: PLC0415

        run = run_to_audit(what)
        limit = run.tolerance if tolerance is None else tolerance
        with code_of_others(runs=run_code):
            report = audit_whole(run, limit, relative, rule=policy, training=training)
        return report[0]
    schedule = what if isinstance(what, Schedule) else what.best
    limit = ROUNDING if tolerance is None else tolerance
    return audit_schedule(schedule, tolerance=limit, relative=relative)


def _packets(
    name: str,
    found: str | None,
    without: str | None,
    of: tuple[str | None, str | None],
) -> Packets | None:
    """Return queues and TCP of packets as they are stated; None where there are none.

    Raises ValueError when a name is none of those that there are, or of packets that
    nothing sends.
    """
    from emu.prediction.packets import Control, Shares  # noqa: PLC0415

    for key, value, choices in (
        (name, found, ("ns3", without)),
        ("sharing", of[0], (None, *Shares)),
        ("congestion_control", of[1], (None, *Control)),
    ):
        if value not in choices:
            names = ", ".join(str(each) for each in choices)
            raise ValueError(f"{key} is {value!r}: one of {names}")
    if found != "ns3":
        if of != (None, None):
            raise ValueError(f"sharing, congestion_control: add {name}='ns3'")
        return None
    shares, control = of
    return (
        None if shares is None else Shares(shares),
        None if control is None else Control(control),
    )


def _ready(
    what: Scenario | Experiment, placement: Mapping[str, str] | None = None
) -> Experiment:
    if isinstance(what, Experiment) and placement is None:
        return what
    return prepare(_with_placement(what, placement))


def _with_placement(
    what: Scenario | Experiment, placement: Mapping[str, str] | None = None
) -> Scenario:
    """Return the scenario, with the placement stated where there is one."""
    if not isinstance(what, Scenario | Experiment):
        raise ScenarioError(f"found {what!r}, which is no scenario: {_LOAD}")
    scenario = what.scenario if isinstance(what, Experiment) else what
    if placement is None and isinstance(what, Scenario):
        return scenario
    there = what.tasks if isinstance(what, Experiment) else {}
    tasks = {**there, **(placement or {})}
    return load(scenario, {"placement": {"policy": "explicit", "tasks": tasks}})
