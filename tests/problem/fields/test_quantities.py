"""Quantities: what a file may say, how it is written back, and times by device."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from emu.problem.fields import quantities
from emu.problem.fields.quantities import (
    DEFAULT_DEVICE,
    combine,
    default_time,
    time_on,
    word_or_list,
)
from emu.problem.fields.suggestion import nearest

DEVICES = ("a100", "h100", "cpu")
SECONDS = st.floats(0.0, 10.0)


@st.composite
def stated_times(draw: st.DrawFn) -> float | dict[str, float]:
    """Draw a time of all devices, or a default with times of some of them."""
    if draw(st.booleans()):
        return draw(SECONDS)
    times = draw(st.dictionaries(st.sampled_from(DEVICES), SECONDS, max_size=2))
    return times | {DEFAULT_DEVICE: draw(SECONDS)}


def weighted(*seconds: float) -> float:
    """Return a number in which no two of the times may change places."""
    return sum(place * value for place, value in enumerate(seconds, 1))


@given(st.lists(stated_times(), min_size=1, max_size=3))
def test_a_device_has_what_its_own_times_make(
    times: list[float | dict[str, float]],
) -> None:
    found = combine(weighted, *times)

    # The last one is a device that no time names.
    for device in (*DEVICES, DEFAULT_DEVICE, "tpu"):
        expected = weighted(*(time_on(time, device) for time in times))
        assert time_on(found, device) == expected
    assert isinstance(found, dict) == any(isinstance(time, dict) for time in times)


def adapter(name: str) -> TypeAdapter[Any]:
    """Return what reads and writes the type of this name."""
    return TypeAdapter(getattr(quantities, name))


#: Type, what a file says, what it means, and how it is written back.
GOOD: tuple[tuple[str, Any, Any, Any], ...] = (
    ("Rate", "2 kB/s", 2000.0, "2 kB/s"),
    ("DurationPerIteration", ["1 s", "2 s"], (1.0, 2.0), ["1 s", "2 s"]),
    ("DurationPerIteration", "3 s", 3.0, "3 s"),
    ("SizePerIteration", ("1 B", "5 B"), (1.0, 5.0), ["1 B", "5 B"]),
    (
        "DurationPerDevice",
        {"default": "4 s", "a100": "1 s"},
        {"default": 4.0, "a100": 1.0},
        {"default": "4 s", "a100": "1 s"},
    ),
    ("DurationPerDevice", {"default": "0 s", "a100": "0 s"}, 0.0, "0.0 s"),
    ("Amount", "2 kB", 2000.0, 2000.0),
    ("Amount", 0, 0.0, 0.0),
    ("Amount", 1e18, 1e18, 1e18),
    ("Pieces", 2.5, 2.5, 2.5),
    ("Ratio", 0.02, 0.02, 0.02),
    ("Ratio", "2 %", 0.02, 0.02),
    ("Ratio", "250 %", 2.5, "250 %"),
    ("Ports", "20000-20100", (20000, 20100), "20000-20100"),
    ("Ports", (1, 65535), (1, 65535), "1-65535"),
    ("Ports", "7-7", (7, 7), "7-7"),
    ("ExpectedDuration", "4 s", 4.0, "4 s"),
    ("ExpectedDuration", (4.0, 5.0), (4.0, 5.0), "4 s .. 5 s"),
    ("ExpectedDuration", "4 s .. 5 s", (4.0, 5.0), "4 s .. 5 s"),
    ("ExpectedDuration", "4 s .. 4 s", (4.0, 4.0), "4 s .. 4 s"),
    ("ExpectedDuration", "4 s ..", (4.0, math.inf), "4 s .."),
    ("ExpectedDuration", ".. 5 s", (-math.inf, 5.0), ".. 5 s"),
)


@pytest.mark.parametrize(("name", "found", "value", "written"), GOOD)
def test_a_quantity_is_read_and_written(
    name: str, found: Any, value: Any, written: Any
) -> None:
    kind = adapter(name)

    assert kind.validate_python(found) == value
    assert kind.dump_python(kind.validate_python(found), mode="json") == written
    assert kind.validate_python(written) == value


#: Type, what a file says, and what is wrong with it.
BAD: tuple[tuple[str, Any, str], ...] = (
    ("Rate", "0 B/s", "found zero, write more than that"),
    ("DurationPerIteration", [], "found an empty list"),
    ("DurationPerIteration", ["1 s", "2 B"], "iteration 1: "),
    ("DurationPerDevice", {"a100": "1 s"}, "found no default"),
    ("DurationPerDevice", {"default": "1 B"}, "default: "),
    ("DurationPerDevice", {"default": "1 s", "x": "0 s", "y": "0 s"}, "x: found zero"),
    ("RatePerDevice", "0 s", "found zero"),
    ("Amount", {"cpu": 2}, "write cpu: 2 without a key above it"),
    ("Amount", {}, "write a number or a size"),
    ("Amount", True, "found True, write a number or a size"),
    ("Amount", -1, "a number that is not negative"),
    ("Amount", math.nan, "a number that is not negative"),
    ("Amount", 2 * 10**18, "write 1e.18 or less"),
    ("Pieces", "2 kB", "how many, a number without a unit"),
    ("Ports", "0-5", "the first and the last of a range"),
    ("Ports", "6-5", "the first and the last of a range"),
    ("Ports", "5-65536", "the first and the last of a range"),
    ("Ports", 5, "the first and the last of a range"),
    ("Ports", "five", "the first and the last of a range"),
    ("ExpectedDuration", "..", "found no limit"),
    ("ExpectedDuration", "5 s .. 4 s", "the lower limit first"),
    ("ExpectedDuration", 5, "does not say its unit"),
)


@pytest.mark.parametrize(("name", "found", "story"), BAD)
def test_a_quantity_that_cannot_be_is_refused(
    name: str, found: Any, story: str
) -> None:
    with pytest.raises(ValidationError, match=story):
        adapter(name).validate_python(found)


@pytest.mark.parametrize("found", [True, 0, -1, math.inf, "x", None, "0.0"])
def test_a_number_above_zero_is_nothing_else(found: object) -> None:
    with pytest.raises(ValueError, match="write a number above zero"):
        quantities._number(found)
    assert (quantities._number("0.5"), quantities._number(2)) == (0.5, 2.0)


def test_a_word_stands_for_an_empty_list() -> None:
    kind: TypeAdapter[Any] = TypeAdapter(
        Annotated[tuple[int, ...], *word_or_list("all", {"type": "integer"})]
    )

    assert kind.validate_python("all") == ()
    assert kind.validate_python([3, 4]) == (3, 4)
    assert kind.dump_python((), mode="json") == "all"
    assert kind.dump_python((3, 4), mode="json") == [3, 4]
    for found, story in (
        ([], "an empty list"),
        ([3, "all"], "all in a list"),
        ("none", "write a list or all"),
    ):
        with pytest.raises(ValidationError, match=story):
            kind.validate_python(found)


def test_the_time_of_a_default_device_stands_for_others() -> None:
    assert default_time(3.0) == 3.0
    assert default_time({"default": 4.0, "a100": 1.0}) == 4.0


def test_the_nearest_of_some_words_is_named() -> None:
    assert "'gpus'" in nearest("gpu", ["cores", "gpus", "gpu_memory"])
    assert "cores" in nearest("zzz", ["cores", "gpus"])


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("Count", [1, 10_000_000], [0, 10_000_001, True, 2.0, "3"]),
        ("Window", [1, 10_000_000, "unlimited"], [0, 10_000_001, "none"]),
        ("Few", [1, 10_000], [0, 10_001, True]),
        ("Index", [0, 10_000_000], [-1, 10_000_001, 2.0]),
        ("Seed", [0, 9_223_372_036_854_775_807], [-1, 9_223_372_036_854_775_808]),
        ("Positive", [1e-300, 1e12], [0.0, -1.0, 1.0001e12, math.inf, math.nan]),
        ("Name", ["a", 100 * "a"], ["", 101 * "a", 7]),
    ],
)
def test_numbers_and_names_have_bounds(
    name: str, taken: list[Any], refused: list[Any]
) -> None:
    adapter = TypeAdapter(getattr(quantities, name))
    assert [adapter.validate_python(value) for value in taken] == taken
    for value in refused:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_the_likest_word_alone_is_suggested() -> None:
    assert nearest("gpus", ["gpu", "gpu_s", "cpu"]) == "did you mean 'gpu_s'?"
    assert nearest("xyz", ["gpu", "cpu"]) == "known: gpu, cpu"
    assert nearest("xyz", []) == "there are none"


def test_schemas_of_lists_ask_for_one_value_or_more() -> None:
    """Sizes per iteration, and numbers for which a word may stand."""
    numbers: Any = Annotated[
        tuple[int, ...], *word_or_list("none", {"type": "integer"})
    ]
    kinds: list[Any] = [
        quantities.SizePerIteration,
        quantities.DurationPerIteration,
        numbers,
    ]
    for kind in kinds:
        schema = TypeAdapter(kind).json_schema()
        assert '"minItems": 1' in json.dumps(schema)
        assert '"minItems": 2' not in json.dumps(schema)
