"""Times and volumes of a DGTP job from its graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import ScenarioError
from emu.scenario import Scenario, build_job, load, open_data, realize
from emu.scenario.placements import _search_options, place

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
    ):
        scenario = load(scenario_file, {"placement": placement})
        options = _search_options(scenario, build_job(scenario))
        budgets.append(options["transfers"])

    of_best, of_stated_length, of_etp = budgets
    assert of_best is None
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
