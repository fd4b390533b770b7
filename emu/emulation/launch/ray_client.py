"""A program: reserve hosts of a Ray cluster, and start an agent on each.

`emu.emulation.launch.ray_cluster` says at standard input what to reserve, a line of
JSON; the answer at standard output says where that is. The second line has the token
and what agents get. All ends with this process: Ray takes back what its clients hold.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from emu.host.interruption import die_with_parent
from emu.host.this_host import module_command

# Ray keeps what an actor is made with, sends the rest in clear, and logs much. So the
# token goes to an actor that runs, encrypted to a key that it has drawn.
_LINES = 1000  # of what an agent and its processes print, the last
ROOM = 10.0  # wall seconds in which others may give back what they hold
_LEAVE = 2.0  # wall seconds that the other agents have to end after the first


def _padding() -> padding.OAEP:
    return padding.OAEP(
        mgf=padding.MGF1(hashes.SHA256()),
        algorithm=hashes.SHA256(),
        label=None,
    )


class Host:
    """The actor of a host: runs its agent."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def public_key(self) -> bytes:
        """Return the key that the token is to be encrypted with."""
        public = self._key.public_key()
        return public.public_bytes(
            encoding=serialization.Encoding.DER,
            format=serialization.PublicFormat.SubjectPublicKeyInfo,
        )

    def run(self, sealed: bytes, arguments: list[str]) -> tuple[int, str]:
        """Run the agent to its end; return its exit status and what was printed."""
        token = self._key.decrypt(sealed, _padding())
        agent = subprocess.Popen(
            module_command("emu.emulation.launch", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "EMU_TOKEN": token.decode()},
            text=True,
            errors="replace",
        )
        lines = deque(agent.stdout or (), maxlen=_LINES)
        return agent.wait(), "".join(lines)


def seal(token: str, key: bytes) -> bytes:
    """Return the token, encrypted to an actor's key; raises TypeError if it is none."""
    public = serialization.load_der_public_key(key)
    if not isinstance(public, rsa.RSAPublicKey):
        raise TypeError("an actor has sent another kind of key")
    return public.encrypt(token.encode(), _padding())


def reserve(ray: Any, bundles: list[dict[str, float]]) -> dict[str, Any]:
    """Return on which hosts the bundles are, or why they are on none."""
    group = ray.util.placement_group(bundles, strategy="SPREAD")
    deadline = time.monotonic() + ROOM
    while True:
        table = ray.util.placement_group_table(group)
        nodes = ray.nodes()
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in nodes}
        if table["state"] == "CREATED":
            node_of_bundle = table["bundles_to_node_id"]
            bundle_numbers = range(len(node_of_bundle))
            hosts = [addresses[node_of_bundle[number]] for number in bundle_numbers]
            return {"group": group, "hosts": hosts}

        never_fits = table["stats"]["scheduling_state"] == "INFEASIBLE"
        if never_fits or time.monotonic() > deadline:
            return _explain_lack(ray, never_fits=never_fits)
        time.sleep(0.05)


def _explain_lack(ray: Any, *, never_fits: bool) -> dict[str, Any]:
    """Return why no hosts hold the bundles, what all hosts have, and what is free."""
    lack = "can never hold" if never_fits else f"had no room for {ROOM:g} s for"
    cores = []
    for node in ray.nodes():
        if node["Alive"]:
            count = node["Resources"].get("CPU", 0.0)
            cores.append((node["NodeManagerAddress"], {"CPU": count}))
    return {
        "full": f"{lack} these machines",
        "has": cores,
        "free": ray.available_resources().get("CPU", 0.0),
    }


def serve(ray: Any, placed: dict[str, Any], order: dict[str, Any]) -> int:
    """Run an agent on each host until the first has ended; return its exit status."""
    hosts = placed["hosts"]
    make_strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    actors = {}
    for host in sorted(set(hosts)):
        strategy = make_strategy(placed["group"], hosts.index(host))
        # The bundles have the cores: an actor takes none beside them.
        actor = ray.remote(Host).options(num_cpus=0, scheduling_strategy=strategy)
        actors[host] = actor.remote()

    runs = {}
    for host, actor in actors.items():
        key = ray.get(actor.public_key.remote())
        token = seal(order["token"], key)
        arguments = [*order["arguments"], "--name", host]
        run = actor.run.remote(token, arguments)
        runs[run] = host

    ray.wait(list(runs), num_returns=1)
    # The end of one ends the run: the others get a moment to say how it was for them.
    ended_runs, _ = ray.wait(list(runs), num_returns=len(runs), timeout=_LEAVE)

    status = 0
    for run in ended_runs:
        try:
            code, lines = ray.get(run)
        except ray.exceptions.RayError as error:
            code = 1
            lines = f"{error}\n"
        _say(f"{lines}the agent on {runs[run]} ended with status {code}")
        status = status or code
    return status


def connect(address: str) -> Any:
    """Return the module of Ray, once it is a client of the cluster."""
    ray = importlib.import_module("ray")
    importlib.import_module("ray.util.scheduling_strategies")
    ray.init(address, log_to_driver=False, logging_level="ERROR")
    return ray


def main() -> int:
    """Reserve, answer, serve; return the exit status."""
    die_with_parent()
    request = json.loads(sys.stdin.readline())
    ray: Any = None
    directory = Path.cwd()
    os.chdir("/")  # workers of Ray import from where their driver is
    try:
        ray = connect(request["address"])
        placement = reserve(ray, request["bundles"])
    except Exception as error:  # noqa: BLE001 -- whatever Ray raises is one line
        placement = {"error": " ".join(str(error).split())}
    answer = {key: placement[key] for key in placement.keys() - {"group"}}
    _say(json.dumps(answer))

    order = sys.stdin.readline()
    if not order:
        return 0
    options = json.loads(order)
    log_path = directory / options["log"]
    with log_path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return serve(ray, placement, options)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 -- its parent, then its log


if __name__ == "__main__":
    sys.exit(main())
