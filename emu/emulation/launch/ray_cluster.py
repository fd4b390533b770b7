"""The launcher of hosts that a Ray cluster hands out: the extra ``ray``.

What an emulated machine takes of a host is a bundle of a placement group. So Ray
chooses the hosts, several machines may share one, and none is over two. Ray's client
is a process of its own (`emu.emulation.launch.ray_client`), since its threads and
signal handlers have no place in a coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from typing_extensions import override

from emu.emulation.launch.fork import describe_end
from emu.emulation.launch.launcher import Launcher, agent_arguments
from emu.errors import RunError
from emu.host.this_host import module_command
from emu.names import printable
from emu.problem import Problem

_PATIENCE = 10.0  # wall seconds that an agent may take to reach the coordinator
_ANSWER = 60.0  # wall seconds that Ray may take: it tries a dead cluster for ever
_LOOK = 0.1  # wall seconds between two looks at the client
_ON_IT = 0.001  # of the resource that Ray gives every host under its address


def bundles_of(
    problem: Problem,
    cpus: float,
    stated: Mapping[str, str],
) -> dict[str, dict[str, float]]:
    """Return the share of a host that every emulated machine takes, as Ray counts."""
    job = problem.job
    machine_of = problem.placement.machine_of
    count = Counter(machine_of[members[0]] for members in job.processes.values())
    bundles = {}
    for position, machine in enumerate(problem.cluster.machines):
        bundles[machine.name] = {"CPU": cpus * max(count[position], 1)}
        if machine.name in stated:
            bundles[machine.name][f"node:{stated[machine.name]}"] = _ON_IT
    return bundles


class RayLauncher(Launcher):
    """Starts an agent on each host on which Ray has put emulated machines.

    Made once Ray has room for all of them, and holds it until `aclose`.

    Raises RunError when ray is not installed, the cluster cannot be reached, or it has
    no room.
    """

    def __init__(
        self,
        address: str,
        bundles: Mapping[str, Mapping[str, float]],
    ) -> None:
        if find_spec("ray") is None:
            problem = "--ray needs ray, which is not installed here"
            raise RunError(f"{problem}: pip install 'dgtp-emulator[ray]'")
        # The token of another run is not for workers of Ray.
        environment = dict(os.environ)
        environment.pop("EMU_TOKEN", None)
        self._client = subprocess.Popen(
            module_command("emu.emulation.launch.ray_client"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        try:
            self._say({"address": address, "bundles": list(bundles.values())})
            #: Host of every machine, by the names of both.
            self.host_of = self._place_machines(address, bundles)
        except BaseException:
            self._end()
            raise
        self.hosts = tuple(sorted(set(self.host_of.values())))

    def _say(self, order: Mapping[str, Any]) -> None:
        pipe = self._client.stdin
        if pipe is not None:
            line = json.dumps(order) + "\n"
            pipe.write(line.encode())
            pipe.flush()

    def _place_machines(
        self,
        address: str,
        bundles: Mapping[str, Mapping[str, float]],
    ) -> dict[str, str]:
        """Return on which host Ray has put every machine."""
        cluster = f"the Ray cluster at {printable(address)}"
        answers = self._client.stdout
        readable: list[Any] = []
        if answers is not None:
            readable, _, _ = select.select([answers], [], [], _ANSWER)
        if answers is None or not readable:
            raise RunError(f"{cluster} does not answer within {_ANSWER:g} s")
        line = answers.readline()
        if not line:
            end = describe_end(self._client.wait())
            raise RunError(f"{cluster}: its client here {end}")

        answer = json.loads(line)
        if "error" in answer:
            raise RunError(f"{cluster}: {printable(answer['error'])}")
        if "full" in answer:
            demands = [
                f"{printable(machine)} asks {_join(bundle)}"
                for machine, bundle in bundles.items()
            ]
            supplies = [f"{host} has {_join(cores)}" for host, cores in answer["has"]]
            raise RunError(
                f"{cluster} {answer['full']}: {'; '.join(demands)}. Of its hosts "
                f"{'; '.join(supplies)}; {answer['free']:g} CPU are free in all. Ask "
                "less with EMU_RAY_CPUS"
            )
        return dict(zip(bundles, answer["hosts"], strict=True))

    @override
    async def start(
        self,
        address: tuple[str, int],
        token: str,
        log: Path,
        allow: Collection[str],
    ) -> None:
        """Start the agents; Ray carries the token sealed to each host's actor.

        Raises OSError when Ray's client has gone.
        """
        arguments = agent_arguments(address, _PATIENCE, allow)
        self._say({"token": token, "arguments": arguments, "log": str(log)})

    @override
    async def wait_for_end(self) -> str:
        """Wait until an agent has ended, or Ray's client, and return how, in words."""
        while self._client.poll() is None:  # noqa: ASYNC110 -- no event says so
            await asyncio.sleep(_LOOK)
        return f"the client of Ray {describe_end(self._client.returncode)}"

    @override
    async def aclose(self, grace: float) -> None:
        """Give the hosts back; agents have ``grace`` wall seconds to end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self.wait_for_end()
        self._end()

    def _end(self) -> None:
        """End the client: Ray ends the actors and bundles of a client that is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._client.pid, signal.SIGKILL)
        self._client.wait()
        for pipe in (self._client.stdin, self._client.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _join(amounts: Mapping[str, float]) -> str:
    return ", ".join(
        f"{amount:g} {printable(name)}" for name, amount in amounts.items()
    )
