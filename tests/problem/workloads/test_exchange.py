"""Bytes, memory and senders of numbers, as they follow from a stated exchange."""

from __future__ import annotations

from emu.problem.workloads.exchange import (
    GRADIENTS,
    ROWS,
    Exchange,
    carries_numbers,
)


def test_numbers_of_vertices_stand_beside_rows() -> None:
    plain = Exchange(ROWS, 2)
    numbered = Exchange(ROWS, 2, numbered=True)
    assert plain.message_bytes(5, 3, 8) == 5 * 3 * 8
    assert numbered.message_bytes(5, 3, 8) == 5 * (3 * 8 + 4)


def test_the_first_drawn_rows_tell_which_these_are() -> None:
    exchanges = [
        Exchange(GRADIENTS, 2, share=0.5),
        Exchange(ROWS, 4, share=0.5),
        Exchange(ROWS, 1),
        Exchange(ROWS, 3, share=0.5),
    ]
    telling = [carries_numbers(exchange, exchanges) for exchange in exchanges]
    assert telling == [False, False, False, True]


def test_a_mean_of_earlier_rows_is_no_value_of_its_epoch() -> None:
    smoothed = Exchange(ROWS, 2, smoothing=0.5)
    assert smoothed.remembers
    assert not smoothed.is_exact
    assert Exchange(ROWS, 2).is_exact
