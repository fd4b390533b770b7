"""Messages between parts: draws, quantised rows and their bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.problem.workloads.exchange import ROWS, Exchange
from emu.training.messages import (
    Passage,
    decode,
    draw_rows,
    encode,
    from_bfloat16,
    to_bfloat16,
)


def test_draws_are_uniform_and_new_in_every_epoch() -> None:
    """By 4,000 epochs each of 10 rows is drawn 3 times in 10, to 4 deviations."""
    exchange = Exchange(ROWS, 2, share=0.39)
    draws = [draw_rows(exchange, Passage(3, epoch, 0, 1), 10) for epoch in range(4000)]
    assert {len(draw) for draw in draws} == {3}
    assert all((np.diff(draw) > 0).all() for draw in draws)
    counts = np.bincount(np.concatenate(draws), minlength=10)
    assert abs(counts - 1200).max() < 4 * np.sqrt(4000 * 0.3 * 0.7)
    # Another pair of parts, and its way back, have draws of their own.
    passages = [Passage(3, 0, 1, 0), Passage(3, 0, 0, 2)]
    others = [draw_rows(exchange, passage, 10).tolist() for passage in passages]
    assert draws[0].tolist() not in others


@given(
    bits=st.sampled_from([2, 4, 8]),
    count=st.integers(0, 9),
    width=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_quantised_rows_are_within_a_step_and_weigh_as_stated(
    bits: int, count: int, width: int, seed: int
) -> None:
    exchange = Exchange(ROWS, 1, bits=bits)
    rows = np.random.default_rng(seed).normal(size=(count, width))
    message = encode(exchange, rows, Passage(seed, 0, 0, 1))
    sent = sum(array.nbytes for array in message.values())
    assert sent == exchange.message_bytes(count, width, 8)
    found = decode(exchange, message, rows.shape, rows.dtype)
    if count:
        spans = np.ptp(rows, axis=1, keepdims=True)
        lows = abs(rows).max(axis=1, keepdims=True)
        # A step, and what bfloat16 leaves of scale and minimum.
        limit = spans / (2**bits - 1) + (spans + lows) / 256
        assert (abs(found - rows) <= limit + 1e-12).all()


def test_rounding_is_right_in_the_mean() -> None:
    exchange = Exchange(ROWS, 1, bits=2)
    rows = np.array([[0.0, 0.4, 1.1, 3.0]])
    found = []
    for epoch in range(4000):
        message = encode(exchange, rows, Passage(1, epoch, 0, 1))
        found.append(decode(exchange, message, rows.shape, rows.dtype))
    deviation = np.sqrt([0.0, 0.4 * 0.6, 0.1 * 0.9, 0.0]) / np.sqrt(4000)
    assert (abs(np.mean(found, axis=0)[0] - rows[0]) <= 4 * deviation).all()


def test_constant_rows_are_sent_as_their_minimum() -> None:
    exchange = Exchange(ROWS, 1, bits=8)
    rows = np.array([[1.5, 1.5], [0.0, 0.0], [1.0, 1.0 + 1e-40]])
    message = encode(exchange, rows, Passage(1, 0, 0, 1))
    found = decode(exchange, message, rows.shape, rows.dtype)
    np.testing.assert_array_equal(found, rows)


def test_bfloat16_is_the_nearest_with_ties_to_even() -> None:
    """Between 1 and 2 its numbers are 1 / 128 apart."""
    numbers = np.array([1.0, 1 + 1 / 256, 1 + 3 / 256, 1 + 1.01 / 256, -2.5])
    expected = [1.0, 1.0, 1 + 2 / 128, 1 + 1 / 128, -2.5]
    assert from_bfloat16(to_bfloat16(numbers)).tolist() == expected


def test_messages_of_another_form_are_refused() -> None:
    exchange = Exchange(ROWS, 1, bits=4)
    message = encode(exchange, np.ones((3, 2)), Passage(1, 0, 0, 1))
    with pytest.raises(ValueError, match="scales of shape"):
        decode(exchange, message, (4, 2), np.dtype(float))
    short = {**message, "codes": message["codes"][2:]}
    with pytest.raises(ValueError, match="reshape"):
        decode(exchange, short, (3, 2), np.dtype(float))
