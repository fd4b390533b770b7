"""Bytes, memory and senders of numbers, as they follow from a stated exchange."""

from __future__ import annotations

from typing import Any

import pytest

from emu.problem.workloads.exchange import (
    GRADIENTS,
    ROWS,
    Exchange,
    carries_numbers,
    is_exact,
    read_exchanges,
    to_settings,
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


def test_rows_of_few_bits_share_bytes_column_by_column() -> None:
    """Three of seven rows, 2 bits of each in a byte, beside 4 bytes of every row."""
    halved = Exchange(ROWS, 2, share=0.5, bits=2)
    assert halved.count_rows(7) == 3
    assert halved.message_bytes(7, 5, 8) == 1 * 5 + 1 + 4 * 3
    # Five rows of 4 bits take three bytes in each of nine columns.
    assert Exchange(ROWS, 2, bits=4).message_bytes(5, 9, 8) == 3 * 9 + 1 + 4 * 5
    assert Exchange(ROWS, 2, bits=8).message_bytes(5, 9, 8) == 5 * 9 + 1 + 4 * 5
    # Seven rows of 2 bits take two bytes, and eight of them as many.
    two_bits = Exchange(ROWS, 2, bits=2)
    assert two_bits.message_bytes(7, 1, 8) == 2 + 1 + 4 * 7
    assert two_bits.message_bytes(8, 1, 8) == 2 + 1 + 4 * 8
    assert two_bits.message_bytes(9, 1, 8) == 3 + 1 + 4 * 9
    # A byte is always sent.
    assert Exchange(ROWS, 2, bits=4).message_bytes(0, 9, 8) == 1
    assert Exchange(ROWS, 2, share=0.5).message_bytes(7, 5, 8) == 3 * 5 * 8


def test_rows_are_sent_in_every_so_many_epochs_from_the_first_on() -> None:
    exchange = Exchange(ROWS, 1, every=3)
    assert [exchange.sends(epoch) for epoch in range(7)] == [1, 0, 0, 1, 0, 0, 1]
    assert exchange.remembers
    assert not Exchange(ROWS, 1, age=1).is_exact
    assert not Exchange(ROWS, 1, share=0.5).is_exact
    assert not Exchange(ROWS, 1, bits=8).is_exact


def test_a_job_is_exact_where_all_its_exchanges_are_or_it_has_one_part() -> None:
    exact = Exchange(ROWS, 1)
    late = Exchange(GRADIENTS, 2, age=1)
    both = {"exchanges": to_settings([exact, late]), "parts": 2}

    assert read_exchanges(both) == (exact, late)
    assert is_exact({"exchanges": to_settings([exact])})
    assert not is_exact(both)
    assert is_exact({**both, "parts": 1})
    assert is_exact({})


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"content": "labels"}, "found 'labels', write"),
        ({"layer": 0}, "layers are numbered from 1"),
        ({"age": -1}, "found age -1, every 1"),
        ({"every": 0}, "found age 0, every 0"),
        ({"share": 0.0}, "found share 0, write more than 0, at most 1"),
        ({"share": 1.5}, "found share 1.5"),
        ({"whole": True, "share": 0.5}, "a share of whole parts"),
        ({"numbered": True, "whole": True}, "found numbers beside rows"),
        ({"numbered": True, "share": 0.5}, "found numbers beside rows"),
        ({"numbered": True, "bits": 4}, "found numbers beside rows"),
        ({"bits": 3}, "found 3 bits, write"),
        ({"smoothing": 1.0}, "smoothing"),
    ],
)
def test_an_exchange_that_cannot_be_says_what_would_be_right(
    keys: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Exchange(**{"content": ROWS, "layer": 1, **keys})
    assert Exchange(ROWS, 1, age=0, every=1, share=1.0).is_exact
