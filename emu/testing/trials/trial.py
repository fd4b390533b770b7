"""Runs of the product's own coordinator, agents and node processes in one process.

Their faults are drawn from a seed, and what may come of them is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import io
import random  # noqa: TID251 -- a draw takes 0.1 us, one of numpy 3
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PosixPath
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from emu.emulation.coordinator import Coordinator, EmulatedRun, Observer, RunSettings
from emu.emulation.coordinator.company import Company
from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.launch import Launcher, describe_end
from emu.emulation.launch.agent import Agent
from emu.emulation.launch.programs import RUNTIME
from emu.emulation.network.statistics import HostUse
from emu.emulation.shaping import EmulationSettings, pace_at
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import EmulatorError
from emu.host.this_host import this_host, version_of_emu
from emu.prediction.simulation import simulate
from emu.problem import Kill, Problem, Realization
from emu.problem.job import Cut
from emu.scenario import Experiment
from emu.scenario.realize import model_programs
from emu.systems.system import tasks_with_state_of
from emu.testing.trials.wires import EPOCH, Damage, Kinds
from emu.testing.trials.world import Stuck, VirtualProcess, World

#: Wall seconds, of virtual time, in which a run of any length has ended.
_ENDLESS = 100_000.0
#: Wall seconds in which everybody has left once the coordinator has ended.
_LEAVE = 90.0
COORDINATOR = "coordinator"
#: Seconds by which a run without faults may miss the simulated makespan, of one.
EXACT = 1e-6
#: Wall seconds in which a run ends, and everybody leaves, after processes have died.
PROMPT = 3.0
_LONGEST = 8.0  # wall seconds that a piece is late
_KINDS: tuple[Literal["kill"] | Kinds, ...] = (
    "kill", "kill", "reset", "truncate", "corrupt", "delay", "again"
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A job to be tried, as `emu.emulation.coordinator.Coordinator` takes it."""

    problem: Problem
    expected: Realization
    policy: str = "oes"
    settings: EmulationSettings = field(default_factory=EmulationSettings)
    hosts: int = 1
    """Hosts: one, or several that share no memory."""
    allow: tuple[str, ...] = ()
    """Programs that are not of a system that is installed."""
    every: int = 0
    """Iterations between two cuts, which `Trial.cuts` gets; 0 for none."""
    kills: tuple[Kill, ...] = ()
    began: float = 0.0
    """As `emu.emulation.coordinator.RunSettings` has them."""
    start: Cut = field(default_factory=lambda: Cut(0, {}))
    """Cut that it begins with; problem and times are of what is left to do."""

    def after(self, cut: Cut) -> Case:
        """Return what is left to do after a cut of this case."""
        count = cut.iteration - self.start.iteration
        job = self.problem.job
        return replace(
            self,
            problem=self.problem.beginning_at(count),
            expected=self.expected.beginning_at(count, job),
            start=cut,
        )

    @classmethod
    def of(cls, experiment: Experiment, *, hosts: int = 1, **changes: Any) -> Case:
        """Return the case of a scenario that was made ready.

        ``changes``: fields of `emu.emulation.shaping.EmulationSettings` in place of the
        scenario's. Its byte scale is in the programs already: change that where it is
        loaded.
        """
        scenario = experiment.scenario
        settings = scenario.emulation.settings
        checkpoint = scenario.checkpoint
        programs = [model.name for model in model_programs(scenario)]

        return cls(
            problem=experiment.problem,
            expected=experiment.realization,
            policy=experiment.choose_policy(),
            settings=replace(settings, **changes),
            hosts=hosts,
            allow=tuple(programs),
            every=checkpoint.every if checkpoint else 0,
        )


@dataclass(frozen=True)
class Faults:
    """Damage that a run suffers, and the seed that draws everything else."""

    seed: int = 0
    calm: bool = True
    damages: tuple[Damage, ...] = ()
    deaths: dict[str, int] = field(default_factory=dict)
    """Step at which a process dies, by its name."""


@dataclass
class Trial:
    """Outcome of one run."""

    faults: Faults
    run: EmulatedRun | None = None
    error: EmulatorError | None = None
    """Result or error of the coordinator; neither where it was killed."""
    complaints: list[str] = field(default_factory=list)
    """Things that must never be: a hang, a task left behind, a dropped exception."""
    happened: list[Damage | str] = field(default_factory=list)
    """Faults that came about before the end."""
    noticed: float = 0.0
    """Wall seconds from the first of them to the end of the coordinator."""
    digest: str = ""
    """Fingerprint of every byte that arrived, with its time."""
    cuts: list[Cut] = field(default_factory=list)
    """Cuts that were kept, in order."""
    steps: dict[str, int] = field(default_factory=dict)
    carried: list[int] = field(default_factory=list)
    ends: list[tuple[str, str]] = field(default_factory=list)
    """Steps by process, bytes by wire, and names of both ends by connection."""
    ended: float = 0.0
    """Wall seconds after which the coordinator ended."""
    log: str = ""


class Children:
    """Processes that one process has started: an agent's, or a launcher's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.all: list[VirtualProcess] = []

    async def aclose(self, grace: float) -> None:
        """End all: they have ``grace`` wall seconds to do so by themselves."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for process in self.all:
                    await process.ended.wait()
        for process in self.all:
            self._world.kill(process)


class Forks(Children):
    """Starts node processes in a world, in place of a fork server."""

    def __init__(
        self,
        world: World,
        on_end: Callable[[str, int], None],
        _lost: object,
    ) -> None:
        super().__init__(world)
        self._on_end = on_end

    def kill(self, process: str) -> None:
        """Kill a process, where it is one of these."""
        for child in self.all:
            if child.name == process:
                self._world.kill(child)

    async def start(self) -> None:
        """Do nothing: everything is imported."""

    async def fork(self, specs: Sequence[ProcessSpec], *_modules: object) -> None:
        """Start a process per specification, which imports what it needs."""
        module, _, _ = RUNTIME.partition(":")
        runtime = importlib.import_module(module)
        surroundings = runtime.Surroundings({}, _no_warm_up, _NoMetrics)
        for spec in specs:
            line = runtime.Line([spec])
            node = runtime.NodeProcess(spec, surroundings, line)
            child = self._world.start(
                spec.process,
                node.exit_status,
                on_end=self._on_end,
            )
            self.all.append(child)


async def _no_warm_up(_: object) -> None:
    """Do nothing: this process has run before."""


class _NoMetrics:
    """Figures of a host that has no load."""

    def close(self) -> None:
        pass

    def usage(self) -> tuple[float, int]:
        return 0.0, 0

    def use(self) -> HostUse:
        idle = dict.fromkeys(("busy", "idle", "steal"), 0.0)
        return HostUse(
            seconds=0.0,
            loop_lag_mean=0.0,
            loop_lag_max=0.0,
            waited=0.0,
            host=idle,
        )


class VirtualLauncher(Launcher):
    """Starts agents in a world: one that shares memory, or several that do not."""

    def __init__(self, world: World, hosts: int) -> None:
        self._world = world
        self._children = Children(world)
        self.hosts = [f"host{n}" for n in range(hosts)]
        self.embedded = hosts == 1
        self._ended: list[str] = []
        self._some_ended = asyncio.Event()

    @override
    async def start(
        self,
        address: tuple[str, int],
        token: str,
        log: Path,
        allow: Collection[str],
    ) -> None:
        """Start an agent per host."""
        # A default of `serve`, so bound now: else all agents would have the last name.
        for name in self.hosts:

            async def serve(name: str = name) -> int:
                """Be the agent of a host, as ``python -m emu.emulation.launch`` is."""

                async def describe(_: str) -> dict[str, Any]:
                    return {"name": name, "cpus": 2, "emu": version_of_emu()}

                agent = Agent(
                    address,
                    token,
                    name=name,
                    allow=allow,
                    patience=2.0,
                    forks=lambda on_end, lost: Forks(self._world, on_end, lost),
                    describe=describe,
                )
                try:
                    await agent.run()
                except EmulatorError as error:
                    print(f"emu agent: {error}", file=sys.stderr)  # noqa: T201 -- its whole output
                    return error.exit_code
                return 0

            process = self._world.start(f"agent {name}", serve, on_end=self._note)
            self._children.all.append(process)

    def _note(self, name: str, code: int) -> None:
        self._ended.append(f"the {name} {describe_end(code)}")
        self._some_ended.set()

    @override
    async def wait_for_end(self) -> str:
        """Wait until an agent has ended and return how, in words."""
        await self._some_ended.wait()
        return self._ended[0]

    @override
    async def aclose(self, grace: float) -> None:
        """End the agents."""
        await self._children.aclose(grace)


class _Log(PosixPath):
    """A file in memory. Messages name it: a folder of its own has another name each."""

    def __init__(self, *_: str) -> None:
        self.text = io.StringIO()

    @override
    def open(self, *_: Any, **__: Any) -> Any:
        return contextlib.nullcontext(self.text)

    @override
    def read_text(self, *_: Any, **__: Any) -> str:
        return self.text.getvalue()

    @override
    def read_bytes(self) -> bytes:
        return self.text.getvalue().encode()


def run_trial(
    case: Case,
    faults: Faults | None = None,
    observer: Observer | None = None,
    repeats: int = 1,
) -> Trial:
    """Run a case, under these faults; the same again is the same to the byte.

    ``observer``: of the run; no part of what is tried. ``repeats``: runs, for which all
    processes stay; the trial has the last.
    """
    trial = Trial(faults or Faults())
    world = World(**vars(trial.faults))
    log = _Log("trial.log")
    with contextlib.redirect_stderr(log.text), this_host.replace(world.host()):
        # Collections come at steps that no seed decides: what they finalise would
        # differ between two runs of one seed.
        gc.disable()
        try:
            _carry_out(
                case,
                world,
                trial,
                log=log,
                observer=observer,
                repeats=repeats,
            )
            trial.log = log.read_text()
        finally:
            world.close()
            gc.collect(0)  # exceptions that were not retrieved complain now
            gc.enable()

    trial.complaints += world.complaints
    if "Traceback (most recent" in trial.log:
        trial.complaints.append(f"a traceback: {trial.log}")

    network = world.network
    trial.happened = network.happened
    trial.digest = network.digest
    if network.happened:
        trial.noticed = trial.ended - network.began
    trial.steps = {process.name: process.steps for process in world.processes}
    trial.carried = [wire.carried for wire in network.wires]
    trial.ends = network.ends
    return trial


def _carry_out(
    case: Case,
    world: World,
    trial: Trial,
    log: Path,
    observer: Observer | None,
    repeats: int,
) -> None:
    owners = tasks_with_state_of(case.problem.job)
    plan = CutPlan(owners, case.every, keep=trial.cuts.append, start=case.start)
    company = Company() if repeats > 1 else None
    settings = RunSettings(
        launcher=VirtualLauncher(world, case.hosts),
        token="of this trial",  # noqa: S106 -- it guards nothing
        allow=case.allow,
        cuts=plan if case.every else None,
        kills=case.kills,
        began=case.began,
        company=company,
        **vars(case.settings),
    )

    async def coordinate() -> int:
        try:
            for _ in range(repeats):
                trial.run = await _run_once(case, settings, log, observer)
            if company is not None:
                await company.dismiss()
        except EmulatorError as error:
            # Its frames would keep the whole world alive as long as the trial.
            trial.error = error.with_traceback(None)
        trial.ended = this_host.monotonic() - EPOCH
        return 1 if trial.run is None else 0

    first = world.start(COORDINATOR, coordinate)

    async def watch() -> None:
        async with asyncio.timeout(_ENDLESS):
            await first.ended.wait()
        async with asyncio.timeout(_LEAVE):
            for process in world.processes:
                await process.ended.wait()

    try:
        world.loop.run_until_complete(watch())
    except (TimeoutError, Stuck) as error:
        alive = [process.name for process in world.processes if process.code is None]
        names = ", ".join(alive)
        trial.complaints.append(f"{names} did not end: {error}")
    trial.complaints += [f"{COORDINATOR} left {task}" for task in first.left]


async def _run_once(
    case: Case,
    settings: RunSettings,
    log: Path,
    observer: Observer | None,
) -> EmulatedRun:
    coordinator = Coordinator(
        case.problem,
        policy=case.policy,
        settings=settings,
        expected=case.expected,
        log=log,
        observer=observer,
    )
    return await coordinator.run()


@dataclass
class Trials:
    """Trials of one case: every seed is a run with one fault, or two.

    A run without faults comes first: it says what there is to be damaged, and which
    results every other run must have. Raises AssertionError when that run ends with an
    error, or misses what was simulated.
    """

    case: Case
    longest_wait: float = field(init=False, default=0.0)
    """Wall seconds that a task of that run waited for what came late, at most."""

    def __post_init__(self) -> None:
        self.undisturbed = run_trial(self.case)

        complaints = [*self.undisturbed.complaints]
        run = self.undisturbed.run
        if run is None:
            complaints.append(f"it ended with {self.undisturbed.error!r}")
        else:
            self.sound = run
            makespan = self.simulate_late(run)
            error = run.schedule.makespan - makespan
            most_error = EXACT * max(1.0, makespan)
            if abs(error) > most_error:
                complaints.append(f"its makespan is {error:g} s off the simulated one")

        if complaints:
            raise AssertionError(f"without any fault: {'; '.join(complaints)}")

    def simulate_late(self, run: EmulatedRun) -> float:
        """Return the makespan that a run without faults must have, in seconds.

        Where arrivals end flows, a sender that sleeps until its flow's end sees a rate
        that rises meanwhile up to a look late. Tasks that wait for it are simulated
        with that wait, unless one is longer than a look. Volumes are simulated in whole
        bytes, which is all that sockets carry.
        """
        settings = self.case.settings
        expected = self.case.expected
        rounding = np.abs(run.perturbed.volumes - expected.volumes)
        whole_volumes = np.where(
            rounding * settings.byte_scale < 1.0,
            run.perturbed.volumes,
            expected.volumes,
        )
        expected = replace(expected, volumes=whole_volumes)
        waits = run.perturbed.times - expected.times
        longest = float(np.abs(waits).max())
        self.longest_wait = longest * settings.time_scale
        pace = pace_at(settings.time_scale, settings)
        if self.longest_wait <= pace.shortest:
            expected = replace(expected, times=run.perturbed.times)
        schedule = simulate(self.case.problem, expected, self.case.policy)
        return schedule.makespan

    def faults(self, seed: int) -> Faults:
        """Return the faults of a seed."""
        draw = random.Random(seed)  # noqa: S311 -- to be repeated
        trial = self.undisturbed
        damages: dict[int, Damage] = {}
        deaths: dict[str, int] = {}
        count = draw.choice((0, 1, 1, 1, 1, 2))
        for _ in range(count):
            kind = draw.choice(_KINDS)
            if kind == "kill":
                names = sorted(trial.steps)
                name = draw.choice(names)
                deaths[name] = draw.randint(1, trial.steps[name])
                continue

            # A wire that carried nothing has no byte to damage.
            busy_wires = [wire for wire, size in enumerate(trial.carried) if size]
            wire = draw.choice(busy_wires)
            length = trial.carried[wire]
            # What frames and handshakes are made of is at the beginning.
            most = draw.choice((length, length, min(length, 400)))
            # Cubed: most delays are short, and a few outlast what the product waits
            # for.
            seconds = draw.random() ** 3 * _LONGEST
            damages[wire] = Damage(
                wire,
                byte=draw.randrange(most),
                kind=kind,
                seconds=seconds,
            )
        calm = draw.random() < 0.3
        return Faults(
            seed,
            calm=calm,
            damages=tuple(damages.values()),
            deaths=deaths,
        )

    def run(self, seed: int) -> Trial:
        """Carry out the trial of a seed; its complaints are all that is wrong."""
        return self.judge(self.faults(seed))

    def judge(self, faults: Faults) -> Trial:
        """Carry out a trial of one's own."""
        trial = run_trial(self.case, faults)
        trial.complaints += list(self.wrong(trial))
        return trial

    def wrong(self, trial: Trial) -> Iterator[str]:
        """Yield what is wrong with an outcome."""
        if trial.run is not None:
            yield from self._differences(trial.run)
        elif trial.error is not None:
            yield from self._faults_of_error(trial, str(trial.error))
        elif COORDINATOR not in trial.happened:
            yield "neither a result nor an error"

    def _faults_of_error(self, trial: Trial, error: str) -> Iterator[str]:
        """Yield what is wrong with an error: whom it names, and when it came."""
        names = self.culprits(trial)
        any_name = "|".join(map(re.escape, names))
        named = re.search(rf"\b({any_name})\b", error)
        if not (names and named):
            yield f"none of {names} is named in: {error}"

        # A wire that is damaged may show by a timeout alone, a death closes
        # connections.
        only_deaths = all(isinstance(fault, str) for fault in trial.happened)
        if only_deaths and trial.noticed > PROMPT:
            yield f"it took {trial.noticed:.1f} s: {error}"

    def culprits(self, trial: Trial) -> list[str]:
        """Return the names of which an error must name one."""
        names = set()
        for fault in trial.happened:
            if isinstance(fault, str):
                names.add(fault)
                continue
            # Two wires make a connection: an error may name either end.
            connection = fault.wire // 2
            if connection < len(trial.ends):
                names.update(trial.ends[connection])

        job = self.case.problem.job
        for process in names & job.processes.keys():
            tasks = job.processes[process]
            names.update(job.tasks[task].name for task in tasks)
        # The error is the coordinator's own: its name would blame nobody.
        return sorted(names - {COORDINATOR})

    def _differences(self, run: EmulatedRun) -> Iterator[str]:
        """Yield how a result differs from that without faults."""
        found = run.results
        wanted = self.sound.results
        if found.keys() != wanted.keys():
            yield f"results of {sorted(found)}, not {sorted(wanted)}"
            return
        for name, arrays in wanted.items():
            for key, array in arrays.items():
                # To the last bit: faults may cost time, never change what was computed.
                if not np.array_equal(found[name][key], array):
                    yield f"{key} of {name} differs"

        volumes = self.sound.realization.volumes
        if not np.array_equal(run.realization.volumes, volumes):
            yield "volumes differ"
