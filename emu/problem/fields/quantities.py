"""Field types of scenario files: text with a unit outside, floats inside.

Each type parses with `emu.units`, writes itself back as text that parses to the same
float, and describes itself in the JSON Schema, so that editors complete units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    Strict,
    WithJsonSchema,
)

from emu.names import check_name
from emu.units import DURATION, MONEY, PRICE, RATE, RATIO, SIZE, Quantity

T = TypeVar("T")
#: A JSON Schema.
Schema: TypeAlias = dict[str, Any]
#: A time or volume, or one per iteration.
PerIteration: TypeAlias = float | tuple[float, ...]
#: A time, or one per device.
PerDevice: TypeAlias = float | dict[str, float]
#: What reads a value of a file, or raises ValueError.
Parser: TypeAlias = Callable[[object], Any]
#: Without a minus: no quantity of a scenario is negative.
_NUMBER_PATTERN = r"^\s*\+?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"
#: What other devices take, in times that differ by device.
DEFAULT_DEVICE = "default"
#: As bounded as DistDGL and GLT are by default (specs, A1), in every command.
DEFAULT_WINDOW = 4
_PORTS = re.compile(r"(\d{1,5})\s*-\s*(\d{1,5})")
#: Between the ends of a range, either of which may be left out.
_BETWEEN = ".."


def text_schema(quantity: Quantity, example: str) -> Schema:
    """Return the JSON Schema of a quantity written as text."""
    names = [name for name in quantity.units if name]
    # The longest first, as a pattern takes the first that fits.
    names.sort(key=len, reverse=True)
    units = "|".join(names).replace("$", r"\$")
    return {
        "type": "string",
        "pattern": f"{_NUMBER_PATTERN}({units})\\s*$",
        "examples": [example],
        "description": f"{quantity.what}, for example {example!r}",
    }


def _positive(value: float) -> float:
    if not value > 0:
        raise ValueError("found zero, write more than that")
    return value


def only_if(holds: Callable[[float], bool], problem: str) -> AfterValidator:
    """Return the validator of numbers that hold; ``{0}`` of the problem is another."""

    def check(value: float) -> float:
        if not holds(value):
            raise ValueError(problem.format(value))
        return value

    return AfterValidator(check)


def _each(quantity: Quantity) -> Callable[[object], PerIteration]:
    def parse(found: object) -> PerIteration:
        if not isinstance(found, list | tuple):
            return quantity.parse(found)
        if not found:
            raise ValueError("found an empty list, write one value per iteration")
        values = []
        for iteration, text in enumerate(found):
            try:
                value = quantity.parse(text)
            except ValueError as error:
                raise ValueError(f"iteration {iteration}: {error}") from error
            values.append(value)
        return tuple(values)

    return parse


def _each_exact(quantity: Quantity) -> Callable[[PerIteration], str | list[str]]:
    def write(value: PerIteration) -> str | list[str]:
        if isinstance(value, tuple):
            return [quantity.exact(element) for element in value]
        return quantity.exact(value)

    return write


def _either_schema(quantity: Quantity, example: str) -> Schema:
    value = text_schema(quantity, example)
    values = {"type": "array", "items": value, "minItems": 1}
    return {
        "anyOf": [value, values],
        "description": f"{quantity.what}, one for all iterations or one per iteration",
    }


def _or_by_device(parse: Parser) -> Parser:
    """Return a parser of what ``parse`` takes, or of a time per device.

    Times of devices are above zero, or zero on all of them: a machine takes a task's
    time over the default's, which has to be a number.
    """

    def parse_either(found: object) -> Any:
        if not isinstance(found, dict):
            return parse(found)

        times = {}
        for device, text in found.items():
            try:
                times[check_name(device)] = DURATION.parse(text)
            except ValueError as error:
                raise ValueError(f"{device}: {error}") from error

        if DEFAULT_DEVICE not in times:
            raise ValueError(
                "found no default, write what other devices take as well, for example "
                "{default: 40 ms, a100: 12 ms}"
            )
        # A ratio to no time at all is no number.
        without_time = [device for device, seconds in times.items() if not seconds]
        if len(without_time) == len(times):
            return parse("0 s")
        if without_time:
            first = without_time[0]
            raise ValueError(
                f"{first}: found zero beside times above it, which have no "
                "ratio: write for example 1 ns"
            )
        return times

    return parse_either


def write_times(value: Any) -> Any:
    """Return times, or one per device, as a scenario states them."""
    if isinstance(value, dict):
        return {device: DURATION.exact(time) for device, time in value.items()}
    return _each_exact(DURATION)(value)


def times_schema(schema: Schema) -> Schema:
    """Return the JSON Schema of times for all devices, or for each."""
    devices = {
        "type": "object",
        "additionalProperties": text_schema(DURATION, "40 ms"),
        "required": [DEFAULT_DEVICE],
    }
    choices = schema.get("anyOf", [schema])
    return {"anyOf": [*choices, devices]}


def default_time(time: T | dict[str, float]) -> T | float:
    """Return a stated time, of the default device where it differs by device."""
    if isinstance(time, dict):
        return time[DEFAULT_DEVICE]
    return time


def time_on(time: PerDevice, device: str) -> float:
    """Return a stated time on a device."""
    if not isinstance(time, dict):
        return time
    other_devices = time[DEFAULT_DEVICE]
    return time.get(device, other_devices)


def combine(function: Callable[..., float], *times: PerDevice) -> PerDevice:
    """Return a function of stated times, on every device of any of them."""
    devices: set[str] = set()
    for time in times:
        if isinstance(time, dict):
            devices.update(time)
    if not devices:
        return function(*times)

    results = {}
    # Sorted: a set of texts has another order in every process.
    for device in sorted(devices):
        times_there = [time_on(time, device) for time in times]
        results[device] = function(*times_there)
    return results


#: Cores or devices of a machine: some write a million for as many as one likes, and
#: more than a billion are bytes.
_MOST_PIECES = 10**9
#: Of any other resource, in whatever unit: as of sizes.
_MOST_AMOUNT = 1e18


def _amount(found: object) -> float:
    if isinstance(found, str):
        return SIZE.parse(found)
    if isinstance(found, dict) and found:
        key, value = next(iter(found.items()))
        raise ValueError(
            f"found {found!r}, but a key that is not known is the amount of one "
            f"resource: write {key}: {value} without a key above it"
        )

    kind = "a number or a size such as '48 GB'"
    return _up_to(found, kind, most=_MOST_AMOUNT)


def _pieces(found: object) -> float:
    kind = (
        "how many, a number without a unit such as 2; sizes are memory and gpu_memory"
    )
    return _up_to(found, kind, most=_MOST_PIECES)


def _up_to(found: object, kind: str, *, most: float) -> float:
    """Return a number from 0 to the most; raise ValueError for anything else."""
    # A truth value is a whole number to Python.
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"found {found!r}, write {kind}")  # noqa: TRY004 - pydantic collects ValueErrors
    if not found >= 0:  # nor nan
        raise ValueError(f"found {found}, write a number that is not negative")
    # A whole number of YAML has as many digits as it likes.
    if found > most:
        raise ValueError(f"found {found}, write {most:g} or less")
    return float(found)


def _share(value: float) -> float | str:
    """Return a share as a scenario has it: above 1 with its unit."""
    if value > RATIO.most_bare:
        return RATIO.exact(value)
    return value


def _share_schema(example: str) -> Schema:
    bare = {
        "type": "number",
        "minimum": 0,
        "maximum": RATIO.most_bare,
    }
    return {"anyOf": [text_schema(RATIO, example), bare]}


def _multiple(found: object) -> object:
    # A number is one whatever its size, where a share above 1 has to say its unit.
    if isinstance(found, str):
        return RATIO.parse(found)
    return found


def _multiple_schema(example: str) -> Schema:
    bare = {"type": "number", "exclusiveMinimum": 0}
    return {"anyOf": [text_schema(RATIO, example), bare]}


def _as_text(quantity: Quantity, example: str) -> tuple[Any, ...]:
    """Return how a quantity is written as text, and read."""
    schema = text_schema(quantity, example)
    return (
        BeforeValidator(quantity.parse),
        PlainSerializer(quantity.exact, return_type=str),
        WithJsonSchema(schema),
    )


def _by_device(parse: Parser, schema: Schema) -> tuple[Any, ...]:
    """Return how a time is written for all devices, or for each, and read."""
    return (
        BeforeValidator(_or_by_device(parse)),
        PlainSerializer(write_times),
        WithJsonSchema(times_schema(schema)),
    )


Rate: TypeAlias = Annotated[
    float, *_as_text(RATE, "50 Gbit/s"), AfterValidator(_positive)
]
Size: TypeAlias = Annotated[float, *_as_text(SIZE, "48 GB")]
Duration: TypeAlias = Annotated[float, *_as_text(DURATION, "15 ms")]
Money: TypeAlias = Annotated[float, *_as_text(MONEY, "0.20 $")]
#: Dollars per hour.
Price: TypeAlias = Annotated[float, *_as_text(PRICE, "0.34 $/h")]
#: ``2 %`` or 0.02.
Ratio: TypeAlias = Annotated[
    float,
    BeforeValidator(RATIO.parse),
    PlainSerializer(_share),
    WithJsonSchema(_share_schema("2 %")),
]
#: Multiple of an average, which may be more than one: 2 is 200 %.
Multiple: TypeAlias = Annotated[
    float,
    BeforeValidator(_multiple),
    WithJsonSchema(_multiple_schema("20 %")),
]
#: Amount of a resource: a number, or a size in bytes.
Amount: TypeAlias = Annotated[
    float,
    BeforeValidator(_amount),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                text_schema(SIZE, "1 TB"),
            ]
        }
    ),
]
#: Cores or devices, of which a task may take a part.
Pieces: TypeAlias = Annotated[
    float,
    BeforeValidator(_pieces),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": _MOST_PIECES}),
]
#: One, or ``{default: 40 ms, a100: 12 ms}``.
DurationPerDevice: TypeAlias = Annotated[
    PerDevice,
    *_by_device(DURATION.parse, text_schema(DURATION, "15 ms")),
]
#: The same above zero.
RatePerDevice: TypeAlias = Annotated[
    PerDevice,
    *_by_device(
        lambda text: _positive(DURATION.parse(text)),
        text_schema(DURATION, "20 ps"),
    ),
]
DurationPerIteration: TypeAlias = Annotated[
    PerIteration | dict[str, float],
    *_by_device(_each(DURATION), _either_schema(DURATION, "15 ms")),
]
SizePerIteration: TypeAlias = Annotated[
    PerIteration,
    BeforeValidator(_each(SIZE)),
    PlainSerializer(_each_exact(SIZE), return_type=str | list[str]),
    WithJsonSchema(_either_schema(SIZE, "40 B")),
]

#: The most of whatever is counted.
MOST_COUNT = 10**7
#: Whole numbers: no text, no truth values, no 2.5.
Count: TypeAlias = Annotated[int, Strict(), Field(ge=1, le=MOST_COUNT)]
#: K of a credit window.
Window: TypeAlias = Count | Literal["unlimited"]
#: Of machines or processes: 10,000 of a kind are beyond any host, not beyond a typo.
MOST_FEW = 10_000
Few: TypeAlias = Annotated[int, Strict(), Field(ge=1, le=MOST_FEW)]
Index: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=10**7)]
Seed: TypeAlias = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Positive: TypeAlias = Annotated[
    float, Strict(), Field(gt=0, allow_inf_nan=False, le=1e12)
]
#: Characters of a name of a machine, link or task.
MOST_LETTERS = 100
Name: TypeAlias = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=MOST_LETTERS),
    AfterValidator(check_name),
]
#: A path; those of a file are relative to the file, those of --set to where it runs.
FilePath: TypeAlias = Annotated[str, Strict(), Field(min_length=1, max_length=4096)]

#: Names that become parts of file names and of ``g0->s0#2``. The pattern stands before
#: the check: behind it the JSON Schema would have none.
TaskName: TypeAlias = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=MOST_LETTERS, pattern=r"^[^\s/\\>#]+$"),
    AfterValidator(check_name),
]
FileName: TypeAlias = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=MOST_LETTERS, pattern=r"^[^/\\]+$"),
    AfterValidator(check_name),
]


def _ports(found: object) -> tuple[int, int]:
    # From Python the two ends come as they are.
    if isinstance(found, tuple):
        found = "-".join(map(str, found))
    # Nothing else than a range has a first port above 0.
    first = last = 0
    if isinstance(found, str):
        ends = _PORTS.fullmatch(found)
        if ends:
            first, last = map(int, ends.groups())

    if not 1 <= first <= last < 1 << 16:
        raise ValueError(
            f"found {found!r}, write the first and the last of a range of ports, for "
            "example 20000-20100"
        )
    return first, last


#: ``20000-20100``.
Ports: TypeAlias = Annotated[
    tuple[int, int],
    BeforeValidator(_ports),
    PlainSerializer(lambda ends: f"{ends[0]}-{ends[1]}", return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": _PORTS.pattern,
            "examples": ["20000-20100"],
        }
    ),
]


def word_or_list(word: str, schema: Schema) -> tuple[Any, ...]:
    """Return what makes the type of a tuple one for which ``word`` may stand: empty."""

    def parse(found: object) -> object:
        if found == word:
            return ()
        if found in ([], ()):
            raise ValueError(f"found an empty list, write numbers, or {word}")
        if isinstance(found, list) and word in found:
            raise ValueError(f"found {word} in a list, write numbers, or {word} alone")
        if isinstance(found, str):
            raise ValueError(f"found {found!r}, write a list or {word}")  # noqa: TRY004 - pydantic collects ValueErrors
        return found

    list_schema = {"type": "array", "items": schema, "minItems": 1}
    return (
        BeforeValidator(parse),
        PlainSerializer(lambda values: list(values) or word, return_type=Any),
        WithJsonSchema({"anyOf": [list_schema, {"const": word}]}),
    )


#: One value, or (least, most), infinite where there is no limit.
Expected: TypeAlias = float | tuple[float, float]


def _value_or_range(
    parse: Callable[[Any], float],
    write: Callable[[float], Any],
    schema: Schema,
    example: str,
) -> tuple[Any, ...]:
    """Return what makes `Expected` the type of values in the words of ``parse``."""

    def parse_either(found: object) -> Expected:
        if isinstance(found, tuple):
            return found
        if not isinstance(found, str) or _BETWEEN not in found:
            return parse(found)

        lower, _, upper = found.partition(_BETWEEN)
        lower = lower.strip()
        upper = upper.strip()
        if not lower and not upper:
            raise ValueError(f"found no limit, write one on a side of {_BETWEEN}")
        least = parse(lower) if lower else -math.inf
        most = parse(upper) if upper else math.inf
        if least > most:
            raise ValueError(f"found {found!r}, write the lower limit first")
        return least, most

    def write_either(value: Expected) -> Any:
        if not isinstance(value, tuple):
            return write(value)
        # An end without a limit is left out.
        ends = [str(write(end)) if math.isfinite(end) else "" for end in value]
        return f" {_BETWEEN} ".join(ends).strip()

    limits = {"type": "string", "pattern": r"\.\.", "examples": [example]}
    choices = schema.get("anyOf", [schema])
    return (
        BeforeValidator(parse_either),
        PlainSerializer(write_either),
        WithJsonSchema({"anyOf": [*choices, limits]}),
    )


def _number(found: object) -> float:
    # NaN stands for whatever is no number: one error for all.
    number = math.nan
    is_bool = isinstance(found, bool)
    if isinstance(found, int | float | str) and not is_bool:
        with suppress(ValueError):
            number = float(found)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"found {found!r}, write a number above zero")
    return number


ExpectedDuration: TypeAlias = Annotated[
    Expected,
    *_value_or_range(
        DURATION.parse, DURATION.exact, text_schema(DURATION, "38 s"), "4 s .. 5 s"
    ),
]
ExpectedSize: TypeAlias = Annotated[
    Expected,
    *_value_or_range(SIZE.parse, SIZE.exact, text_schema(SIZE, "1 GB"), "1 GB .. 2 GB"),
]
ExpectedRatio: TypeAlias = Annotated[
    Expected, *_value_or_range(RATIO.parse, _share, _share_schema("5 %"), "1 % .. 5 %")
]
ExpectedNumber: TypeAlias = Annotated[
    Expected,
    *_value_or_range(
        _number, float, {"type": "number", "exclusiveMinimum": 0}, "2.1 .. 2.5"
    ),
]
