"""What crossed, against sums by hand and a walk over the packets one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.prediction.analysis.traffic import (
    CONNECTION,
    PACKET,
    answer_times,
    count_bytes,
    count_kinds,
    kinds_between_machines,
    meetings,
    messages,
    name_matrix,
    nic_rates,
    nic_use,
)
from emu.testing import two_machine_example

SILENCE = 0.02
#: Milliseconds since the packet before, two machines of three, which way, bytes.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 5, 30]),
        st.sampled_from([(0, 1), (0, 2), (1, 2)]),
        st.booleans(),
        st.integers(1, 1448),
    ),
    max_size=40,
)


def packets(steps: list[tuple[int, tuple[int, int], bool, int]]) -> NDArray[np.void]:
    """Return packets of one connection per pair of machines."""
    rows, now = np.zeros(len(steps), PACKET), 0
    for row, (later, (a, b), back, size) in zip(rows, steps, strict=True):
        now += later
        ends = (a, b, 9000 + a, 80) if not back else (b, a, 80, 9000 + a)
        row["time"], row["bytes"] = now / 1000, size
        for name, value in zip(CONNECTION, ends, strict=True):
            row[name] = value
    return rows


@given(STEPS)
def test_messages_are_what_a_walk_over_the_packets_finds(
    steps: list[tuple[int, tuple[int, int], bool, int]],
) -> None:
    rows = packets(steps)
    found: list[list[float]] = []  # first, last, source, destination, bytes
    newest: dict[frozenset[int], int] = {}
    for row in rows:
        time, source, there = float(row["time"]), row["source"], row["destination"]
        pair = frozenset((int(source), int(there)))
        last = found[newest[pair]] if pair in newest else None
        if last is None or last[2] != source or time - last[1] > SILENCE:
            newest[pair] = len(found)
            found.append([time, time, source, there, 0])
            last = found[-1]
        last[1], last[4] = time, last[4] + row["bytes"]

    seen = messages(rows, SILENCE)

    columns = [seen[n] for n in ("first", "last", "source", "destination", "bytes")]
    assert sorted(map(list, zip(*columns, strict=True))) == sorted(found)


@given(STEPS)
def test_every_byte_is_in_the_matrix_and_in_the_use_of_two_nics(
    steps: list[tuple[int, tuple[int, int], bool, int]],
) -> None:
    rows = packets(steps)
    matrix = count_bytes(rows, 3)
    use = nic_use(rows, np.full((2, 3, 10), 1e6), 0.5)

    assert matrix.sum() == rows["bytes"].sum()
    assert matrix.diagonal().sum() == 0
    assert use[0].sum(axis=1) * 1e6 * 0.05 == pytest.approx(matrix.sum(axis=1))
    assert use[1].sum(axis=1) * 1e6 * 0.05 == pytest.approx(matrix.sum(axis=0))


@given(STEPS)
def test_an_answer_is_the_next_message_of_a_connection_the_other_way(
    steps: list[tuple[int, tuple[int, int], bool, int]],
) -> None:
    found = messages(packets(steps), SILENCE)
    waits = answer_times(found)
    for place, message in enumerate(found):
        ends = {message["source"], message["destination"]}
        later = [
            other
            for other in found[place + 1 :]
            if {other["source"], other["destination"]} == ends
        ]
        if later and later[0]["source"] == message["destination"]:
            assert waits[place] == pytest.approx(later[0]["first"] - message["last"])
        else:
            assert np.isnan(waits[place])


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(1, 9)), max_size=4))
def test_the_rates_of_a_nic_that_changes_sum_to_what_it_could_carry(
    changes: list[tuple[float, float]],
) -> None:
    changes = sorted(changes)
    told = [(time, 1, rate, 2 * rate) for time, rate in changes]
    rates = nic_rates(np.full((2, 3), 5.0), told, 9.0, 7)

    pieces = [(0.0, 5.0), *changes, (9.0, 0.0)]
    carried = sum(
        rate * (then - since) for (since, rate), (then, _) in pairwise(pieces)
    )
    assert rates[0, 1].sum() * 9 / 7 == pytest.approx(carried)
    assert (rates[:, [0, 2]] == 5.0).all()


def test_connections_meet_that_use_one_queue_at_a_time() -> None:
    rows = packets([(0, (0, 1), False, 9), (1, (0, 2), False, 9), (1, (0, 1), True, 9)])
    again = packets([(5, (0, 1), False, 9), (1, (0, 2), False, 9)])
    again["time"] += 0.01
    both = np.concatenate([rows, again])

    assert meetings(both, lambda *_: 0) == [(9000, 9000)]
    assert meetings(rows, lambda *_: 0) == []


def test_a_long_connection_meets_all_that_come_and_go_beside_it() -> None:
    """From port 1 for 9 s; beside it 2, until 3 s, and 3, from 5 to 6 s."""
    spans = [(1, 0.0, 9.0), (2, 2.0, 3.0), (3, 5.0, 6.0)]
    rows = np.zeros(6, PACKET)
    rows["destination"] = 1
    rows["destination_port"] = 80
    rows["source_port"] = np.repeat([port for port, _, _ in spans], 2)
    rows["time"] = np.ravel([(first, last) for _, first, last in spans])
    rows.sort(order="time")

    assert meetings(rows, lambda *_: 0) == [(1, 2), (1, 3)]


def test_connections_from_unlike_machines_meet_at_their_destination() -> None:
    """Ports 1 and 2 while both go; port 3 begins as the other two have ended."""
    spans = [(1, 0, 0.0, 3.0), (2, 2, 2.0, 3.0), (3, 4, 3.0, 5.0)]
    rows = np.zeros(6, PACKET)
    rows["destination"] = 1
    rows["destination_port"] = 80
    rows["source_port"] = np.repeat([port for port, *_ in spans], 2)
    rows["source"] = np.repeat([source for _, source, *_ in spans], 2)
    rows["time"] = np.ravel([span[2:] for span in spans])
    rows.sort(order="time")

    assert meetings(rows, lambda *_: 0) == [(1, 2)]
    rows["destination"][rows["source_port"] == 2] = 3
    assert meetings(rows, lambda *_: 0) == []


def test_what_comes_after_all_bins_counts_in_the_last() -> None:
    rows = packets([(99_000, (0, 1), False, 500)])
    used = nic_use(rows, np.full((2, 2, 4), 100.0), 8.0)

    # Each bin lasts for 2 s, in which a NIC could carry 200 B.
    assert used[0, 0].tolist() == used[1, 1].tolist() == [0.0, 0.0, 0.0, 2.5]
    assert used.sum() == 5.0


def test_packets_are_used_in_the_bin_of_their_time() -> None:
    """From 0 to 0 in the first bin of 2 s, from 0 to 1 in the second and third."""
    steps = [
        (500, (0, 1), True, 300),
        (2000, (0, 1), False, 80),
        (2500, (0, 1), False, 50),
    ]
    rates = np.stack([np.full((2, 4), 100.0), np.full((2, 4), 50.0)])
    used = nic_use(packets(steps), rates, 8.0)

    assert used[0].tolist() == [[0.0, 0.4, 0.25, 0.0], [1.5, 0.0, 0.0, 0.0]]
    assert used[1].tolist() == [[3.0, 0.0, 0.0, 0.0], [0.0, 0.8, 0.5, 0.0]]


def test_whoever_ends_last_meets_those_that_come_later() -> None:
    """Port 1 until 2 s, port 2 from 1 to 9 s, and port 3 from 5 to 6 s."""
    spans = [(1, 0.0, 2.0), (2, 1.0, 9.0), (3, 5.0, 6.0)]
    rows = np.zeros(6, PACKET)
    rows["destination"] = 1
    rows["destination_port"] = 80
    rows["source_port"] = np.repeat([port for port, _, _ in spans], 2)
    rows["time"] = np.ravel([(first, last) for _, first, last in spans])
    rows.sort(order="time")

    assert meetings(rows, lambda *_: 0) == [(1, 2), (2, 3)]


@pytest.mark.parametrize(("later", "count"), [(500, 1), (501, 2)])
def test_a_silence_is_longer_than_stated(later: int, count: int) -> None:
    rows = packets([(0, (0, 1), False, 7), (later, (0, 1), False, 9)])
    assert len(messages(rows, 0.5)) == count


def test_a_matrix_has_names() -> None:
    named = name_matrix(np.array([[0, 5], [7, 0]]), ["a", "b"])

    assert named == {"a": {"a": 0, "b": 5}, "b": {"a": 7, "b": 0}}


def test_kinds_are_counted_between_machines_alone() -> None:
    """Edges: 1 = g0->s1 and 6 = w0->p0 between machines, 0 = g0->s0 within one."""
    problem, _ = two_machine_example(3)
    edges = len(problem.hops)

    def came(*rows: tuple[int, str, int]) -> dict[str, Any]:
        names = ("edge", "kind", "bytes")
        payloads = [dict(zip(names, row, strict=True)) for row in rows]
        return {"received": {"payloads": payloads}}

    statistics = {
        "s0": came((0, "rows", 900)),
        "s1": came((1, "rows", 40), (1, "ids", 70), (edges, "rows", 800)),
        "p0": came((6, "ids", 10), (6, "none", 0)),
        "old": {},
    }
    assert kinds_between_machines(problem, statistics, 10.0) == {
        "ids": 8.0,
        "rows": 4.0,
    }


def test_bytes_of_all_processes_and_connections_add_up() -> None:
    """Two processes take rows of one edge in, one of them over two connections."""
    rows = {"edge": 3, "kind": "rows"}
    statistics: dict[str, dict[str, Any]] = {
        "a": {"received": {"payloads": [{**rows, "bytes": 5}, {**rows, "bytes": 20}]}},
        "b": {"received": {"payloads": [{**rows, "bytes": 300}]}},
        "c": {"received": {"payloads": [{"edge": 3, "kind": "ids", "bytes": 7}]}},
        "d": {"received": {}},
        "e": {},
    }
    assert count_kinds(statistics) == {(3, "rows"): 325, (3, "ids"): 7}
