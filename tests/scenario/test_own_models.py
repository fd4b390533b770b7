"""Scenarios whose model is a program: what is measured, kept, and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError, ScenarioError
from emu.scenario import build_job, find_errors, load, prepare, realize
from emu.scenario.realize import list_model_figures, with_figures
from emu.scenario.schema import json_schema
from tests.training.programs import ADJS, PROGRAMS, TORCH

TEXT = """\
cluster:
  machines: [{count: 2, nic: 10 Gbit/s}]
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.001}
  partitioner: hash
  model: {program: nets/net.py:Net, args: {hid_size: 8}}
  fanouts: [3, 4]
  batch_size: 8
  workers: 2
  iterations: 3
  times: {graph_store: 1 s, sampler: 1 s, parameter_server: 1 s}
"""


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def written(folder: Path, text: str = TEXT, program: str = TORCH) -> Path:
    (folder / "nets").mkdir(exist_ok=True)
    (folder / "nets" / "net.py").write_text(program)
    file = folder / "own.yaml"
    file.write_text(text)
    return file


def program_of(scenario: Any) -> Any:
    return scenario.job.model


def test_bytes_and_the_worker_s_time_are_measured(tmp_path: Path) -> None:
    experiment = prepare(load(written(tmp_path)))
    job = experiment.problem.job
    (figures,) = list_model_figures(experiment.scenario)
    parameters = 2 * 100 * 8 + 8 + 2 * 8 * 47 + 47

    assert figures["program"] == "net.py:Net"
    assert figures["parameters"] == parameters
    edge = job.edge_names.index("w0->ps0")
    np.testing.assert_array_equal(experiment.realization.volumes[edge], 4 * parameters)
    times = experiment.realization.times[job.index("w0")]
    np.testing.assert_array_equal(times, figures["seconds"])
    assert 0 < figures["seconds"] < 1


def test_a_stated_time_stands(tmp_path: Path) -> None:
    scenario = load(written(tmp_path), ["job.times.worker=7 s"])
    job = build_job(scenario)

    assert realize(scenario, job).times[job.index("w1")].tolist() == [7.0] * 3


@pytest.mark.parametrize("system", ["dgtp", "data_parallel"])
def test_what_is_measured_goes_by_the_speed_of_a_machine(
    tmp_path: Path, system: str
) -> None:
    """As with a profile; stated times of stores are as stated."""
    text = TEXT.replace("[{count: 2", "[{name: f, speed: 4, nic: 1 Gbit/s}, {name: s")
    text = text.replace("system: dgtp", f"system: {system}")
    if system == "data_parallel":
        text = text.replace("  workers: 2\n", "").replace(", parameter_server: 1 s", "")
    places = "{w0: f, w1: s, s0: f, s1: s, ps0: f}"
    pins = ["placement.policy=explicit", f"placement.tasks={places}"]
    pins = pins if system == "dgtp" else []
    experiment = prepare(load(written(tmp_path, text), pins))
    names = [task.name for task in experiment.problem.job.tasks]
    fast, slow = (
        experiment.realization.times[names.index(name)] for name in ("w0", "w1")
    )

    np.testing.assert_allclose(fast * 4, slow)
    assert experiment.realization.times[names.index("g0")].tolist() == [1.0] * 3


def test_a_manifest_holds_all_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may be gone, and is not run again for times and volumes."""
    scenario = load(written(tmp_path))
    expected = realize(scenario, build_job(scenario))
    document = json.loads(json.dumps(with_figures(scenario).to_json()))
    (tmp_path / "nets" / "net.py").unlink()
    monkeypatch.setattr("emu.training.own_model._known", {})
    monkeypatch.setattr("emu.training.own_model._check", lambda *_: pytest.fail("ran"))
    kept = tmp_path / "manifest.json"
    kept.write_text(json.dumps(document))
    again = load(kept)
    found = realize(again, build_job(again))

    assert again.to_json() == document
    np.testing.assert_array_equal(found.times, expected.times)
    np.testing.assert_array_equal(found.volumes, expected.volumes)
    assert build_job(again).settings["model"]["source"] == TORCH


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ("job.workers=4", False),
        ("seed=3", False),
        ("cluster.machines[0].nic=1 Gbit/s", False),
        ("job.model.args.hid_size=9", True),
        ("job.dataset.feature_length=50", True),
        ("job.batch_size=16", True),
        ("job.precision=float64", True),
    ],
)
def test_figures_of_another_model_are_not_kept(
    tmp_path: Path, change: str, *, again: bool
) -> None:
    scenario = with_figures(load(written(tmp_path)))
    model = program_of(load(scenario, [change]))

    assert (model.measured is None) is again
    assert model.source == TORCH


def test_another_program_by_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path is from where the command runs; the text is that of the other file."""
    scenario = with_figures(load(written(tmp_path)))
    (tmp_path / "other.py").write_text(ADJS)
    monkeypatch.chdir(tmp_path)
    model = program_of(load(scenario, ["job.model.program=other.py:Net"]))

    assert model.source == ADJS
    assert model.measured is None


def test_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    assert not find_errors(Path("..") / file.name)


def test_several_jobs_have_programs_of_their_own(tmp_path: Path) -> None:
    job = TEXT.partition("job:\n")[2].replace("\n", "\n    ").rstrip()
    text = TEXT.partition("job:\n")[0] + "jobs:\n" + "".join(
        f"- name: {name}\n  job:\n    {job}\n" for name in "ab"
    )  # fmt: skip
    file = written(tmp_path, text.replace("hid_size: 8", "hid_size: 16", 1))
    scenario = load(file)
    first, second = list_model_figures(scenario)

    assert first["parameters"] > second["parameters"]
    assert not find_errors(file)
    experiment = prepare(scenario)
    names = experiment.problem.job.edge_names
    sent = [
        experiment.realization.volumes[names.index(f"{name}/w0->{name}/ps0")][0]
        for name in "ab"
    ]
    assert sent == [4 * one["parameters"] for one in (first, second)]


@pytest.mark.parametrize(
    ("old", "new", "key", "problem"),
    [
        ("net.py:Net", "nut.py:Net", "program", "there is no file"),
        ("net.py:Net", "net.py", "program", "net.py', write FILE.py:NAME"),
        ("net.py:Net", "net:Net", "program", "write FILE.py:NAME"),
        ("net.py:Net", "net.py:Nut", "program", "nothing to call by the name 'Nut'"),
        (", args: {hid_size: 8}", ", hidden: 8", "hidden",
         "unknown key 'hidden'"),
        ("args: {hid_size: 8}", "args: 8", "args", "found 8, write a mapping"),
        ("[3, 4]", "all", "layers", "fanouts say no number of layers"),
        ("args:", "layers: 3, args:", "", "found 2 for a model of 3 layers"),
        ("args:", "layers: 0, args:", "layers", "found 0, write 1 or more"),
    ],
)  # fmt: skip
def test_errors_say_where(
    tmp_path: Path, old: str, new: str, key: str, problem: str
) -> None:
    errors = find_errors(written(tmp_path, TEXT.replace(old, new)))

    expected = f"job.model.{key}" if key else "job.fanouts"
    assert [error.key for error in errors] == [expected]
    assert errors[0].line == (8 if not key else 7)
    assert problem in errors[0].problem


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("hid_size", "width", "takes no 'width'"),
        (", args: {hid_size: 8}", "", "needs hid_size"),
        ("[3, 4]", "[3, 4, 5]", "fails in training: ValueError: too many"),
    ],
)
def test_what_shows_when_a_model_is_built(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """The text is all that is looked at before."""
    file = written(tmp_path, TEXT.replace(old, new))
    assert find_errors(file) == []
    with pytest.raises(ScenarioError) as caught:
        prepare(load(file))

    assert (caught.value.key, caught.value.line) == ("job.model.program", 7)
    assert problem in caught.value.problem


def test_p3_has_no_first_layer_to_split(tmp_path: Path) -> None:
    text = TEXT.replace("system: dgtp", "system: p3").replace("  workers: 2\n", "")
    text = text.replace("  partitioner: hash\n", "").partition("  times:")[0]
    text += "  times: {sampler: 1 s, model_forward: 1 s, data_forward: 1 s, "
    text += "data_backward: 1 s, model_backward: 1 s}\n"
    (error,) = find_errors(written(tmp_path, text))

    assert error.key == "job.model.program"
    assert "write a kind" in error.problem


def test_simulating_says_where_a_program_fails(tmp_path: Path) -> None:
    file = written(tmp_path, program=TORCH.replace("nn.Linear", "nn.Liner"))
    with pytest.raises(ScenarioError) as caught:
        prepare(load(file))

    assert f"{file}:7: job.model.program: " in str(caught.value)
    assert "AttributeError" in str(caught.value)


def test_without_torch_one_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise DataError(
            "needs torch, which is not installed here: pip install", path=""
        )

    monkeypatch.setattr("emu.training.own_model.import_library", missing)
    monkeypatch.setattr("emu.training.own_model._known", {})

    with pytest.raises(ScenarioError, match="needs torch, which is not installed"):
        prepare(load(written(tmp_path)))


def test_the_schema_knows_both_kinds() -> None:
    options = json_schema()["$defs"]["DgtpJobSection"]["properties"]["model"]["anyOf"]

    assert [o["$ref"].rpartition("/")[2] for o in options] == [
        "ModelSection", "ModelProgramSection"
    ]  # fmt: skip
    assert len(PROGRAMS) == 5


def test_the_shipped_example_is_copied_with_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from emu.cli import app

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["init", "own_model"])

    assert done.exit_code == 0, done.output
    assert (tmp_path / "own_model" / "sage.py").is_file()
    assert not find_errors(tmp_path / "own_model.yaml")
