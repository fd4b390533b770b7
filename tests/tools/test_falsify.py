"""Every fault still has a place in the product."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tools.mutation.run_faults import FAULTS, RunFault
from tools.mutation.runs import plant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    target = tmp_path / fault.file
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / fault.file, target)

    plant(fault, tmp_path)

    planted = target.read_text(encoding="utf-8")
    if target.suffix == ".py":
        ast.parse(planted)
    assert planted != (ROOT / fault.file).read_text(encoding="utf-8")


def test_a_fault_whose_place_is_gone_says_so(tmp_path: Path) -> None:
    (tmp_path / "there.py").write_text("x = 1\n")

    with pytest.raises(ValueError, match="'y = 2' is 0 x in"):
        plant(RunFault("there.py", "y = 2", "y = 3"), tmp_path)
