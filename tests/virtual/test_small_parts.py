"""Parts of a virtual run by themselves: calls in words, output, exits and threads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import RunError, ScenarioError
from emu.scenario.scenario_file import load_lab
from emu.virtual import message_costs, stall_watch
from emu.virtual import rank_exits as exits
from emu.virtual.call_group import CallGroup
from emu.virtual.calls import Call, Mismatch, check_alike, script_of
from emu.virtual.cluster_server import routes_between
from emu.virtual.gloo_operations import Receive, Send
from emu.virtual.gloo_transport import MessageNetwork, write_steps
from emu.virtual.launch import Node, plan_ranks
from emu.virtual.run_virtual import (
    Settings,
    _describe_messages,
    _describe_ranks,
    describe_steps,
    find_shared_cores,
)
from emu.virtual.transports import Transport, WrittenLane, _list_messages
from emu.virtual.virtual_time import VirtualTime


def test_a_call_is_told_with_all_that_it_states() -> None:
    figures = {"size": 1200, "dtype": "int8", "peer": 3, "tag": 7, "root": 0}
    sends = Call("send", figures, "a.py:4")
    assert sends.describe() == (
        "send of 1,200 bytes (int8) to member 3 with tag 7 with root 0 at a.py:4"
    )
    takes = Call("recv", {"peer": None, "tag": 1}, "a.py:5")
    assert takes.describe() == "recv from member None with tag 1 at a.py:5"
    assert Call("barrier", {}, "a.py:6").describe() == "barrier at a.py:6"


def posts_of(call: Call, member: int, ranks: int) -> list[tuple[str, Any, int]]:
    """Return what a member posts in a call: kinds, peers and sizes."""
    script = script_of(call, member, ranks)
    kinds = {Send: "send", Receive: "receive"}
    found = []
    for kind, peer, size in write_steps(script).rows.tolist():
        if kind < 2:  # no wait
            found.append(([*kinds.values()][kind], peer, size))
    return found


def test_each_call_has_its_script() -> None:
    """A message has one post, also of a group of one; other calls of one have none."""
    message = {"size": 12, "peer": 2, "tag": 0}
    for ranks in (1, 3):
        assert posts_of(Call("send", message, ""), 0, ranks) == [("send", 2, 12)]
        for kind in ("recv", "recv_anysource"):
            assert posts_of(Call(kind, message, ""), 0, ranks) == [("receive", 2, 12)]
    moves = {"size": 12, "root": 1}
    assert posts_of(Call("broadcast", moves, ""), 0, 1) == []
    assert posts_of(Call("broadcast", {"size": 12}, ""), 1, 2) == [("receive", 0, 12)]
    assert posts_of(Call("broadcast", moves, ""), 1, 2) == [("send", 0, 12)]
    assert posts_of(Call("gather", moves, ""), 1, 3) == [
        ("receive", 0, 12),
        ("receive", 2, 12),
    ]
    assert posts_of(Call("scatter", moves, ""), 0, 3) == [("receive", 1, 12)]
    barrier = posts_of(Call("barrier", {"size": 9}, ""), 0, 2)
    assert barrier == [("receive", 1, 0), ("send", 1, 0)]
    exchange = {"given": [0, 5], "taken": [0, 7]}
    assert posts_of(Call("alltoall", exchange, ""), 0, 2) == [
        ("send", 1, 5),
        ("receive", 1, 7),
    ]
    with pytest.raises(KeyError, match="magic"):
        script_of(Call("magic", {}, ""), 0, 2)
    # A list is summed part by part, of 8 and 400 bytes.
    parts = {"size": 408, "element": 4, "parts": [8, 400]}
    sent = [
        size
        for kind, _, size in posts_of(Call("reduce_scatter_list", parts, ""), 0, 2)
        if kind == "send"
    ]
    assert sent == [4, 4, 100, 100, 100, 100]
    whole = {"size": 408, "element": 4}
    sent = [
        size
        for kind, _, size in posts_of(Call("reduce_scatter", whole, ""), 0, 2)
        if kind == "send"
    ]
    assert sum(sent) == 408


def test_an_exchange_is_compared_with_every_other_member() -> None:
    """The first agrees, the second expects more than it gets."""

    def call(given: list[int], taken: list[int]) -> Call:
        return Call("alltoall", {"given": given, "taken": taken}, "")

    first, second = call([0, 1, 2], [0, 3, 4]), call([3, 0, 5], [1, 0, 6])
    check_alike(second, 1, {0: first})
    third = call([4, 6, 0], [2, 9, 0])
    with pytest.raises(Mismatch, match="member 1 alltoall"):
        check_alike(third, 2, {0: first, 1: second})
    check_alike(call([4, 6, 0], [2, 5, 0]), 2, {0: first, 1: second})
    # Of others the first stands for all.
    check_alike(Call("barrier", {}, ""), 2, {0: Call("barrier", {}, "")})


@pytest.mark.parametrize(
    ("kind", "member", "given", "taken"),
    [
        ("gather", 1, [0, 0, 0], [8, 8, 8]),
        ("gather", 0, [0, 8, 0], [0, 0, 0]),
        ("scatter", 1, [8, 8, 8], [0, 0, 0]),
        ("scatter", 2, [0, 0, 0], [0, 8, 0]),
    ],
)
def test_roots_take_or_give_what_each_other_member_has(
    kind: str, member: int, given: list[int], taken: list[int]
) -> None:
    """The second of three members is the root."""
    call = Call(kind, {"size": 8, "root": 1}, "")
    assert _list_messages(call, member, 3) == (given, taken)


def test_transports_tell_whose_messages_they_have() -> None:
    ring = Transport(("ring",))
    both = Transport(("tree", "ring"))
    assert Transport().describe() == "gloo's"
    assert both.describe() == "NCCL's tree, ring"
    assert (Transport().workers, ring.workers) == (2, 1)
    assert (Transport().wire.is_offloaded, ring.wire.is_offloaded) == (False, True)
    for kind in ("send", "recv"):
        ring.check(Call(kind, {"size": 1}, ""))
    # Equal parts of a list are one size, and none is none.
    for parts in ((), (4, 4)):
        ring.check(Call("reduce_scatter_list", {"parts": parts}, ""))
    Transport(("tree",)).check(Call("alltoall", {}, ""))
    assert both._algorithm(Call("broadcast", {}, "")) == "ring"
    assert both._algorithm(Call("allreduce", {}, "")) == "tree"
    assert both._algorithm(Call("gather", {}, "")) == ""
    empty = script_of(Call("barrier", {}, ""), 0, 1)
    lane = WrittenLane(write_steps(empty), 2)
    assert lane.slot(5) == 5 + (2 << 48)
    tree = Transport(("tree",)).lanes(Call("barrier", {}, ""), 0, 4)
    assert {lane.channel for lane in tree} == {0, 1}
    # A barrier sums a word, of which each of three members sends a third on.
    (lane,) = ring.lanes(Call("barrier", {}, ""), 0, 2)
    assert lane.steps.rows[:, 2].max() == 4


def test_a_rank_s_delay_is_of_its_turn() -> None:
    """Since 2 s, when messages had taken 0.5 s, they took 0.25 of the 3 s passed."""
    network: Any = SimpleNamespace(now=5.0)
    time = VirtualTime(network, 1, 1, lambda _: 0.75)
    assert time.ranks[0].clock == 0.0
    time.ranks[0].began = 2.0
    time.ranks[0].message_cpu = 0.5
    assert time.delay(0) == 0.25
    time.ranks[0].message_cpu = -9.0
    assert time.delay(0) == pytest.approx(2.0)  # two thirds of 3 s at most


def test_an_array_of_the_core_grows_by_what_is_asked_for() -> None:
    """Pools are as large as the frames of all posts, and their entries count on."""
    network = MessageNetwork(np.array([1.0]), 3)
    room = network._room
    assert network._extend("moved", "double", 2) == 3
    assert network._extend("moved", "double", 1) == 5
    network._extend_pools(5)
    entries = np.frombuffer(network._arrays["frames.entry"], np.int64)
    assert entries.tolist() == [*range(room + 5)]
    assert network._room == room + 5
    assert len(network._arrays["coming"]) > len(network._arrays["done"])


def test_exits_are_noted_by_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits.note_exit(tmp_path, 0, 0)
    exits.note_exit(tmp_path, 1, 3)
    exits.note_exit(tmp_path, 2, -9)
    exits.note_exit(tmp_path, 3, -40)
    found = [exits.describe_exit(tmp_path, rank) for rank in range(4)]
    assert found == [
        "with exit status 0",
        "with exit status 3",
        "by SIGKILL",
        "by signal 40",
    ]
    monkeypatch.setattr(exits, "_PATIENCE", 0.0)
    assert exits.describe_exit(tmp_path, 4) == ""


def test_steps_tell_the_first_apart() -> None:
    """One step alone is both the first and the median."""
    steps = describe_steps([1.0, 8.0, 10.0, 15.0, 19.0])
    assert steps == {
        "count": 4,
        "first": 7.0,
        "median": 4.0,
        "least": 2.0,
        "most": 5.0,
        "seconds": [7.0, 2.0, 5.0, 4.0],
    }
    (alone,) = describe_steps([1.0, 8.0])["seconds"]
    assert alone == describe_steps([1.0, 8.0])["median"] == 7.0


def test_messages_are_told_by_backend() -> None:
    groups: Any = {
        "a": CallGroup([0], "gloo"),
        "b": CallGroup([0], "nccl", Transport(("ring",))),
    }
    asked = Settings(1, algorithms=("ring",))
    assert _describe_messages(groups, asked) == {
        "gloo": "gloo's",
        "nccl": "NCCL's ring",
    }
    del groups["b"]
    assert _describe_messages(groups, Settings(1)) == {"gloo": "gloo's"}
    with pytest.raises(ScenarioError, match="groups of the program have gloo: "):
        _describe_messages(groups, asked)
    with pytest.raises(ScenarioError, match="made no process group"):
        _describe_messages({}, asked)


def test_ranks_share_the_cores_of_their_machine(tmp_path: Path) -> None:
    """Two ranks on three cores have one core each, and one rank alone has more."""
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "cluster:\n  machines:\n    - {name: m, count: 2, nic: 1 Gbit/s, cpu: 3}\n"
    )
    lab = load_lab(file)
    assert find_shared_cores(lab, [0, 1, 0], threads=1) == [True, False, True]
    assert find_shared_cores(lab, [0, 1, 0], threads=2) == [False] * 3


def test_what_starts_a_rank_names_its_log(tmp_path: Path) -> None:
    nodes = [Node(2, ("a.py", "-x"), 2, {"A": "1"}), Node(0, ("-m", "b"))]
    plans = plan_ranks(nodes, threads=3)
    directory: Any = SimpleNamespace(path=tmp_path)
    ranks = _describe_ranks(plans, directory)
    assert [rank["command"] for rank in ranks] == [["a.py", "-x"]] * 2 + [["-m", "b"]]
    assert [Path(rank["log"]).name for rank in ranks] == [
        f"rank{n}.log" for n in range(3)
    ]
    assert [plan.machine for plan in plans] == [2, 2, 0]
    names = (
        "RANK LOCAL_RANK GROUP_RANK ROLE_RANK WORLD_SIZE LOCAL_WORLD_SIZE "
        "GROUP_WORLD_SIZE ROLE_WORLD_SIZE OMP_NUM_THREADS"
    )
    found = [[plan.environment[name] for name in names.split()] for plan in plans]
    assert found == [
        ["0", "0", "0", "0", "3", "2", "2", "3", "3"],
        ["1", "1", "0", "1", "3", "2", "2", "3", "3"],
        ["2", "0", "1", "2", "3", "1", "2", "3", "3"],
    ]
    fixed = ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")
    assert {plan.environment[name] for plan in plans for name in fixed} == {"0"}
    assert [plan.environment.get("A") for plan in plans] == ["1", "1", None]


@pytest.mark.parametrize(
    ("stderr", "words"), [("", "it ended without a word"), ("a\nb", "b")]
)
def test_costs_that_cannot_be_measured_say_why(
    stderr: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = SimpleNamespace(returncode=1, stderr=stderr, stdout="")
    process = SimpleNamespace(run=lambda *_, **__: outcome)
    monkeypatch.setattr(message_costs, "subprocess", process)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RunError, match=f"measured: {words}; --free"):
        message_costs.costs_of_host()


def test_a_way_has_the_latencies_of_its_links_and_who_takes_its_frames() -> None:
    """Members 0 and 1 are on machines 4 and 5, and need 1 and 2 ms for a frame."""

    class Links(dict[int, Any]):
        def route(self, source: int, destination: int) -> tuple[int, ...]:
            return (source, destination)

    links: Any = Links(
        {4: SimpleNamespace(latency=0.5), 5: SimpleNamespace(latency=0.25)}
    )
    route = routes_between(links, [4, 5], [0.001, 0.002])
    assert route(0, 1) == ((4, 5), 0.752)
    assert route(1, 0) == ((5, 4), 0.751)


@pytest.mark.parametrize(("ranks", "roots"), [(4, (0, 3)), (6, (0, 5)), (5, (0, 1))])
def test_the_second_tree_is_mirrored_or_shifted(
    ranks: int, roots: tuple[int, int]
) -> None:
    """A root has one lane of its tree, where all others have one up and one down."""
    transport = Transport(("tree",))
    call = Call("allreduce", {"size": 4096}, "")
    for channel, root in enumerate(roots):
        counts = []
        for rank in range(ranks):
            lanes = transport.lanes(call, rank, ranks)
            counts.append(sum(lane.channel == channel for lane in lanes))
        assert counts == [1 if rank == root else 2 for rank in range(ranks)]


def test_ends_of_a_chain_only_give_or_take() -> None:
    """Four ranks from 2 on: 2 gives, 3 and 0 hand on, 1 takes."""
    transport = Transport(("ring",))
    call = Call("broadcast", {"size": 8, "root": 2}, "")
    kinds = {0: "gives", 1: "takes"}
    doings = []
    for rank in range(4):
        (lane,) = transport.lanes(call, rank, 4)
        rows = lane.steps.rows.tolist()
        doings.append([(kinds[kind], peer) for kind, peer, _ in rows if kind in kinds])
    assert doings == [
        [("takes", 3), ("gives", 1)],
        [("takes", 0)],
        [("gives", 3)],
        [("takes", 2), ("gives", 0)],
    ]


@pytest.mark.parametrize("cores", [1, 2])
def test_a_clock_of_several_cores_notes_the_ends_of_threads(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="ranks need torch")
    from emu.virtual.rank.rank_clock import RankClock
    from emu.virtual.rank.thread_cpu import ThreadCpu

    noted: list[int] = []
    monkeypatch.setattr(ThreadCpu, "note_ends", lambda _: noted.append(1))
    RankClock(1.0, None, cores)
    assert len(noted) == cores - 1


def test_costs_of_another_version_are_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of this version are kept, whatever they are."""
    texts = [json.dumps({"per_byte": 2.0, "per_frame": 3.0})]
    outcome = SimpleNamespace(returncode=0, stdout=texts[0])
    calls: list[int] = []

    def run(*_: Any, **__: Any) -> Any:
        calls.append(1)
        return outcome

    monkeypatch.setattr(message_costs, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(message_costs, "version", lambda _: "9.9")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    costs = message_costs.costs_of_host()
    assert (costs.per_byte, costs.per_frame, costs.torch) == (2.0, 3.0, "9.9")
    assert message_costs.costs_of_host() == costs
    assert len(calls) == 1
    monkeypatch.setattr(message_costs, "version", lambda _: "9.10")
    assert message_costs.costs_of_host().torch == "9.10"
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("operation", "dtype", "problem"),
    [
        ("AVG", "int8", "result type Float can't be cast"),
        ("MAX", "complex64", r"ReduceOp\.MAX is not of complex numbers"),
    ],
)
def test_a_reduction_that_a_type_has_not_is_refused(
    operation: str, dtype: str, problem: str
) -> None:
    torch = pytest.importorskip("torch", reason="ranks need torch")
    from emu.virtual.rank.sums import check_reduction

    with pytest.raises(RuntimeError, match=problem):
        check_reduction(getattr(torch, dtype), operation)
    check_reduction(getattr(torch, dtype), "SUM")
    check_reduction(torch.float32, operation)


def test_a_stall_is_of_a_rank_that_used_nothing_since_the_last_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run ends when all ranks sleep for 60 s; a rank that runs begins anew."""
    uses = {7: ("S", "1"), 8: ("S", "1")}
    now = [100.0]
    monkeypatch.setattr(stall_watch, "_cpu_use", uses.__getitem__)
    monkeypatch.setattr(stall_watch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = stall_watch.StallWatch({0: 7, 1: 8})
    assert watch.look([0, 1]) == set()
    assert watch.look([0, 1]) == {0, 1}
    uses[8] = ("S", "2")
    now[0] = 150.0
    assert watch.look([0, 1]) == {0}
    now[0] = 210.0
    assert watch.look([0, 1]) == {0, 1}
    now[0] = 210.5
    with pytest.raises(RunError, match="rank 0, 1 waited 60 s"):
        watch.look([0, 1])
