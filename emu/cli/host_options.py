"""The hosts that carry the processes of a run, as its options state them."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.emulation import launch
from emu.emulation.coordinator import RunSettings
from emu.errors import ScenarioError
from emu.experiment.run_experiment import emulation_settings
from emu.host.this_host import loopback_address
from emu.scenario import Experiment
from emu.units import DURATION


@dataclass(frozen=True)
class Hosts:
    """Hosts, as the options state them.

    Raises ScenarioError when two ways are asked for, or the hosts cannot be read.
    """

    agents: int
    file: Path | None
    ray: str
    any_version: bool = False
    patience: str | None = None
    """Wall time to wait for ``agents``."""

    def __post_init__(self) -> None:
        # Read at once, so that a wrong option is an error before a scenario is tried.
        sources = [self.agents > 0, self.file is not None, self.ray != ""]
        if sum(sources) > 1:
            problem = "waits for agents that others start, --hosts and --ray start them"
            raise ScenarioError(f"{problem}: state one of the three", file="--agents")
        if self.file is not None:
            launch.read_hosts_file(self.file)
        if self.patience is not None and not self.agents:
            problem = "is how long --agents N are waited for: state them, too"
            raise ScenarioError(problem, file="--patience")
        self._parse_patience()

    def _parse_patience(self) -> float | None:
        """Return the wall seconds to wait for agents; None where nothing says."""
        if self.patience is None:
            return None
        try:
            seconds = DURATION.parse(self.patience)
        except ValueError as error:
            raise ScenarioError(str(error), file="--patience") from error
        if not 0 < seconds < math.inf:
            problem = f"found {self.patience!r}, write a time above 0, e.g. 60 s"
            raise ScenarioError(problem, file="--patience")
        return seconds

    @property
    def here(self) -> bool:
        """True where this host alone carries the processes."""
        return not (self.agents or self.file or self.ray)

    def launcher(self, experiment: Experiment) -> launch.Launcher:
        """Return the launcher of the agents.

        Raises RunError when the Ray cluster has no room; ScenarioError when
        EMU_RAY_CPUS is no number above 0.
        """
        if self.ray:
            hosts = experiment.scenario.emulation.hosts
            bundles = launch.bundles_of(experiment.problem, _ray_cpus(), hosts)
            return launch.RayLauncher(self.ray, bundles)

        if self.file is not None:
            return launch.SshLauncher(
                launch.read_hosts_file(self.file),
                ssh=os.environ.get("EMU_SSH") or "ssh",
                agent=os.environ.get("EMU_AGENT", ""),
            )
        if self.agents:
            return launch.ExternalLauncher(self.agents, self._parse_patience())
        return launch.LocalLauncher()

    def settings(
        self,
        experiment: Experiment,
        listen: tuple[str, int] | None,
        allow: tuple[str, ...],
    ) -> RunSettings:
        """Return settings to emulate on these hosts, which are reserved from now on.

        ``listen``: address and port; None is the way to the hosts.

        Raises RunError when the Ray cluster has no room, or there is no way to the
        hosts; ScenarioError when the agents cannot be started again, and must.
        """
        launcher = self.launcher(experiment)
        scenario = experiment.scenario
        # Agents of ssh are started anew for each attempt, as those of this host are.
        if scenario.restarts and (self.agents or self.ray):
            problem = "agents that others start end with an attempt: write abort"
            raise scenario.origin.error(("on_failure",), problem)
        if scenario.emulation.setup and (self.agents or self.ray):
            problem = "agents that others start end with the setup: remove this key"
            raise scenario.origin.error(("emulation", "setup"), problem)

        if listen is not None:
            host, port = listen
        elif self.file is not None or self.ray:
            # Loopback reaches no other host: the address that the first of them would
            # see.
            host = launch.address_towards(launcher.hosts[0])
            port = 0
        else:
            host = loopback_address()
            port = 0

        options: dict[str, Any] = {}
        if isinstance(launcher, launch.RayLauncher):
            # Ray decides which host a machine is on, where the scenario does not state
            # it.
            options["host_of"] = launcher.host_of
        if self.agents:
            # Both sides have to know it; for agents that emu starts one is drawn.
            options["token"] = os.environ.get("EMU_TOKEN", "")
        return emulation_settings(
            scenario,
            launcher=launcher,
            listen=host,
            port=port,
            allow=allow,
            any_version=self.any_version,
            **options,
        )


def _ray_cpus() -> float:
    """Return the cores of Ray that each process takes, by EMU_RAY_CPUS."""
    text = os.environ.get("EMU_RAY_CPUS", "1")
    cpus = 0.0
    with contextlib.suppress(ValueError):
        cpus = float(text)
    if not 0 < cpus < math.inf:
        problem = f"found {text!r}, write a number"
        raise ScenarioError(problem, file="EMU_RAY_CPUS")
    return cpus
