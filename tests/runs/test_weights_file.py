"""weights.npz: what is written is read, and nothing else."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from emu.errors import DataError
from emu.graph_data import open_for
from emu.runs.array_files import NAME, read_weights, write_weights
from emu.scenario.scenario import Scenario
from emu.training import initial_parameters, parameter_shapes, split_parts
from tests.integration.scenarios import tiny_training


@given(
    st.sampled_from([np.float32, np.float64]).flatmap(
        lambda dtype: st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
            arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_side=4)),
            min_size=1,
            max_size=5,
        )
    )
)
def test_parts_are_read_as_they_were_written(parts: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        write_weights(Path(folder), parts)
        again = read_weights(Path(folder))
        flat = np.load(Path(folder) / NAME, allow_pickle=False)["parameters"]

    assert [*again] == [*parts]
    for name, part in parts.items():
        np.testing.assert_array_equal(again[name], part, strict=True)
    np.testing.assert_array_equal(
        flat, np.concatenate([part.ravel() for part in parts.values()])
    )


GOOD: dict[str, Any] = {
    "parameters": np.arange(7.0),
    "names": np.array(["a", "b"]),
    "shapes": np.array([[2, 3], [1, -1]]),
    "offsets": np.array([0, 6]),
}


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": np.arange(6.0)},
        {"parameters": np.arange(8.0)},
        {"parameters": np.arange(7)},
        {"parameters": np.zeros((7, 1))},
        {"names": np.array(["a", "a"])},
        {"names": np.array(["a"])},
        {"names": np.array([["a", "b"]])},
        {"names": np.array([1, 2])},
        {"names": np.array(["a", None], dtype=object)},
        {"shapes": np.array([[2, 3], [-2, -1]])},
        {"shapes": np.array([[2**40, 2**40], [1, -1]])},
        {"shapes": np.array([2, 3])},
        {"shapes": np.array([[2.0, 3.0], [1.0, -1.0]])},
        {"offsets": np.array([0, 5])},
        {"offsets": np.array([1, 7])},
        {"offsets": np.array([0, 2**62])},
    ],
)
def test_what_does_not_fit_together_is_one_error(
    change: dict[str, Any], tmp_path: Path
) -> None:
    np.savez(tmp_path / NAME, **GOOD)
    assert [*read_weights(tmp_path)] == ["a", "b"]
    np.savez(tmp_path / NAME, **{**GOOD, **change})
    with pytest.raises(DataError, match=NAME):
        read_weights(tmp_path)


@given(st.data())
def test_a_damaged_file_is_one_error_or_the_same_weights(data: st.DataObject) -> None:
    whole = io.BytesIO()
    np.savez(whole, **GOOD)
    content = bytearray(whole.getvalue())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:at]
    else:
        content[at] ^= data.draw(st.integers(1, 255))
    with TemporaryDirectory() as folder:
        (Path(folder) / NAME).write_bytes(content)
        with contextlib.suppress(DataError):
            found = read_weights(Path(folder))
            np.testing.assert_array_equal(found["a"].ravel(), np.arange(6.0))


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin"])
def test_every_parameter_of_a_model_is_in_a_named_part(kind: str) -> None:
    model = {"kind": kind, "hidden": 8, "layers": 2}
    document = tiny_training(1, model=model)
    settings = Scenario.model_validate(document).to_job().settings
    dataset = open_for(settings)
    flat = initial_parameters(settings, dataset)
    parts = split_parts(flat, parameter_shapes(settings, dataset))

    np.testing.assert_array_equal(
        np.concatenate([part.ravel() for part in parts.values()]), flat
    )
    assert {name for name, part in parts.items() if not part.any()} == {
        name for name in parts if name.startswith("layers.") and ".bias" in name
    }
    with pytest.raises(ValueError, match="parameters for a model of"):
        split_parts(flat[1:], parameter_shapes(settings, dataset))
