"""Text with a unit becomes a float, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from emu.units import (
    DURATION,
    RATE,
    RATIO,
    SIZE,
    Quantity,
    format_count,
    format_duration,
    format_number,
    format_rate,
    format_ratio,
    format_size,
)

amounts = st.floats(min_value=0, max_value=1e18, exclude_max=True, allow_nan=False)
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
        (RATIO, "2 percent", 0.02),
        (RATE, "10 Gb/s", 1.25e9),
        (RATE, "10 Gbps", 1.25e9),
        (RATE, "10 gbps", 1.25e9),
        (RATE, "10 Mbit/sec", 1.25e6),
        (RATE, "10 Gbit / s", 1.25e9),
        (RATE, "10 GB/s", 1e10),
        (RATE, "1 GiB/s", 2.0**30),
        (SIZE, "48 KB", 48e3),
        (SIZE, "48 bytes", 48.0),
        (DURATION, "15 msec", 0.015),
        (DURATION, "15 \u00b5s", 15e-6),
        (DURATION, "15 \u03bcs", 15e-6),
        (DURATION, "2 min", 120.0),
        (DURATION, "1.5 hours", 5400.0),
        (RATIO, 0.02, 0.02),
        (DURATION, "5e-324 s", 5e-324),
        (DURATION, "0.0e-999 s", 0.0),
        (SIZE, "-0e5 B", 0.0),
    ],
)
def test_reads_number_and_unit(quantity: Quantity, text: object, value: float) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    ("quantity", "text", "message"),
    [
        (RATE, 50, "a bare number (50) does not say its unit: add one of Gbit/s, "),
        (RATE, "50", "a bare number (50) does not say its unit: add one of Gbit/s, "),
        (SIZE, 48, "a bare number (48) does not say its unit: add one of TB, GB, "),
        (DURATION, 15, "a bare number (15) does not say its unit: add one of s, ms, "),
        (RATE, "50 gb/s", "'gb/s' may be Gbit/s or GB/s: write which"),
        (RATE, "50 GBPS", "'GBPS' may be Gbit/s or GB/s: write which"),
        (RATE, "3 GB", "'GB' is not a unit of a rate, write one of Gbit/s, GB/s, "),
        (SIZE, "3 Gbit", "'Gbit' may be GB (bytes) or an eighth of it (bits)"),
        (DURATION, "3 m", "'m' may be min or ms: write which"),
        (DURATION, "3 years", "'years' is not a unit of a time, write one of s, ms, "),
        (SIZE, "1,000 MB", "found '1,000 MB' for a size, write a number and its unit"),
        (SIZE, "-3 GB", "a size cannot be negative, found '-3 GB'"),
        (DURATION, "1e999 s", "a time of '1e999 s' is too large"),
        (DURATION, "1e15 h", "a time of '1e15 h' is too large"),
        (SIZE, "1e6 TB", "a size of '1e6 TB' is too large"),
        (DURATION, "1e-400 s", "a time of '1e-400 s' is too small"),
        (DURATION, "1e-320 ns", "a time of '1e-320 ns' is too small"),
        (RATE, "0.01e-400 B/s", "a rate of '0.01e-400 B/s' is too small"),
        (SIZE, "-1e-400 B", "a size of '-1e-400 B' is too small"),
        (RATE, "fast", "found 'fast' for a rate, write a number and its unit"),
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


@pytest.mark.parametrize("quantity", [SIZE, DURATION])
def test_exact_text_of_the_largest_values(quantity: Quantity) -> None:
    """A sum may be beyond what a file may state, which alone is refused."""
    largest = math.nextafter(quantity.limit, 0)
    text = quantity.exact(2.5 * quantity.limit)

    assert quantity.parse(quantity.exact(largest)) == largest
    with pytest.raises(ValueError, match="too large"):
        quantity.parse(text)


#: What people write besides, and what it means. Nothing of it is in the code's tables.
PREFIX: dict[str, float] = {
    "": 1,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Gi": 2**30,
}
WORDS: dict[str, dict[str, float]] = {
    "a rate": {
        "bit/s": 1 / 8,
        "b/s": 1 / 8,
        "bps": 1 / 8,
        "B/s": 1,
        "Bps": 1,
        "bit": 0,
    },
    "a size": {"B": 1, "bytes": 1, "b": 0, "bit": 0, "B/s": 0},
}
TIMES: dict[str, float] = {
    "us": 1e-6,
    "msec": 1e-3,
    "s": 1,
    "sec": 1,
    "min": 60,
    "h": 3600,
    "m": 0,
}


@given(st.data(), st.integers(1, 10**6))
def test_what_is_written_is_taken_as_meant_or_refused_without_another_value(
    data: st.DataObject, number: int
) -> None:
    quantity = data.draw(st.sampled_from([RATE, SIZE, DURATION]))
    if quantity is DURATION:
        unit, factor = data.draw(st.sampled_from(sorted(TIMES.items())))
    else:
        prefix = data.draw(st.sampled_from(sorted(PREFIX)))
        word, factor = data.draw(st.sampled_from(sorted(WORDS[quantity.what].items())))
        unit, factor = prefix + word, PREFIX[prefix] * factor
    text = f"{number}{data.draw(st.sampled_from(['', ' ']))}{unit}"
    if factor:
        assert quantity.parse(text) == pytest.approx(number * factor, rel=1e-12)
        return
    with pytest.raises(ValueError, match=re.escape(unit)) as caught:
        quantity.parse(text)
    proposed = re.findall(rf"\b{number} [A-Za-z]", str(caught.value).split("as in")[0])
    assert not proposed


@given(quantities, st.floats(1e-9, 1e12), st.data())
def test_every_spelling_goes_there_and_back(
    quantity: Quantity, number: float, data: st.DataObject
) -> None:
    unit = data.draw(st.sampled_from(sorted(quantity.units)))
    assume(unit or number <= quantity.most_bare)
    numerator, denominator = quantity.units[unit]
    assume(number * numerator / denominator < quantity.limit)
    value = quantity.parse(f"{number!r} {unit}")

    assert quantity.parse(quantity.exact(value)) == value


@given(
    st.floats(1.0, 1e6, exclude_min=True), st.sampled_from([str, repr, "{:g}".format])
)
def test_a_bare_share_above_one_is_refused(
    value: float, write: Callable[[float], str]
) -> None:
    text = write(value)
    if float(text) > 1:
        with pytest.raises(ValueError, match=f"for a share, write {re.escape(text)} %"):
            RATIO.parse(text)
    assert RATIO.parse(f"{text} %") == pytest.approx(float(text) / 100)


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
    # 300 digits are of no use, and most of them no more than a float's rounding.
    assert format_duration(1.25e305) == "1.25e+305 s"
    assert format_duration(1.25e14) == "125,000,000,000,000 s"
    assert format_ratio(0.0123) == "+1.23 %"
    assert format_ratio(-5e-5) == "-0.005 %"
    assert format_ratio(2.2e-16) == "0 %"
    assert format_ratio(12.34) == "+1,230 %"
    assert [format_number(v, 4) for v in (10478.6, 1234, 0.25)] == [
        "10,480",
        "1,234",
        "0.25",
    ]
    assert [format_number(v, 2, "+") for v in (150, -1230)] == ["+150", "-1,200"]
    assert format_number(math.inf, 4) == "inf"
    assert format_duration(1.17e-15) == "0 us"
    assert RATE.exact(6.25e9) == "50 Gbit/s"
    assert SIZE.exact(3e9) == "3 GB"
    assert DURATION.parse(DURATION.exact(1 / 3)) == 1 / 3


@pytest.mark.parametrize(
    ("prefix", "factor"),
    [
        ("", 1), ("k", 10**3), ("K", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12),
        ("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30), ("Ti", 2**40),
    ],
)  # fmt: skip
def test_every_prefix_is_its_power(prefix: str, factor: int) -> None:
    assert SIZE.parse(f"3 {prefix}B") == 3 * factor
    assert RATE.parse(f"3 {prefix}B/s") == 3 * factor
    assert RATE.parse(f"16 {prefix}bit/s") == 2 * factor


def test_less_than_nothing_by_a_sign_only_is_written_as_nothing() -> None:
    for quantity, unit in ((DURATION, "s"), (SIZE, "B"), (RATE, "B/s")):
        text = quantity.exact(quantity.parse(f"-0 {unit}"))
        assert text == quantity.exact(quantity.parse(f"0 {unit}"))


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (0, "flow", "0 flows"),
        (1, "flow", "1 flow"),
        (1, "process", "1 process"),
        (1200, "process", "1,200 processes"),
    ],
)
def test_one_of_a_kind_is_no_plural(count: int, noun: str, words: str) -> None:
    assert format_count(count, noun) == words
