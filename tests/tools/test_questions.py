"""Every command gives the number that the others give for a drawn file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import draws
from tools.studies import questions


@pytest.mark.slow
@pytest.mark.parametrize("number", draws.rarely_but(17, range(72)))
def test_commands_give_one_number(number: int) -> None:
    (outcome,) = questions.ask(number)

    assert outcome.apart == 0, outcome.first
    assert outcome.confirmed == outcome.crossings
    assert outcome.compared + outcome.refused > 0


def test_a_number_that_differs_is_counted() -> None:
    case = questions.Case(Path("none"), np.random.default_rng(0))
    case.same("sweep", 1.0, 1.0)
    case.same("compare", 1.0, 1.0 + 2**-52)

    assert case.compared == 2
    assert case.apart == ["compare: 1.0 for 1.0000000000000002"]
