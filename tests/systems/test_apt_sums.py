"""Sums of shares of a first layer against sums over all edges, edge by edge."""

from __future__ import annotations

import numpy as np
import pytest

from emu.systems.apt.shares import Share
from emu.systems.apt.sums import add_rows, multiply, weight_gradient

#: Of three destinations, 10, 11 and 12, edges (source, destination), drawn on all.
EDGES = [(20, 10), (21, 10), (11, 10), (22, 11), (20, 12), (22, 12)]
DEGREES = np.array([3, 1, 2])
#: Rows of two columns.
ROWS = {
    10: (1.0, 2.0),
    11: (3.0, 5.0),
    12: (7.0, 11.0),
    20: (13.0, 17.0),
    21: (19.0, 23.0),
    22: (29.0, 31.0),
}
#: What one machine adds up, and its own rows: of 10 and 12; the other has the rest.
SHARES = (
    Share(
        destinations=np.array([10, 11, 12]),
        sources=np.array([20, 11, 20]),
        ends=np.array([0, 0, 2]),
        adds_own=np.array([True, False, True]),
    ),
    Share(
        destinations=np.array([10, 11, 12]),
        sources=np.array([21, 22, 22]),
        ends=np.array([0, 1, 2]),
        adds_own=np.array([False, True, False]),
    ),
)


def rows_of(share: Share) -> np.ndarray:
    vertices, _ = share.inputs
    return np.array([ROWS[vertex] for vertex in vertices.tolist()])


def expected_sums() -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of neighbours and the own rows of the destinations."""
    sums = np.zeros((3, 2))
    for source, end in EDGES:
        sums[end - 10] += ROWS[source]
    own = np.array([ROWS[vertex] for vertex in (10, 11, 12)])
    return sums, own


@pytest.mark.parametrize("kind", ["sage", "gcn", "gin"])
def test_shares_add_up_to_what_one_machine_would_have(kind: str) -> None:
    """Means are of all edges that were drawn, here or elsewhere."""
    sums, own = expected_sums()
    expected = {
        "sage": [sums / [[3], [1], [2]], own],
        "gcn": [(sums + own) / [[4], [2], [3]]],
        "gin": [sums + own],
    }[kind]
    parts = [add_rows(kind, share, rows_of(share), DEGREES) for share in SHARES]
    assert [len(part) for part in parts] == [len(expected)] * 2
    for number, wanted in enumerate(expected):
        np.testing.assert_allclose(parts[0][number] + parts[1][number], wanted)
    # Of the first machine's edges none ends at 11.
    assert not parts[0][0][1].any()


def test_a_share_without_edges_has_own_rows_and_means_of_nothing() -> None:
    empty = np.empty(0, np.int64)
    share = Share(np.array([10, 11]), empty, empty, np.array([False, True]))
    means, own = add_rows("sage", share, np.array([ROWS[11]]), np.array([0, 0]))
    assert means.tolist() == [[0, 0], [0, 0]]
    assert own.tolist() == [[0, 0], [3, 5]]


def test_weights_are_matrices_one_behind_the_other() -> None:
    """Three units on two columns: of neighbours, then of the vertex itself."""
    neighbours = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    local = np.array([[7.0, 8.0], [9.0, 1.0], [2.0, 3.0]])
    weights = np.concatenate([neighbours.ravel(), local.ravel()])
    added = [np.array([[1.0, 10.0], [2.0, 20.0]]), np.array([[3.0, 30.0], [4.0, 5.0]])]

    product = multiply(added, weights)
    for row in range(2):
        for unit in range(3):
            of_neighbours = sum(added[0][row] * neighbours[unit])
            assert product[row, unit] == of_neighbours + sum(
                added[1][row] * local[unit]
            )

    of_sums = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    gradient = weight_gradient(added, of_sums).reshape(2, 3, 2)
    for matrix in range(2):
        for unit in range(3):
            rows = of_sums[:, unit, None] * added[matrix]
            assert gradient[matrix, unit].tolist() == rows.sum(axis=0).tolist()
