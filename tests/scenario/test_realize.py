"""Times and volumes of a DGTP job from its graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emu.errors import EmulatorError, ScenarioError
from emu.problem import Profile
from emu.scenario import ProfileFile, Scenario, build_job, load, open_data, realize
from emu.scenario.placements import _search_options, place
from emu.scenario.realize import _check_shape
from emu.scenario.workload_file import write_profile

FILE = """\
cluster:
  machines: [{count: 2, nic: 10 Gbit/s, cpu: 3, memory: 16 GB}]
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.002}
  partitioner: hash
  model: {hidden: 16, layers: 2}
  fanouts: [5, 10]
  batch_size: 8
  workers: 2
  demands: {sampler: {cpu: 1, memory: 4 GB}, worker: {cpu: 1}}
  times: {graph_store: 20 ms, sampler: 15 ms, worker: 40 ms, parameter_server: 5 ms}
  iterations: 2
placement: {iterations: 50, simulated_iterations: 2}
emulation: {byte_scale: 0.5}
"""


@pytest.fixture
def scenario_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "tiny.yaml"
    file.write_text(FILE)
    return file


def test_volumes_are_sampled_and_scaled_to_emulated_bytes(scenario_file: Path) -> None:
    scenario = load(scenario_file)
    job = build_job(scenario)
    realization = realize(scenario, job)
    realization.check_shapes(job)

    volumes = {
        name: row.tolist()
        for name, row in zip(job.edge_names, realization.volumes, strict=True)
    }
    parameters = 2 * 100 * 16 + 16 + 2 * 16 * 47 + 47
    assert volumes["w0->ps0"] == [4 * parameters / 0.5] * 2
    assert volumes["ps0->w1"] == [4 * parameters / 0.5] * 2
    # Every input vertex of the batch is owned by one store: 100 float32 features each.
    rows = [0.5 * (volumes["g0->s0"][n] + volumes["g1->s0"][n]) for n in (0, 1)]
    assert all(row % 400 == 0 and row >= 8 * 400 for row in rows)
    assert all(0.5 * volumes["s0->w0"][n] > rows[n] for n in (0, 1))
    assert realization.times[:, 0].tolist() == [
        *(0.02, 0.02),
        *(0.015, 0.015),
        *(0.04, 0.04),
        0.005,
    ]


def test_the_same_seed_samples_the_same(scenario_file: Path) -> None:
    def volumes(*overrides: str) -> list[list[float]]:
        scenario = load(scenario_file, overrides)
        found: list[list[float]] = realize(
            scenario, build_job(scenario)
        ).volumes.tolist()
        return found

    assert volumes("seed=5") == volumes("seed=5", "placement.policy=random")
    assert volumes("seed=5") != volumes("seed=6")


def test_epochs_ask_the_data_set_how_large_it_is(scenario_file: Path) -> None:
    """products-like has 196,615 training vertices at scale 1: 393 here, 50 batches."""
    job = build_job(load(scenario_file, ["job.iterations=null", "job.epochs=3"]))

    assert job.iterations == 3 * 50


def test_a_missing_time_is_named(scenario_file: Path) -> None:
    scenario = load(scenario_file, ["job.times.worker=null"], timed=False)

    with pytest.raises(ScenarioError, match="neither this time nor a profile") as found:
        realize(scenario, build_job(scenario))
    assert found.value.key == "job.times.worker"
    with pytest.raises(ScenarioError, match="neither this time nor a profile"):
        load(scenario_file, ["job.times.worker=null"])


@pytest.mark.parametrize("policy", ["ifs", "etp", "distdgl", "random", "round_robin"])
def test_every_policy_gives_a_feasible_placement_of_its_seed(
    scenario_file: Path, policy: str
) -> None:
    scenario: Scenario = load(scenario_file, [f"placement.policy={policy}"])
    job, cluster = build_job(scenario), scenario.to_cluster()
    first = place(scenario, job, cluster)

    assert first.placement.violations(job, cluster) == []
    assert place(scenario, job, cluster).placement == first.placement
    assert (first.candidates > 0) == (policy == "etp")


@pytest.mark.parametrize("policy", ["ifs", "etp", "best", "distdgl", "random"])
def test_the_walk_of_etp_alone_has_its_options(
    scenario_file: Path, policy: str
) -> None:
    stated = {"tolerance": 0.25, "beta": 7.0, "beta_unit": "3 s"}
    overrides = [f"placement.policy={policy}"]
    if policy == "etp":
        overrides += [f"placement.{key}={value}" for key, value in stated.items()]
    scenario = load(scenario_file, overrides)

    options = _search_options(scenario, build_job(scenario))

    walk = {key: options[key] for key in ("mu", "beta", "beta_unit") if key in options}
    expected = {"mu": 0.25, "beta": 7.0, "beta_unit": 3.0}
    assert walk == (expected if policy == "etp" else {})
    # Searches alone have candidates to simulate.
    assert ("iterations" in options) == (policy in {"etp", "best"})


def test_best_shares_its_budget_where_no_length_of_candidates_is_stated(
    scenario_file: Path,
) -> None:
    budgets = []
    for placement in (
        {"policy": "best"},
        {"policy": "best", "simulated_iterations": 2},
        {"policy": "etp", "simulated_iterations": 2},
        {"policy": "etp"},
    ):
        scenario = load(scenario_file, {"placement": placement})
        options = _search_options(scenario, build_job(scenario))
        budgets.append(options["transfers"])

    of_best, of_stated_length, of_etp, of_etp_alone = budgets
    assert of_best is None
    assert of_etp_alone > 100
    assert of_stated_length == of_etp > 100


def test_a_batch_of_more_seeds_than_there_are_is_refused_as_data_open(
    scenario_file: Path,
) -> None:
    job = build_job(load(scenario_file, {"job.batch_size": 1000}))
    with pytest.raises(ScenarioError, match="write 393 or fewer") as found:
        open_data(job)
    assert found.value.key == "job.batch_size"


def test_a_checkpoint_takes_its_time_before_iterations_that_follow_one(
    scenario_file: Path,
) -> None:
    """Every second iteration but the first: no state is worth keeping there."""
    checkpoint = {"every": "2 iterations", "takes": "3 ms"}
    changes = {"job.iterations": 5, "checkpoint": checkpoint}
    plain, kept = (load(scenario_file, c) for c in ({"job.iterations": 5}, changes))
    job = build_job(kept)
    more = realize(kept, job).times - realize(plain, build_job(plain)).times

    servers = [t for t, task in enumerate(job.tasks) if more[t].any()]
    assert {job.tasks[t].kind for t in servers} == {"parameter_server"}
    assert more[servers[0]].tolist() == pytest.approx([0, 0, 0.003, 0, 0.003])


@pytest.mark.parametrize(("optimizer", "vectors"), [("adam", 3), ("sgd", 1)])
def test_copies_of_state_go_to_a_peer_before_iterations_that_follow_one(
    scenario_file: Path, optimizer: str, vectors: int
) -> None:
    """A copy is of float32 and a count of steps; bytes are divided by 0.5."""
    checkpoint = {"every": "2 iterations", "takes": "3 ms", "to": "peer"}
    changes = {
        "job.iterations": 5,
        "checkpoint": checkpoint,
        "job.optimizer": optimizer,
    }
    scenario = load(scenario_file, changes)
    job = build_job(scenario)
    realization = realize(scenario, job)

    parameters = 2 * 100 * 16 + 16 + 2 * 16 * 47 + 47
    size = (4 * vectors * parameters + 8) / 0.5
    edge = job.edge_positions["ps0->ps0.copy"]
    assert realization.volumes[edge].tolist() == [0, 0, size, 0, size]
    assert not realization.times[job.index("ps0.copy")].any()
    server = realization.times[job.index("ps0")].tolist()
    assert server == pytest.approx([0.005, 0.005, 0.008, 0.005, 0.008])
    on_disk = load(scenario, {"checkpoint.to": "disk"})
    assert "ps0.copy" not in [task.name for task in build_job(on_disk).tasks]


def test_what_is_measured_of_a_job_has_its_own_seed_of_draws(
    scenario_file: Path, tmp_path: Path
) -> None:
    """A profile wins over stated times, and its iterations are drawn by the seed."""
    job = build_job(load(scenario_file))
    times = np.arange(1.0, 1 + 3 * len(job.tasks)).reshape(-1, 3)
    volumes = np.arange(3.0 * len(job.edges)).reshape(-1, 3)
    path = tmp_path / "profile.json"
    write_profile(path, ProfileFile.of(job, Profile(times, volumes), 0.5))

    profiled = load(scenario_file, {"profile": str(path), "job.iterations": 40})
    found = realize(profiled, build_job(profiled))
    drawn = {tuple(column) for column in found.times.T.tolist()}
    assert drawn == {tuple(column) for column in times.T.tolist()}
    again = realize(profiled, build_job(profiled))
    assert again.times.tolist() == found.times.tolist()
    other = load(profiled, {"seed": 99, "job.dataset.seed": profiled.seed})
    assert realize(other, build_job(other)).times.tolist() != found.times.tolist()


def test_a_system_that_realizes_another_shape_is_named(scenario_file: Path) -> None:
    job = build_job(load(scenario_file))
    good = np.zeros((len(job.tasks), 2))
    _check_shape("dgtp", "times", good, job, "tasks")
    for wrong in (good[1:], good[:, 1:]):
        with pytest.raises(EmulatorError, match=r"realizes times of shape .*, not \(7"):
            _check_shape("dgtp", "times", wrong, job, "tasks")
