"""Text with a unit becomes a float, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.units import (
    DURATION,
    RATE,
    RATIO,
    SIZE,
    Quantity,
    format_duration,
    format_rate,
    format_ratio,
    format_size,
)

amounts = st.floats(min_value=0, max_value=1e18, allow_nan=False)
quantities = st.sampled_from([RATE, SIZE, DURATION, RATIO])


@pytest.mark.parametrize(
    ("quantity", "text", "value"),
    [
        (RATE, "50 Gbit/s", 6.25e9),
        (RATE, "1.5 GB/s", 1.5e9),
        (RATE, "10 B/s", 10.0),
        (RATE, "8 Kibit/s", 1024.0),
        (RATE, "1e3kB/s", 1e6),
        (SIZE, "48 GB", 48e9),
        (SIZE, "40 B", 40.0),
        (SIZE, " 2 Gi B".replace(" B", "B"), 2.0 * 2**30),
        (SIZE, "0.5 B", 0.5),
        (DURATION, "15 ms", 0.015),
        (DURATION, "35 ms", 0.035),
        (DURATION, "2 us", 2e-6),
        (DURATION, "-0 s", 0.0),
        (RATIO, "2 %", 0.02),
        (RATIO, 0.02, 0.02),
    ],
)
def test_reads_number_and_unit(quantity: Quantity, text: object, value: float) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    ("quantity", "text", "message"),
    [
        (RATE, 50, "a bare number (50) does not say its unit, write 50 Gbit/s"),
        (RATE, "50", "a bare number (50) does not say its unit, write 50 Gbit/s"),
        (SIZE, 48, "a bare number (48) does not say its unit, write 48 GB"),
        (DURATION, 1.5, "a bare number (1.5) does not say its unit, write 1.5 s"),
        (RATE, "50 Gbps", "'Gbps' is not a unit of a rate, write 50 Gbit/s"),
        (RATE, "50 gbit/s", "'gbit/s' is not a unit of a rate, write 50 Gbit/s"),
        (RATE, "3 GB", "'GB' is not a unit of a rate, write 3 Gbit/s"),
        (SIZE, "3 Gbit", "'Gbit' is not a unit of a size, write 3 GB"),
        (DURATION, "3 hours", "'hours' is not a unit of a time, write 3 s"),
        (SIZE, "-3 GB", "a size cannot be negative, found '-3 GB'"),
        (DURATION, "1e999 s", "a time of '1e999 s' is too large"),
        (RATE, "fast", "found 'fast' for a rate, write a rate with its unit"),
        (RATE, True, "found True for a rate"),
        (RATE, None, "found None for a rate"),
        (DURATION, "nan s", "found 'nan s' for a time"),
    ],
)
def test_says_what_would_be_right(
    quantity: Quantity, text: object, message: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared below
        quantity.parse(text)

    assert str(caught.value).startswith(message)


@given(quantities, amounts)
def test_exact_text_parses_back_to_the_same_float(
    quantity: Quantity, value: float
) -> None:
    assert quantity.parse(quantity.exact(value)) == value


@given(st.sampled_from([RATE, SIZE, DURATION]), st.floats(1e-3, 1e15))
def test_text_for_people_is_close(quantity: Quantity, value: float) -> None:
    shown = quantity.format(value).replace(",", "")

    assert quantity.parse(shown) == pytest.approx(value, rel=1e-3)


def test_formats_for_people() -> None:
    assert format_rate(6.25e9) == "50 Gbit/s"
    assert format_rate(10.0) == "10 B/s"
    assert format_size(1.5e9) == "1.5 GB"
    assert format_duration(0.015) == "15 ms"
    assert format_duration(38.0) == "38 s"
    assert format_duration(float("nan")) == "-"
    assert format_ratio(0.0123) == "+1.23 %"
    assert RATE.exact(6.25e9) == "50 Gbit/s"
    assert SIZE.exact(3e9) == "3 GB"
    assert DURATION.parse(DURATION.exact(1 / 3)) == 1 / 3
