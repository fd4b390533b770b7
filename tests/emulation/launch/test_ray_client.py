"""The client of Ray beside a stand-in for Ray, which answers as a test says."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from emu.emulation.launch import ray_client, ray_cluster
from emu.emulation.launch.ray_client import ROOM, Host, main, reserve, seal, serve
from emu.emulation.launch.ray_cluster import RayLauncher, bundles_of
from emu.errors import RunError
from emu.problem import Cluster, Job, Machine, Placement, Problem, Task


class RayError(Exception):
    """Error that Ray raises where an actor has died."""


class Ray:
    """Two hosts, the second of which is dead; a group has the states of a list."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, *states: tuple[str, str]) -> None:
        self.states = iter(states)
        self.asked: list[Any] = []
        self.made: list[Any] = []
        self.waits: list[Any] = []
        self.outcomes: dict[str, Any] = {}
        self.ends: set[str] = set()
        self.placed = {0: "n2", 1: "n1", 2: "n2"}
        scheduling = SimpleNamespace(
            PlacementGroupSchedulingStrategy=lambda group, bundle: (group, bundle)
        )
        self.util = SimpleNamespace(
            placement_group=self._reserve,
            placement_group_table=self._look,
            scheduling_strategies=scheduling,
        )

    def _reserve(self, bundles: Any, strategy: str) -> str:
        self.asked.append((bundles, strategy))
        return "group"

    def _look(self, group: str) -> dict[str, Any]:
        assert group == "group"
        state, scheduling = next(self.states)
        return {
            "state": state,
            "stats": {"scheduling_state": scheduling},
            "bundles_to_node_id": self.placed,
        }

    def nodes(self) -> list[dict[str, Any]]:
        """Return what Ray says of its hosts."""
        rows = [("n1", True, {"CPU": 4.0}), ("n2", False, {"CPU": 9.0})]
        rows += [("n3", True, {"GPU": 1.0})]
        return [
            {
                "NodeID": name,
                "NodeManagerAddress": f"10.0.0.{name[1]}",
                "Alive": is_alive,
                "Resources": resources,
            }
            for name, is_alive, resources in rows
        ]

    def available_resources(self) -> dict[str, float]:
        """Return the resources that no agent holds."""
        return {"CPU": 1.5, "memory": 9.0}

    def remote(self, kind: type) -> Any:
        """Return what makes actors of a kind, each with its options."""

        def options(**stated: Any) -> Any:
            def make() -> Any:
                host = kind()
                self.made.append(stated)
                ask_key = SimpleNamespace(remote=host.public_key)
                return SimpleNamespace(public_key=ask_key, run=self._runs(host))

            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=options)

    def _runs(self, host: Host) -> Any:
        def run(sealed: bytes, arguments: list[str]) -> str:
            name = f"run on {arguments[-1]}"
            if name in self.ends:
                self.outcomes[name] = host.run(sealed, arguments)
            return name

        return SimpleNamespace(remote=run)

    def get(self, promised: Any) -> Any:
        """Return what was promised, or raise it."""
        outcome = self.outcomes.get(promised, promised)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def wait(self, runs: list[str], **options: Any) -> tuple[list[str], list[str]]:
        """Return the runs that have outcomes, and the others."""
        self.waits.append((runs, options))
        return [run for run in runs if run in self.outcomes], []


BUNDLES = [{"CPU": 1.0}, {"CPU": 2.0}, {"CPU": 3.0}]


def test_bundles_are_on_the_hosts_of_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray has room after a moment: its first word is that it has yet to look."""
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", naps.append)
    ray = Ray(("PENDING", "PENDING"), ("CREATED", "FINISHED"))

    found = reserve(ray, BUNDLES)

    assert found == {"group": "group", "hosts": ["10.0.0.2", "10.0.0.1", "10.0.0.2"]}
    assert ray.asked == [(BUNDLES, "SPREAD")]
    assert naps == [0.05]


def test_what_can_never_be_held_is_refused_at_once() -> None:
    found = reserve(Ray(("PENDING", "INFEASIBLE")), BUNDLES)

    assert found == {
        "full": "can never hold these machines",
        "has": [("10.0.0.1", {"CPU": 4.0}), ("10.0.0.3", {"CPU": 0.0})],
        "free": 1.5,
    }


def test_what_has_no_room_is_refused_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looks at 0 and 10 s are not later than 10 s from the first."""
    times = iter([100.0, 100.0, 100.0 + ROOM, 100.5 + ROOM])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", naps.append)

    found = reserve(Ray(*[("PENDING", "PENDING")] * 3), BUNDLES)

    assert found["full"] == "had no room for 10 s for these machines"
    assert len(naps) == 2


ORDER = {"token": "secret", "arguments": ["10.0.0.9:5", "--patience", "10"]}
PLACED = {"group": "group", "hosts": ["b", "a", "b"]}


class Agents:
    """Agents that end at once, each with a status and lines that it prints."""

    def __init__(self, **ends: tuple[int, list[str]]) -> None:
        self.ends = ends
        self.tokens: list[str] = []
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **options: Any) -> Any:
        """Return the process of an agent."""
        status, lines = self.ends[command[-1]]
        self.tokens.append(options["env"]["EMU_TOKEN"])
        self.commands.append(command)
        return SimpleNamespace(stdout=iter(lines), wait=lambda: status)


def test_each_host_has_an_agent_where_its_first_bundle_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Statuses of agents are printed, and that of one that fails is the client's."""
    many = [f"{number}\n" for number in range(1002)]
    agents = Agents(a=(0, many), b=(3, ["odd\n"]))
    monkeypatch.setattr(subprocess, "Popen", agents)
    ray = Ray()
    ray.ends = {"run on a", "run on b"}

    assert serve(ray, PLACED, ORDER) == 3

    assert ray.made == [
        {"num_cpus": 0, "scheduling_strategy": ("group", 1)},
        {"num_cpus": 0, "scheduling_strategy": ("group", 0)},
    ]
    runs = ["run on a", "run on b"]
    assert ray.waits == [
        (runs, {"num_returns": 1}),
        (runs, {"num_returns": 2, "timeout": 2.0}),
    ]
    assert agents.tokens == ["secret", "secret"]
    for command, host in zip(agents.commands, "ab", strict=True):
        assert command[-6:] == [
            *("emu.emulation.launch", "10.0.0.9:5", "--patience", "10"),
            *("--name", host),
        ]
    # Of what an agent prints the last thousand lines are kept.
    assert capsys.readouterr().out.splitlines() == [
        *(line.strip() for line in many[2:]),
        "the agent on a ended with status 0",
        "odd",
        "the agent on b ended with status 3",
    ]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ({"run on a": (2, ""), "run on b": (3, "")}, 2),
        ({"run on a": (0, "")}, 0),
        ({"run on b": RayError("the actor died")}, 1),
    ],
)
def test_the_first_failure_is_the_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcomes: dict[str, Any],
    status: int,
) -> None:
    """Agents that have ended in time have theirs; an actor that Ray lost has failed."""
    monkeypatch.setattr(ray_client, "seal", lambda *_: b"")
    monkeypatch.setattr(ray_client, "Host", SmallHost)
    ray = Ray()
    ray.outcomes = outcomes
    assert serve(ray, PLACED, ORDER) == status
    printed = capsys.readouterr().out
    assert printed.count("ended with status") == len(outcomes)
    assert ("the actor died\n" in printed) == (status == 1)


class SmallHost:
    """An actor without a key, which takes a tenth of a second to be found."""

    def public_key(self) -> bytes:
        """Return none."""
        return b""


def test_only_keys_of_rsa_take_a_token() -> None:
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    der = serialization.Encoding.DER
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    with pytest.raises(TypeError, match="another kind of key"):
        seal("secret", key.public_bytes(encoding=der, format=form))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Give the lines that the client hears, in a folder that it leaves."""
    lines: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_client, "die_with_parent", lambda: None)
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(readline=lambda: lines.pop(0) if lines else "")
    )
    yield lines
    assert Path.cwd() == Path("/")


def test_a_client_says_where_the_machines_are_and_ends_with_its_parent(
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    addresses: list[str] = []

    def connect(address: str) -> Ray:
        addresses.append(address)
        return Ray(("CREATED", "FINISHED"))

    monkeypatch.setattr(ray_client, "connect", connect)
    asked.append(json.dumps({"address": "10.0.0.9:6", "bundles": BUNDLES}))

    assert main() == 0

    assert addresses == ["10.0.0.9:6"]
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"hosts": ["10.0.0.2", "10.0.0.1", "10.0.0.2"]}


def test_whatever_ray_raises_is_one_line(
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def connect(_address: str) -> Ray:
        raise ConnectionError("no\n  cluster  here")

    monkeypatch.setattr(ray_client, "connect", connect)
    asked.append(json.dumps({"address": "x", "bundles": BUNDLES}))

    assert main() == 0
    assert json.loads(capsys.readouterr().out) == {"error": "no cluster here"}


class Client:
    """A client of Ray that has answered with a line."""

    def __init__(self, answer: str, end: int | None = None) -> None:
        read_end, write_end = os.pipe()
        with os.fdopen(write_end, "w") as pipe:
            pipe.write(answer)
        self.stdout = os.fdopen(read_end, "rb")
        self.stdin = io.BytesIO()
        self.pid = 1 << 30  # nobody's
        self.returncode = end

    def wait(self) -> int | None:
        """Return how it has ended."""
        return self.returncode


MACHINES = {"m0": {"CPU": 2.0}, "m1": {"CPU": 1.0, "node:a": 0.001}, "m2": {"CPU": 1.0}}


def launcher(
    monkeypatch: pytest.MonkeyPatch, client: Client
) -> tuple[RayLauncher, Mapping[str, Any]]:
    """Return a launcher of a client, and how that was started."""
    options: dict[str, Any] = {}

    def start(_command: list[str], **stated: Any) -> Client:
        options.update(stated)
        return client

    monkeypatch.setenv("EMU_TOKEN", "of another run")
    monkeypatch.setattr(ray_cluster, "find_spec", lambda _: object())
    monkeypatch.setattr(subprocess, "Popen", start)
    return RayLauncher("10.0.0.9:6", MACHINES), options


def test_hosts_are_those_that_ray_has_chosen_for_the_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(json.dumps({"hosts": ["b", "a", "b"]}) + "\n")
    made, options = launcher(monkeypatch, client)

    assert made.host_of == {"m0": "b", "m1": "a", "m2": "b"}
    assert (made.hosts, made.count) == (("a", "b"), 2)
    assert "EMU_TOKEN" not in options["env"]
    assert json.loads(client.stdin.getvalue()) == {
        "address": "10.0.0.9:6",
        "bundles": list(MACHINES.values()),
    }
    client.stdout.close()


FULL = {
    "full": "can never hold these machines",
    "has": [["b", {"CPU": 4.0}], ["a", {"CPU": 0.5}]],
    "free": 2.5,
}


FULL_TEXT = (
    "the Ray cluster at 10.0.0.9:6 can never hold these machines: m0 asks 2 CPU; "
    "m1 asks 1 CPU, 0.001 node:a; m2 asks 1 CPU. Of its hosts b has 4 CPU; a has 0.5 "
    "CPU; 2.5 CPU are free in all. Ask less with EMU_RAY_CPUS"
)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("", "the Ray cluster at 10.0.0.9:6: its client here was killed by SIGKILL"),
        ('{"error": "no cluster"}\n', "the Ray cluster at 10.0.0.9:6: no cluster"),
        (json.dumps(FULL) + "\n", FULL_TEXT),
    ],
)
def test_a_cluster_that_holds_no_machines_is_an_error(
    monkeypatch: pytest.MonkeyPatch, answer: str, problem: str
) -> None:
    client = Client(answer, end=-9)
    with pytest.raises(RunError) as raised:
        launcher(monkeypatch, client)
    assert str(raised.value) == problem
    assert client.stdout.closed
    assert client.stdin.closed


def test_a_cluster_that_does_not_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that is dead: Ray itself tries for ever."""
    monkeypatch.setattr("select.select", lambda *_: ([], [], []))
    with pytest.raises(RunError, match=r"10\.0\.0\.9:6 does not answer within 60 s$"):
        launcher(monkeypatch, Client("{}\n"))


def test_a_machine_takes_a_share_for_every_process_and_one_at_least() -> None:
    """Two tasks of three are on the second machine, which is to be on a host."""
    machines = tuple(Machine(f"m{number}", 1.0, 1.0) for number in range(3))
    job = Job(tuple(Task(f"t{number}", "t") for number in range(3)), (), 1)
    problem = Problem(Cluster(machines), job, Placement((1, 1, 2)))

    assert bundles_of(problem, 0.5, {"m1": "10.0.0.1"}) == {
        "m0": {"CPU": 0.5},
        "m1": {"CPU": 1.0, "node:10.0.0.1": 0.001},
        "m2": {"CPU": 0.5},
    }


def test_what_an_agent_prints_goes_to_the_log_of_the_run(
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Which lies in the folder that the client was started in."""
    ray = Ray(("CREATED", "FINISHED"))
    moved: list[int] = []
    served: list[Any] = []

    def note(*order: Any) -> int:
        served.extend(order)
        return 3

    monkeypatch.setattr(ray_client, "connect", lambda _: ray)
    monkeypatch.setattr(ray_client, "serve", note)
    monkeypatch.setattr("os.dup2", lambda _, number: moved.append(number))
    order = {"token": "secret", "arguments": [], "log": "agents.log"}
    asked += [json.dumps({"address": "x", "bundles": BUNDLES}), json.dumps(order)]

    assert main() == 3
    assert json.loads(capsys.readouterr().out)["hosts"][0] == "10.0.0.2"
    assert served[0] is ray
    assert served[2] == order
    assert moved == [1, 2]
    assert (tmp_path / "agents.log").exists()


async def test_the_end_of_the_client_is_waited_for_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(json.dumps({"hosts": ["b", "a", "b"]}) + "\n", end=-15)
    made, _ = launcher(monkeypatch, client)
    polls = iter([None, None, -15])
    monkeypatch.setattr(client, "poll", lambda: next(polls, -15), raising=False)
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    assert await made.wait_for_end() == "the client of Ray was killed by SIGTERM"
    assert naps == [0.1, 0.1]
    await made.start(("10.0.0.9", 5), "secret", Path("log"), ["a:B"])
    said = client.stdin.getvalue().decode().splitlines()
    assert json.loads(said[1]) == {
        "token": "secret",
        "arguments": ["10.0.0.9:5", "--patience", "10", "--allow=a:B"],
        "log": "log",
    }
    await made.aclose(1.0)
    assert client.stdout.closed
