"""A run of the product's own coordinator, agents and node processes in one process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import io
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PosixPath
from typing import Any

from typing_extensions import override

from emu.emulation.coordinator import Coordinator, EmulatedRun, Observer, RunSettings
from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.launch import Launcher, describe_end
from emu.emulation.launch.agent import Agent
from emu.emulation.launch.programs import RUNTIME
from emu.emulation.network.statistics import HostUse
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import EmulatorError
from emu.host.this_host import this_host, version_of_emu
from emu.problem import Kill, Problem, Realization
from emu.problem.job import Cut
from emu.scenario import Experiment
from emu.scenario.realize import model_programs
from emu.systems.system import tasks_with_state_of
from emu.testing.trials.wires import EPOCH, Damage
from emu.testing.trials.world import Stuck, VirtualProcess, World

#: Wall seconds, of virtual time, in which a run of any length has ended.
_ENDLESS = 100_000.0
#: Wall seconds in which everybody has left once the coordinator has ended.
_LEAVE = 90.0
COORDINATOR = "coordinator"


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
        return replace(
            self,
            problem=self.problem.beginning_at(count),
            expected=self.expected.beginning_at(count, self.problem.job),
            start=cut,
        )

    @property
    def begins(self) -> Mapping[str, tuple[str, ...]]:
        """Tasks with whose state a task begins after a cut."""
        return tasks_with_state_of(self.problem.job)

    @classmethod
    def of(cls, experiment: Experiment, *, hosts: int = 1, **changes: Any) -> Case:
        """Return the case of a scenario that was made ready.

        Parameters
        ----------
        hosts
            As the field.
        changes
            Fields of `emu.emulation.shaping.EmulationSettings` in place of the
            scenario's. Its byte scale is in the programs already: change that where it
            is loaded.
        """
        settings = replace(experiment.scenario.emulation.settings, **changes)
        models = tuple(model.name for model in model_programs(experiment.scenario))
        policy = experiment.choose_policy()
        parts = experiment.problem, experiment.realization, policy, settings
        section = experiment.scenario.checkpoint
        return cls(*parts, hosts, models, section.every if section else 0)


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
        self._all: list[VirtualProcess] = []

    def add(self, process: VirtualProcess) -> None:
        """Take over a process."""
        self._all.append(process)

    async def aclose(self, grace: float) -> None:
        """End all: they have ``grace`` wall seconds to do so by themselves."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for process in self._all:
                    await process.ended.wait()
        for process in self._all:
            self._world.kill(process)


class Forks(Children):
    """Starts node processes in a world, in place of a fork server."""

    def kill(self, process: str) -> None:
        """Kill a process, where it is one of these."""
        for one in self._all:
            if one.name == process:
                self._world.kill(one)

    def __init__(
        self, world: World, on_end: Callable[[str, int], None], _lost: object
    ) -> None:
        super().__init__(world)
        self._on_end = on_end

    async def start(self) -> None:
        """Do nothing: everything is imported."""

    async def fork(self, specs: Sequence[ProcessSpec], preload: list[str]) -> None:  # noqa: ARG002 -- as a fork server
        """Start a process per specification, which imports what it needs."""
        runtime = importlib.import_module(RUNTIME.partition(":")[0])
        around = runtime.Surroundings({}, _no_warm_up, _NoMetrics)
        for spec in specs:
            process = runtime.NodeProcess(spec, around)
            self.add(
                self._world.start(
                    spec.process, process.exit_status, on_end=self._on_end
                )
            )


async def _no_warm_up(_: object) -> None:
    """Do nothing: this process has run before."""


class _NoMetrics:
    """Figures of a host that has no load."""

    def close(self) -> None:
        """Do nothing."""

    def usage(self) -> tuple[float, int]:
        """Return nothing used."""
        return 0.0, 0

    def use(self) -> HostUse:
        """Return no lag."""
        none = dict.fromkeys(("busy", "idle", "steal"), 0.0)
        return HostUse(0.0, 0.0, 0.0, 0.0, none)


class VirtualLauncher(Launcher):
    """Starts agents in a world: one that shares memory, or several that do not."""

    def __init__(self, world: World, hosts: int) -> None:
        self._world, self._children = world, Children(world)
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
        for name in self.hosts:

            async def serve(name: str = name) -> int:
                return await _serve(self._world, address, token, name, allow)

            process = self._world.start(f"agent {name}", serve, on_end=self._note)
            self._children.add(process)

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


async def _serve(
    world: World,
    address: tuple[str, int],
    token: str,
    name: str,
    allow: Collection[str],
) -> int:
    """Be the agent of a host, as ``python -m emu.emulation.launch`` is."""

    async def describe(_: str) -> dict[str, Any]:
        return {"name": name, "cpus": 2, "emu": version_of_emu()}

    agent = Agent(
        address,
        token,
        name=name,
        allow=allow,
        patience=2.0,
        forks=lambda on_end, lost: Forks(world, on_end, lost),
        describe=describe,
    )
    try:
        await agent.run()
    except EmulatorError as error:
        print(f"emu agent: {error}", file=sys.stderr)  # noqa: T201 -- its whole output
        return error.exit_code
    return 0


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


def run_trial(
    case: Case, faults: Faults | None = None, observer: Observer | None = None
) -> Trial:
    """Run a case once, under these faults; the same again is the same to the byte.

    Parameters
    ----------
    observer
        Of the run; no part of what is tried.
    """
    faults = faults or Faults()
    trial = Trial(faults)
    world = World(
        faults.seed,
        calm=faults.calm,
        damages=faults.damages,
        deaths=faults.deaths,
    )
    log = _Log("trial.log")
    with contextlib.redirect_stderr(log.text), this_host.replace(world.host()):
        gc.disable()
        try:
            _carry_out(case, world, trial, log, observer)
            trial.log = log.read_text()
        finally:
            world.close()
            gc.collect(0)  # exceptions that were not retrieved complain now
            gc.enable()
    trial.complaints += world.complaints
    if "Traceback (most recent" in trial.log:
        trial.complaints.append(f"a traceback: {trial.log}")
    network = world.network
    trial.happened, trial.digest = network.happened, network.digest
    if network.happened:
        trial.noticed = trial.ended - network.began
    trial.steps = {process.name: process.steps for process in world.processes}
    trial.carried = [wire.carried for wire in network.wires]
    trial.ends = network.ends
    return trial


def _carry_out(
    case: Case, world: World, trial: Trial, log: Path, observer: Observer | None
) -> None:
    plan = CutPlan(case.begins, case.every, trial.cuts.append, case.start)
    settings = RunSettings(
        launcher=VirtualLauncher(world, case.hosts),
        token="of this trial",  # noqa: S106 -- it guards nothing
        allow=case.allow,
        cuts=plan if case.every else None,
        kills=case.kills,
        began=case.began,
        **vars(case.settings),
    )

    async def coordinate() -> int:
        what = case.problem, case.policy, settings, case.expected
        coordinator = Coordinator(*what, log=log, observer=observer)
        try:
            trial.run = await coordinator.run()
        except EmulatorError as error:
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
        alive = [each.name for each in world.processes if each.code is None]
        trial.complaints.append(f"{', '.join(alive)} did not end: {error}")
    trial.complaints += [f"{COORDINATOR} left {task}" for task in first.left]
