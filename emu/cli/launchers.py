"""Which launcher the options of ``emu run`` ask for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.errors import ScenarioError
from emu.experiment.run_experiment import emulation_settings
from emu.launch import (
    ExternalLauncher,
    LocalLauncher,
    RayLauncher,
    SshLauncher,
    address_towards,
    bundles_of,
    read_hosts_file,
)

if TYPE_CHECKING:
    from pathlib import Path

    from emu.coordinator import EmulationSettings
    from emu.launch import Launcher
    from emu.scenario import Experiment


@dataclass(frozen=True)
class Hosts:
    """What the options say of hosts.

    Raises
    ------
    ScenarioError
        When two ways are asked for, or the hosts cannot be read.
    """

    agents: int
    file: Path | None
    ssh: str
    agent_command: str
    ray: str
    ray_cpus: float

    def __post_init__(self) -> None:
        if self.file is None and (self.ssh != "ssh" or self.agent_command):
            raise ScenarioError("says how to start agents on --hosts", file="--ssh")
        if not self.ray and self.ray_cpus != 1:
            raise ScenarioError("says what a process takes of --ray", file="--ray-cpus")
        if bool(self.agents) + (self.file is not None) + bool(self.ray) > 1:
            problem = "waits for agents that others start, --hosts and --ray start them"
            raise ScenarioError(f"{problem}: state one of the three", file="--agents")
        if self.file is not None:
            read_hosts_file(self.file)

    def launcher(self, experiment: Experiment) -> Launcher:
        """Return what starts the agents.

        Raises
        ------
        RunError
            When the Ray cluster has no room.
        """
        if self.ray:
            stated = experiment.scenario.emulation.hosts
            bundles = bundles_of(experiment.problem, self.ray_cpus, stated)
            return RayLauncher(self.ray, bundles)
        if self.file is not None:
            hosts = read_hosts_file(self.file)
            return SshLauncher(hosts, ssh=self.ssh, agent=self.agent_command)
        return ExternalLauncher(self.agents) if self.agents else LocalLauncher()

    def settings(
        self,
        experiment: Experiment,
        at: tuple[str, int] | None,
        allow: tuple[str, ...],
    ) -> EmulationSettings:
        """Return how to emulate on these hosts, which are reserved from now on.

        Parameters
        ----------
        at
            Where to listen; None is the way to the hosts.

        Raises
        ------
        RunError
            When the Ray cluster has no room, or there is no way to the hosts.
        """
        launcher = self.launcher(experiment)
        started = self.file is not None or self.ray
        way = "127.0.0.1"
        if started and at is None:
            way = address_towards(launcher.hosts[0])
        host, port = at or (way, 0)
        stated = {}
        if isinstance(launcher, RayLauncher):
            stated["host_of"] = launcher.host_of
        return emulation_settings(
            experiment.scenario,
            launcher=launcher,
            listen=host,
            port=port,
            token=os.environ.get("EMU_TOKEN", "") if self.agents else "",
            allow=allow,
            **stated,
        )
