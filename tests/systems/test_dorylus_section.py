"""Dorylus from its scenario: machines, bytes by hand, what is refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.graph_data.intervals import cut_intervals, interval_counts
from emu.graph_data.sampling import Structure
from emu.prediction.analysis.what_if import Change
from emu.problem.fields.cluster_section import ClusterSection
from emu.scenario import Experiment, load, prepare
from emu.scenario.edits import ScenarioEdits
from emu.scenario.scenario_file import loads
from emu.systems.dorylus.remarks import ages_of_reads, read_lines
from emu.systems.dorylus.sections import SlowLambdasSection
from emu.systems.dorylus.volumes import _rows
from emu.trust.audit import audit
from tests.systems.test_dorylus_job import shape_of

FILE = """\
cluster:
  machines:
    - {name: g, count: 2, nic: 1 Gbit/s}
    - {name: ps, nic: 1 Gbit/s}
job:
  system: dorylus
  dataset: {name: products-like, scale: 0.0008}
  model: {hidden: 8}
  parameter_servers: [ps]
  intervals: 3
  epochs: 2
  times: {gather: 8 ms, apply: 20 ms, scatter: 2 ms}
"""


def _prepared(*changes: str) -> Experiment:
    return prepare(loads(FILE, changes))


TUNED = ("job.lambdas=auto", "job.tuner.period=20 ms", "job.epochs=20")


def _edge(experiment: Experiment, name: str) -> float:
    edge = experiment.problem.job.edge_positions[name]
    return float(experiment.realization.volumes[edge, 0])


@pytest.mark.parametrize(
    ("cpu", "threads"), [("4", 4), ("2.9", 2), ("0.5", 1), ("null", 1)]
)
def test_a_server_has_a_thread_per_core(cpu: str, threads: int) -> None:
    of = f"cluster.machines.g0.cpu={cpu}"
    (g0, *_) = loads(FILE, [of]).to_cluster().machines
    assert g0.slots["threads"] == threads
    (g0, g1, *_) = loads(FILE, [of, "job.threads=3"]).to_cluster().machines
    assert g0.slots["threads"] == g1.slots["threads"] == 3


def test_machines_that_all_serve_have_slots_as_well() -> None:
    """One of them serves parameters, too."""
    machines = "    - {name: ps, nic: 1 Gbit/s}\n"
    servers = ["job.machines=[g0, g1]", "job.parameter_servers=[g1]"]
    cluster = loads(FILE.replace(machines, ""), servers).to_cluster()
    assert [machine.name for machine in cluster.machines[:2]] == ["g0", "g1"]
    assert all(machine.slots["threads"] == 1 for machine in cluster.machines[:2])
    assert cluster.machines[2].name == "lambda0"


@pytest.mark.parametrize(
    ("edits", "idle"),
    [
        ([], []),
        (["job.threads=2"], ["cpu"]),
        (["cluster.machines.g0.gpu=2"], ["gpu"]),
        (["cluster.machines.g0.gpu=2", "job.backend=gpu"], []),
    ],
)
def test_what_becomes_slots_is_not_called_idle(
    edits: list[str], idle: list[str]
) -> None:
    experiment = _prepared("cluster.machines.g0.cpu=4", *edits)
    assert experiment.placing["unclaimed"] == idle
    if "job.backend=gpu" in edits:
        slots = [
            machine.slots.get("gpu") for machine in experiment.problem.cluster.machines
        ]
        assert slots[:2] == [2, 1]


def test_parameter_servers_alone_are_one_error() -> None:
    with pytest.raises(ScenarioError, match="no machine is left for a graph server"):
        loads(FILE, ["cluster.machines=[{name: ps, nic: 10 Gbit/s}]"])


def test_lambdas_stand_behind_the_uplink_of_their_server() -> None:
    scenario = loads(FILE, ["job.lambda_uplink=1 Gbit/s"])
    cluster = scenario.to_cluster()
    names = [machine.name for machine in cluster.machines]
    assert names == ["g0", "g1", "ps", *(f"lambda{i}" for i in range(6))]
    assert cluster.machines[0].slots == {"threads": 1, "lambdas": 3}
    links = {link.name: link.capacity for link in cluster.links}
    assert links["lambdas of g1 up"] == 125e6
    assert links["lambda5 in"] == 100e6
    assert "lambda" not in str(scenario.to_json()["cluster"])
    again = load(scenario, {"job.intervals": 4, "job.lambdas": 2})
    assert len(again.to_cluster().machines) == 3 + 8
    assert again.to_cluster().machines[1].slots == {"threads": 1, "lambdas": 2}
    assert load(scenario) == scenario
    assert load(loads(FILE, ["job.backend=cpu"])).to_cluster().tuners == ()


def test_a_latency_of_lambdas_is_one_of_their_nics() -> None:
    cluster = loads(FILE, ["job.lambda_latency=5 ms"]).to_cluster()
    late = {m.name: (m.latency_in, m.latency_out) for m in cluster.machines}
    assert {late["lambda0"], late["lambda5"]} == {(0.005, 0.005)}
    assert {late["g0"], late["ps"]} == {(0.0, 0.0)}

    def makespan(*edits: str) -> float:
        return _prepared("job.mode=no_pipe", *edits).simulate().makespan

    slower = makespan("job.lambda_latency=5 ms") - makespan()
    # To a lambda and back in each tensor task of two layers, in order, and epoch.
    assert slower == pytest.approx(2 * 0.03)
    with pytest.raises(ScenarioError, match="lambda_latency: backend cpu has no lamb"):
        loads(FILE, ["job.backend=cpu", "job.lambda_latency=5 ms"])
    stated = "cluster.machines[2]={name: lambda, count: 6, nic: 1 Gbit/s}"
    with pytest.raises(
        ScenarioError, match=r"states lambda0: write nic\.latency there"
    ):
        loads(FILE, [stated, "job.lambda_latency=5 ms"])
    with pytest.raises(
        ScenarioError, match="lambda_latency: a time cannot be negative"
    ):
        loads(FILE, ["job.lambda_latency=-5 ms"])


def test_half_the_latency_of_lambdas_is_an_edit() -> None:
    experiment = _prepared(
        "job.lambda_latency=5 ms",
        "cluster.machines.ps.nic={in: 1 Gbit/s, out: 1 Gbit/s, latency: 1 ms}",
    )
    half = replace(
        experiment.problem, cluster=experiment.problem.cluster.with_latencies(0.5)
    )
    change = Change("latency", "", half, experiment.realization, "oes", factor=0.5)
    edit = ScenarioEdits(experiment.scenario).add_edit(change).edit
    assert edit is not None
    again = prepare(load(experiment.scenario, dict(edit)))
    np.testing.assert_allclose(again.problem.latencies, half.latencies, rtol=1e-12)


def test_rates_of_lambdas_are_scaled_for_all_of_them_or_for_none() -> None:
    """Two servers have three lambdas each, whose NICs and uplinks have a key each."""
    scenario = loads(FILE)
    nics = {f"lambda{i} {way}" for i in range(6) for way in ("in", "out")}
    uplinks = {f"lambdas of g{k} {way}" for k in range(2) for way in ("up", "down")}

    def scaled(
        links: set[str], cluster: ClusterSection = scenario.stated_cluster
    ) -> tuple[set[str], set[str]]:
        edit, found = scenario.job.scale_links(cluster, links, lambda _: "1 B/s")
        return {*edit}, found

    assert scaled(nics) == ({"job.lambda_nic"}, nics)
    assert scaled(uplinks | {"g0 in"}) == ({"job.lambda_uplink"}, uplinks)
    both = {"job.lambda_nic", "job.lambda_uplink"}
    assert scaled(nics | uplinks) == (both, nics | uplinks)
    assert scaled(nics - {"lambda5 in"}) == (set(), set())
    # A cluster that states them has their rates itself.
    assert scaled(nics | uplinks, scenario.cluster) == (set(), set())


def _drawn(seed: int) -> tuple[Structure, np.ndarray]:
    rng = np.random.default_rng(seed)
    n = 40
    pairs = rng.integers(n, size=(60, 2))
    both = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    both = both[both[:, 0] != both[:, 1]]
    indptr = np.searchsorted(both[:, 0], np.arange(n + 1)).astype(np.int64)
    return Structure(indptr, both[:, 1].astype(np.int32)), both


@pytest.mark.parametrize("how", ["contiguous", "balanced"])
@pytest.mark.parametrize("seed", range(4))
def test_intervals_against_brute_force(how: Any, seed: int) -> None:
    structure, pairs = _drawn(seed)
    owner = (np.arange(structure.vertices) * 7 % 3).astype(np.int32)
    interval = cut_intervals(structure, owner, 3, 4, how)
    counts = interval_counts(structure, interval, 3, 4, sources=True)
    assert (interval // 4 == owner).all()
    for part in range(3):
        sizes = counts.vertices[4 * part : 4 * part + 4]
        assert sizes.max() - sizes.min() <= 1
    for i, part in itertools.product(range(12), range(3)):
        mine = [p for p in pairs.tolist() if interval[p[0]] == i]
        ghosts = {u for u, v in mine if owner[v] == part != owner[u]}
        assert counts.ghosts[i, part] == len(ghosts)
        assert counts.edges[i] == len(mine)
        sources = {v for _, v in mine if owner[v] == part != i // 4}
        assert counts.sources[i, part] == len(sources)


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("fuse", [False, True])
def test_bytes_by_hand(fuse: bool, remat: bool) -> None:  # noqa: FBT001
    """Specs, 5a, with b = 4, f = (100, 8, 47); an interval has v vertices."""
    found = _prepared(
        f"job.fuse={str(fuse).lower()}",
        f"job.rematerialize={str(remat).lower()}",
    )
    from emu.graph_data import open_for

    dataset = open_for(found.problem.job.settings)
    cut = cut_intervals(dataset.structure, dataset.owner, 2, 3, "contiguous")
    counts = interval_counts(dataset.structure, cut, 2, 3)
    v, b = int(counts.vertices[4]), 4
    f, h, c = 100, 8, dataset.classes
    ghosts = int(counts.ghosts[4, 0])
    last = 3 if not fuse else 2
    expected = {
        "call0_4->av0_4": b * v * f,
        "av0_4->back0_4": (1 if remat else 2) * b * v * h,
        "sc_4->in_4_0": ghosts * (4 + b * h),
        "call1_4->av1_4": b * v * h + (b * v * c if fuse else 0),
        "dsc_4->din_4_0": ghosts * (4 + b * h),
        f"call{last}_4->dav_4": b * v * (f + (1 if remat else 2) * h),
        f"dav_4->back{last}_4": 0,
        "dav_4->wu0": b * f * h,
        "wu1->av1_4": b * h * c,
        "wu0->av0_4": b * f * h,
    }
    if fuse:
        expected |= {"av1_4->back1_4": b * v * h, "av1_4->wu1": b * h * c}
    else:
        expected |= {
            "av1_4->back1_4": b * v * c,
            "call2_4->dav1_4": b * v * (h + (1 if remat else 2) * c),
            "dav1_4->back2_4": b * v * h,
            "dav1_4->wu1": b * h * c,
            "stash1_4->dav1_4": b * h * c,
        }
    if remat:
        expected["stash0_4->dav_4"] = b * f * h
    for name, size in expected.items():
        assert _edge(found, name) == size, name


@pytest.mark.parametrize("parameter_servers", [1, 2])
def test_bytes_of_attention_by_hand(parameter_servers: int) -> None:
    """With b = 4, f = (100, 8, c); v vertices, e edges with v loops."""
    servers = ["[ps]", "[ps, g0]"][parameter_servers - 1]
    found = _prepared(
        "job.model.kind=gat",
        "job.times.edge_apply=15 ms",
        f"job.parameter_servers={servers}",
        "job.machines=[g0, g1]",
    )
    from emu.graph_data import open_for

    dataset = open_for(found.problem.job.settings)
    structure, owner, b = dataset.structure, dataset.owner, 4
    cut = cut_intervals(structure, owner, 2, 3, "contiguous")
    mine = np.flatnonzero(cut == 4)
    around = [
        structure.indices[structure.indptr[u] : structure.indptr[u + 1]] for u in mine
    ]
    v, e = len(mine), sum(map(len, around)) + len(mine)
    sources = {int(u) for ends in around for u in ends if owner[u] == 0}
    ghosts = sum(bool((owner[ends] == 0).any()) for ends in around)
    f, h, c = 100, 8, dataset.classes
    expected = {
        "call0_4->av0_4": b * v * f,
        "av0_4->back0_4": b * v * h,
        "sc0_4->in0_4_0": ghosts * (4 + b * h),
        "call1_4->ae0_4": e * (2 * b * h + 4),
        "ae0_4->back1_4": b * e,
        "call3_4->ae1_4": e * (2 * b * c + 4),
        "call4_4->dae1_4": e * (2 * b * c + 4) + 2 * b * v * c,
        "dae1_4->back4_4": b * c * (e + v),
        "dsc1_4->din1_4_0": len(sources) * (4 + b * c),
        "call5_4->dav1_4": b * v * (h + c),
        "dav1_4->back5_4": b * v * h,
        "call6_4->dae0_4": e * (2 * b * h + 4) + b * v * h,
        "dsc0_4->din0_4_0": len(sources) * (4 + b * h),
        "call7_4->dav0_4": b * v * (f + h),
        "dav0_4->back7_4": 0,
        "av0_4->stash_ae0_4": 8,
        "stash_ae0_4->ae0_4": 2 * b * h,
        "stash_dae1_4->dae1_4": 2 * b * c,
        "stash1_4->dav1_4": b * h * c,
    }
    if parameter_servers == 1:
        expected |= {
            "wu0->av0_4": b * f * h,
            "dav0_4->wu0": b * f * h,
            "dae1_4->wu1": 2 * b * c,
        }
    else:
        expected |= {
            "wu1_0->av1_4": b * h * c,
            "dae0_4->sum0_0": 2 * b * h,
            "sum0_0->wu0_1": b * h * (f + 2),
        }
    for name, size in expected.items():
        assert _edge(found, name) == size, name


def test_times_of_attention_follow_edges() -> None:
    found = _prepared(
        "job.model.kind=gat",
        "job.times={gather: 8 ms, apply: 20 ms, scatter: 2 ms, edge_apply: 15 ms, "
        "edge_apply_back: 30 ms}",
    )
    job, times = found.problem.job, found.realization.times
    mean = {
        kind: times[[t.kind == kind for t in job.tasks]].mean()
        for kind in ("apply", "edge_apply", "edge_apply_back")
    }
    assert mean == pytest.approx(
        {"apply": 0.02, "edge_apply": 0.015, "edge_apply_back": 0.03}
    )
    assert np.ptp(times[[t.kind == "edge_apply" for t in job.tasks]]) > 1e-4


def test_two_streams_send_as_much_in_two_flows() -> None:
    one, two = _prepared(), _prepared("job.stream=2")
    both = _edge(two, "call0_4->av0_4.first") + _edge(two, "call0_4->av0_4")
    assert both == _edge(one, "call0_4->av0_4")
    assert two.realization.times.sum() == pytest.approx(one.realization.times.sum())


def test_parts_of_two_streams_take_the_time_of_their_rows() -> None:
    """The first part of an odd number of vertices has one more."""
    ready = _prepared("job.stream=2")
    tasks = [task.name for task in ready.problem.job.tasks]
    seconds = dict(zip(tasks, ready.realization.times[:, 0], strict=True))
    shares = set()
    for task in tasks:
        if task.startswith("av") and f"{task}.first" in seconds:
            call = task.replace("av", "call", 1)
            share = _edge(ready, f"{call}->{task}.first") / _edge(
                ready, f"{call}->{task}"
            )
            assert seconds[f"{task}.first"] / seconds[task] == pytest.approx(share)
            shares.add(share)
    assert len(shares) > 1


def slow_of(spread: Any) -> SlowLambdasSection:
    return SlowLambdasSection(share=0.25, factor=3.0, spread=spread)


def test_slow_lambdas_are_a_seeded_share() -> None:
    slow = slow_of("exponential").factors(5, (200, 500))
    assert (slow > 1).mean() == pytest.approx(0.25, abs=0.01)
    assert slow[slow > 1].mean() == pytest.approx(3, rel=0.02)
    np.testing.assert_array_equal(slow, slow_of("exponential").factors(5, (200, 500)))
    assert {*np.unique(slow_of("constant").factors(5, (20, 50)))} == {1.0, 3.0}
    for spread in ("constant", "exponential"):
        whole = slow_of(spread).factors(5, (20, 50))
        fewer = slow_of(spread).factors(5, (20, 30))
        np.testing.assert_array_equal(whole[:, :30], fewer)


def test_a_launch_overlaps_the_task_before_it() -> None:
    """Cold launches of 5 ms hide behind gathers of 8 ms, of 50 ms they do not."""
    without = _prepared("job.lambdas=3").simulate().makespan
    hidden = _prepared("job.launch={warm: 1 ms, cold: 2 ms}").simulate().makespan
    shown = _prepared("job.launch={warm: 1 ms, cold: 500 ms}").simulate().makespan
    assert hidden == pytest.approx(without, rel=0.02)
    assert shown > without + 0.4


def test_one_receiver_per_server_shows_older_rows() -> None:
    """It waits for all intervals, so that it seldom shows rows of this epoch."""
    found = {
        how: _prepared("job.mode=async", "job.epochs=20", f"job.receivers={how}")
        for how in ("interval", "server")
    }
    fresh = {}
    for how, one in found.items():
        tasks = {task.name for task in one.problem.job.tasks if task.kind == "ghosts"}
        assert ("in_0" in tasks, "in_0_1" in tasks) == (
            how == "server",
            how != "server",
        )
        fresh[how] = np.mean(ages_of_reads(one.simulate()) == 0)
    assert fresh["server"] < fresh["interval"]
    assert _prepared().problem.job == _prepared("job.receivers=interval").problem.job


def test_tuned_quotas_of_lambdas() -> None:
    found = _prepared(*TUNED)
    cluster, schedule = found.problem.cluster, found.simulate()
    assert [tuner.machine for tuner in cluster.tuners] == [0, 1]
    assert {(t.pool, t.watched, t.most, t.period) for t in cluster.tuners} == {
        ("lambdas", "threads", 3, 0.02)
    }
    assert schedule.quotas is not None
    assert {*schedule.quotas.ravel().tolist()} == {1, 2, 3}
    assert audit(schedule).passed
    lines = [*read_lines({"simulated": schedule}, "oes")]
    least, last = schedule.quotas[:, 0].min(), schedule.quotas[-1, 0]
    assert lines[1].startswith(
        f"simulated: lambdas of g0 tuned from 3 to {least} to 3,"
    )
    assert lines[1].endswith(f"{last} at last")
    assert found.scenario.to_json() == loads(FILE, TUNED).to_json()
    assert _prepared("job.lambdas=3").problem.cluster.tuners == ()


@pytest.mark.parametrize("changes", [TUNED, ("job.epochs=20",)])
def test_simulate_says_by_how_much_chance_moves_what_is_tuned(
    changes: tuple[str, ...], tmp_path: Path
) -> None:
    file, out = tmp_path / "tuned.yaml", tmp_path / "result.json"
    file.write_text(FILE)
    stated = [word for change in changes for word in ("--set", change)]
    arguments = ["simulate", str(file), "--json", str(out), *stated]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    moved = json.loads(out.read_text()).get("sensitivity")
    tuned = changes == TUNED
    assert (moved is not None) == tuned == ("tuned by queues" in found.stdout)
    assert not tuned or f"by {moved:.2%}" in found.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("job.intervals=1200", "part 0 has .* vertices, fewer than 1200 intervals"),
        ("job.staleness=-1", "staleness"),
        ("job.staleness=1", "found 1 with mode pipe, write mode: async"),
        ("job.lambdas=0", "lambdas"),
        ("job.parameter_servers=[p]", "no machine 'p'"),
        ("job.parameter_servers=[ps, ps]", "servers.1.: 'ps' occurs twice, write it"),
        (
            "job.machines=[g0]; job.intervals=1; job.parameter_servers=[ps, g1]",
            "found 2 for 1 intervals, of which each meets one: write 1 or fewer",
        ),
        ("job.machines=[g0, g0]", "'g0' occurs 2 times"),
        ("job.fanouts=[5, 5]", "fanouts"),
        ("job.times.gather=null", "neither this time nor a profile"),
        (
            "job.times.gather={default: 1 ms, fast: 2 ms}",
            "job.times.gather.fast: no machine has device 'fast'",
        ),
        ("job={backend: cpu, stream: 2}", "job"),
        ("job.epochs=0", "epochs"),
        ("job.lambdas=many", "lambdas"),
        ("job.lambdas=auto; job.backend=gpu", "backend gpu has no lambdas"),
        ("job.lambdas=auto; job.tuner.period=0 s", "found 0.0 s, write 1 ms or more"),
        ("job.lambdas=auto; job.tuner.period=-1 s", "period: a time cannot be neg"),
        ("job.tuner={period: 2 s}", "not tuned, write lambdas: auto"),
        (
            "job.model.kind=gat",
            "job.times.edge_apply: .*neither this time nor a profile",
        ),
        ("job.model={kind: gat, hidden: 8, norm: mean}", "found mean for gat"),
        ("job.model.kind=gin", "kind"),
        ("job.times.edge_apply=1 ms", "gcn computes nothing on edges"),
        (
            "cluster.machines[1].memory=8 kB",
            "2 versions of the weights are .* more than the memory of ps",
        ),
    ],
)
def test_bad_input(change: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        _prepared(*change.split("; "))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("job.stream=2", "job.stream: found 2, lambdas of gat have one part"),
        ("job.rematerialize=true", "gat always computes activations again"),
        ("job.times.edge_apply=-1 ms", "job.times.edge_apply"),
    ],
)
def test_bad_input_of_attention(change: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        _prepared("job.model.kind=gat", "job.times.edge_apply=1 ms", change)


@pytest.mark.parametrize(("part", "rows"), [(0, 3), (1, 2)])
def test_the_first_of_two_streams_has_the_vertex_that_is_left_over(
    part: int, rows: int
) -> None:
    section: Any = SimpleNamespace(stream=2)
    counts: Any = SimpleNamespace(vertices=np.array([5]))
    assert _rows({"interval": 0, "part": part}, section, counts) == rows


def test_a_backward_time_is_as_it_was_where_only_its_forward_one_is_scaled() -> None:
    """Where both are scaled, each is that of its own kind."""
    section = loads(FILE, ["job.times.apply_back=50 ms"]).job
    forward = {"gather": 8, "apply": 20, "scatter": 2}
    backward = {"gather_back": 8, "apply_back": 50, "scatter_back": 2}
    tasks = {kind: kind for kind in [*forward, *backward]}

    def scaled(wanted: set[str]) -> dict[str, object]:
        edit, done = section.scale_times(tasks, wanted, lambda time: 10 * time)
        assert done == wanted
        return {key.removeprefix("job.times."): time for key, time in edit.items()}

    ten_times = {kind: time / 100 for kind, time in (forward | backward).items()}
    assert scaled(set(tasks)) == pytest.approx(ten_times)
    times = scaled({"apply"})
    assert times == {"apply": pytest.approx(0.2), "apply_back": "50 ms"}


def test_one_lambda_is_called_as_several_are() -> None:
    """It is the first, behind all machines that are stated."""
    scenario = loads(FILE, ["job.machines=[g0]", "job.intervals=1"])
    names = [machine.name for machine in scenario.to_cluster().machines]
    assert names == ["g0", "g1", "ps", "lambda0"]


@pytest.mark.parametrize(
    ("model", "untimed"),
    [
        ({"kind": "gcn", "layers": 1}, ["apply", "gather"]),
        ({"kind": "gcn", "layers": 2}, ["apply", "gather", "scatter"]),
        ({"kind": "gat", "layers": 1}, ["apply", "edge_apply", "gather", "scatter"]),
    ],
)
def test_a_graph_of_one_layer_scatters_for_its_attention_alone(
    model: dict[str, Any], untimed: list[str]
) -> None:
    section = shape_of(2, model={"hidden": 4, **model})
    assert [*section.list_untimed()] == untimed
    timed = shape_of(2, model={"hidden": 4, **model}, times={"gather": "1 s"})
    assert [*timed.list_untimed()] == [kind for kind in untimed if kind != "gather"]


def test_weights_of_two_versions_fit_to_the_last_byte() -> None:
    """Weights of float32 are 100 times 8 numbers and 8 times 47, in two versions."""
    size = 2 * 4 * (100 * 8 + 8 * 47)
    _prepared(f"cluster.machines[1].memory={size} B")
    with pytest.raises(ScenarioError, match="1 B more than the memory of ps"):
        _prepared(f"cluster.machines[1].memory={size - 1} B")
    _prepared("emulation.compute=real", "job.dying_lambdas.share=0 %")
