"""Curves of accuracy that were recorded elsewhere: what is read and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import DataError
from emu.interchange.accuracy_curve import read_curve

pytestmark = pytest.mark.usefixtures("read_here")


def test_a_curve_holds_all_looks_from_none_right_to_all(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("epoch,accuracy\n0.5,0\n1,0.25\n2.5,1\n")
    curve = read_curve(path)

    assert (curve.unit, curve.moments) == ("epoch", (0.5, 1.0, 2.5))
    assert curve.accuracy == (0.0, 0.25, 1.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("step,accuracy\n1,0.5\n1,0.6\n", "line 3: step 1 stands behind 1"),
        ("step,accuracy\n2,0.5\n1,0.6\n", "line 3: step 1 stands behind 2"),
        ("step,accuracy\n1.5,0.5\n", "line 2: step 1.5 is no whole number"),
        ("step,accuracy\n0,0.5\n", "line 2: the step is no number above 0"),
        ("epoch,accuracy\n1,1.01\n", "line 2: accuracy '1.01', write a share"),
        ("epoch,accuracy\n1,-0.01\n", "line 2: accuracy '-0.01', write a share"),
        ("epoch,accuracy\n1,nan\n", "line 2: accuracy 'nan', write a share"),
        ("epoch,accuracy\n1\n", "line 2: '1', write epoch,accuracy"),
        ("time,accuracy\n1,0.5\n", "begins with 'time,accuracy'"),
    ],
)
def test_what_is_no_curve_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=problem):
        read_curve(path)
