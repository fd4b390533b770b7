"""Sections that state exchanges: what is refused, bytes by hand, packages at fault."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.row_figures import weights_of
from emu.graph_data import open_parts
from emu.problem.workloads.exchange import GRADIENTS, ROWS, Exchange
from emu.scenario import load, prepare
from emu.scenario.virtual_training import accuracy_curve
from emu.systems import package_faults, system
from emu.systems.job_section import BuildContext
from emu.systems.pipegcn.section import PipegcnSection
from tests.systems.sections import section_of

FILE = {
    "cluster": {"machines": [{"name": "m", "count": 2, "nic": "1 Gbit/s"}]},
    "job": {
        "system": "partition_parallel",
        "dataset": {"name": "products-like", "scale": 0.0003},
        "model": {"hidden": 4, "layers": 2},
        "epochs": 4,
        "rates": {
            "aggregate": "1 ns",
            "multiply": "1 ns",
            "sample": "1 ns",
            "collect": "1 ns",
            "step": "1 ns",
            "launch": "1 us",
        },
    },
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of the file above."""
    path = tmp_path / "parts.yaml"
    path.write_text(json.dumps(FILE))
    return path


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"job.share": 0}, "job.share"),
        ({"job.share": 1.5}, "job.share"),
        ({"job.rows.bits": 3}, "job.rows.bits: found 3"),
        ({"job.rows.age": -1}, "job.rows.age"),
        ({"job.gradients.age": 4}, "job.epochs: found 4, and partition_parallel reads"),
        ({"job.rows.age": 9}, "reads what is 9 epochs old"),
        ({"job.times.worker": "1 s"}, "times follow from job.rates, write these"),
        ({"job.epochs": 1, "job.rows.age": 1}, "reads what is an epoch old"),
        ({"job.share": 0.5, "job.rows.whole": True}, "a share of whole parts"),
        ({"job.rows.smoothing": 1}, "job.rows.smoothing"),
        (
            {"checkpoint": {"every": "2 iterations"}, "job.rows.age": 1},
            "no checkpoint has: remove this key",
        ),
    ],
)
def test_terms_that_cannot_be_are_refused_in_one_line(
    file: Path, edit: dict[str, Any], words: str
) -> None:
    with pytest.raises(ScenarioError, match=words.replace(".", r"\.")) as error:
        load(file, edit)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"content": "weights"}, "write rows or gradients"),
        ({"layer": 0}, "numbered from 1"),
        ({"share": 0.0}, "more than 0, at most 1"),
        ({"bits": 3}, "3 bits, write 2, 4, 8"),
        ({"age": -1}, "age of 0 or more"),
        ({"smoothing": 1.0}, "less than 1"),
    ],
)
def test_a_statement_says_what_would_be_right(
    terms: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Exchange(**{"content": ROWS, "layer": 2, **terms})


def test_a_package_that_states_a_wrong_exchange_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = lambda self: (*self.list_rows(share=2.0),)  # noqa: E731
    monkeypatch.setattr(PipegcnSection, "exchanges", wrong)
    with pytest.raises(ScenarioError, match=r"pipegcn states a wrong exchange: .*2"):
        load(file, {"job.system": "pipegcn"})


@pytest.mark.parametrize(
    ("system_name", "keys", "row", "ids"),
    [
        # 7 numbers of float32; of 8 bits, or 4 in a byte, with a byte and scales.
        ("partition_parallel", {}, lambda shared: shared * 28, 0),
        ("bns_gcn", {"rate": 0.25}, lambda shared: shared // 4 * 28, 8),
        ("adaqp", {"bits": 8}, lambda shared: shared * (7 + 4) + 1, 0),
        (
            "adaqp",
            {"bits": 2},
            lambda shared: -(-shared // 4) * 7 + 1 + 4 * shared,
            0,
        ),
    ],
)
def test_bytes_are_those_of_a_hand_computation(
    system_name: str, keys: dict[str, Any], row: Any, ids: int
) -> None:
    section = section_of(
        system_name,
        dataset=FILE["job"]["dataset"],  # type: ignore[index]
        model={"hidden": 7, "layers": 2},
        **keys,
    )
    context = BuildContext(("a", "b", "c"), None, seed=5, byte_scale=0.5)
    job = section.build(context)
    volumes = section.realize(job, context, None, {}).volumes
    _, graph = open_parts(job.settings)
    for sender, reader in ((0, 1), (2, 0)):
        shared = len(graph.ghosts_of(sender, reader))
        names = (f"d{sender}.layer1", f"d{reader}.layer2")
        edge = next(
            number
            for number, e in enumerate(job.edges)
            if (job.tasks[e.source].name, job.tasks[e.destination].name) == names
        )
        bytes_ = row(shared) + ids * (row(shared) // 28)
        # Emulated bytes are twice the real ones here.
        np.testing.assert_array_equal(volumes[edge], 2 * bytes_)


def test_rows_that_are_read_later_are_there_twice() -> None:
    """Inputs of layer 2 are 7 numbers of float32, and so are their gradients."""
    context = BuildContext(("a", "b", "c"), None, seed=5, byte_scale=0.5)

    def rows_and_bytes(**keys: Any) -> Iterator[tuple[int, float]]:
        section = section_of(
            "partition_parallel",
            dataset=FILE["job"]["dataset"],  # type: ignore[index]
            model={"hidden": 7, "layers": 2},
            **keys,
        )
        job = section.build(context)
        _, graph = open_parts(job.settings)
        read = {f"d{part}": len(graph.part(part).remote) for part in range(3)}
        assert len({*read.values()}) == 3
        parts = section.device_memory(job, context)
        for task, bytes_ in parts.items():
            rows = read[task.partition(".")[0]]
            yield rows, bytes_["rows of layers"]

    at_once = [*rows_and_bytes()]
    late = [*rows_and_bytes(rows={"age": 1})]
    for (rows, once), (_, twice) in zip(at_once, late, strict=True):
        assert twice - once == rows * 7 * 4


def test_lags_are_ages_and_first_epochs_read_nothing(file: Path) -> None:
    edit = {"job.rows.age": 2, "job.gradients.age": 1}
    job = prepare(load(file, edit)).problem.job
    lags = {
        (job.tasks[e.source].kind, job.tasks[e.destination].kind): e.lag
        for e in job.edges
        if job.tasks[e.source].process_name != job.tasks[e.destination].process_name
    }
    assert lags["layer1", "layer2"] == 2
    assert lags["layer2", "gradient1"] == 1


def test_late_rows_hide_behind_computation(file: Path) -> None:
    """With rates at which sending takes as long as computing, half is hidden."""
    edit = {"job.epochs": 20, "job.partitioner": "hash"}
    spans = {}
    for name in ("partition_parallel", "pipegcn"):
        ready = prepare(load(file, {**edit, "job.system": name}))
        spans[name] = ready.simulate().length / 20
    assert spans["pipegcn"] < 0.95 * spans["partition_parallel"]


def test_one_part_or_exact_exchanges_learn_as_dgcl(file: Path) -> None:
    def weights(**edit: Any) -> str:
        return weights_of(load(file, {f"job.{k}": v for k, v in edit.items()}))

    exact = weights()
    dgcl = weights(system="dgcl")
    assert exact == dgcl
    assert weights(system="pipegcn") not in (exact, weights(system="adaqp"))
    assert weights(system="pipegcn", machines=["m0"]) == exact
    # What is drawn follows from the parts.
    assert weights(system="bns_gcn") != weights(system="bns_gcn", partitioner="hash")


def test_a_system_that_says_nothing_has_no_accuracy(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = replace(system.systems()["partition_parallel"], trainer=None)
    table = {**system.systems(), silent.name: silent}
    monkeypatch.setattr(system, "systems", lambda: table)
    assert weights_of(load(file)) != weights_of(load(file, {"job.system": "dgcl"}))
    with pytest.raises(ScenarioError, match="does not say how it trains"):
        accuracy_curve(load(file), prepare(load(file)).simulate)


def test_errors_in_a_package_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("emu_other.section")
    exec("def build():\n    return {}['optimizer']\n", module.__dict__)  # noqa: S102
    monkeypatch.setitem(sys.modules, "emu_other.section", module)
    packages = {"emu_other": "other, which emu-other brings,"}
    monkeypatch.setattr(package_faults, "_packages", lambda: packages)
    with (
        pytest.raises(EmulatorError, match="emu-other brings, has an error") as error,
        package_faults.name_package(),
    ):
        module.build()
    assert "KeyError: 'optimizer'" in str(error.value)
    ours: dict[str, int] = {}
    with pytest.raises(KeyError), package_faults.name_package():
        _ = ours[GRADIENTS]
