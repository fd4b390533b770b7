"""Linear and integer programs, solved by HiGHS."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


class Row(NamedTuple):
    """``least <= factors . x[columns] <= most``."""

    columns: Sequence[int]
    factors: Sequence[float]
    least: float
    most: float


class Solution(NamedTuple):
    """The best that was found.

    ``x`` has shape (variables,) and is None where nothing was found; ``bound`` is what
    no x goes below, -inf where that is not known.
    """

    x: NDArray[np.float64] | None
    bound: float


def minimise(
    costs: NDArray[np.float64],
    upper: NDArray[np.float64],
    whole: NDArray[np.bool_],
    rows: Iterable[Row],
    *,
    nodes: int = 0,
    seconds: float = 0.0,
) -> Solution:
    """Return the x in 0 ... ``upper`` of least ``costs . x`` that keeps to the rows.

    Parameters
    ----------
    costs, upper, whole
        Shape (variables,); which variables are whole numbers.
    nodes, seconds
        Limits on branching, each 0 for no limit of this kind.

    Raises
    ------
    ValueError
        When a row names a variable twice, or one that there is not.
    """
    import highspy  # noqa: PLC0415 - other commands do without

    # Not highspy.Highs: from 1.16 on it prints a banner before it can be asked not to.
    solver = highspy._core._Highs()  # noqa: SLF001
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("parallel", "off")
    if nodes:
        solver.setOptionValue("mip_max_nodes", nodes)
    if seconds:
        solver.setOptionValue("time_limit", seconds)
    kept = list(rows)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(costs), len(kept)
    model.col_cost_, model.col_upper_ = costs, upper
    model.col_lower_ = np.zeros(len(costs))
    model.row_lower_ = np.array([row.least for row in kept])
    model.row_upper_ = np.array([row.most for row in kept])
    if whole.any():
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        model.integrality_ = [kinds[is_whole] for is_whole in whole.tolist()]
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.cumsum([0, *(len(row.columns) for row in kept)])
    matrix.index_ = np.array([column for row in kept for column in row.columns])
    matrix.value_ = np.array([factor for row in kept for factor in row.factors])
    if solver.passModel(model) == highspy.HighsStatus.kError:
        raise ValueError("the program is not one: does a row name a column twice?")
    solver.run()
    info = solver.getInfo()
    bound = info.mip_dual_bound if whole.any() else info.objective_function_value
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        # What has no x at all is bounded by +inf, which is of no use to anybody.
        return Solution(None, bound if whole.any() and bound < np.inf else -np.inf)
    return Solution(np.array(solver.getSolution().col_value), bound)
