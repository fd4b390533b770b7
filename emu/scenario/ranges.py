"""What a result may be: one value, or a range as in ``4 s .. 5 s``, ``.. 5 %``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from emu.scenario.quantities import text_schema
from emu.units import DURATION, RATIO, SIZE, Quantity

if TYPE_CHECKING:
    from collections.abc import Callable

#: One value, or (least, most), infinite where there is no limit.
Expected: TypeAlias = float | tuple[float, float]
_BETWEEN = ".."


def _parser(parse: Callable[[Any], float]) -> Callable[[object], Expected]:
    def parse_either(found: object) -> Expected:
        if isinstance(found, tuple):
            return found
        if not isinstance(found, str) or _BETWEEN not in found:
            return parse(found)
        least, most = (end.strip() for end in found.split(_BETWEEN, 1))
        if not least and not most:
            raise ValueError(f"found no limit, write one on a side of {_BETWEEN}")
        limits = (
            parse(least) if least else -math.inf,
            parse(most) if most else math.inf,
        )
        if limits[0] > limits[1]:
            raise ValueError(f"found {found!r}, write the lower limit first")
        return limits

    return parse_either


def _writer(write: Callable[[float], Any]) -> Callable[[Expected], Any]:
    def write_either(value: Expected) -> Any:
        if not isinstance(value, tuple):
            return write(value)
        ends = (str(write(end)) if math.isfinite(end) else "" for end in value)
        return f" {_BETWEEN} ".join(ends).strip()

    return write_either


def _schema(one: dict[str, Any], example: str) -> dict[str, Any]:
    many = {"type": "string", "pattern": r"\.\.", "examples": [example]}
    return {"anyOf": [*one.get("anyOf", [one]), many]}


def _number(found: object) -> float:
    number = math.nan
    if isinstance(found, int | float | str) and not isinstance(found, bool):
        try:
            number = float(found)
        except ValueError:
            number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"found {found!r}, write a number above zero")
    return number


def _quantity(quantity: Quantity) -> tuple[Any, Any]:
    return _parser(quantity.parse), _writer(quantity.exact)


_DURATION, _SIZE = _quantity(DURATION), _quantity(SIZE)

ExpectedDuration: TypeAlias = Annotated[
    float | tuple[float, float],
    BeforeValidator(_DURATION[0]),
    PlainSerializer(_DURATION[1]),
    WithJsonSchema(_schema(text_schema(DURATION, "38 s"), "4 s .. 5 s")),
]
ExpectedSize: TypeAlias = Annotated[
    float | tuple[float, float],
    BeforeValidator(_SIZE[0]),
    PlainSerializer(_SIZE[1]),
    WithJsonSchema(_schema(text_schema(SIZE, "1 GB"), "1 GB .. 2 GB")),
]
ExpectedRatio: TypeAlias = Annotated[
    float | tuple[float, float],
    BeforeValidator(_parser(RATIO.parse)),
    PlainSerializer(_writer(float)),
    WithJsonSchema(
        _schema(
            {"anyOf": [text_schema(RATIO, "5 %"), {"type": "number", "minimum": 0}]},
            "1 % .. 5 %",
        )
    ),
]
ExpectedNumber: TypeAlias = Annotated[
    float | tuple[float, float],
    BeforeValidator(_parser(_number)),
    PlainSerializer(_writer(float)),
    WithJsonSchema(_schema({"type": "number", "exclusiveMinimum": 0}, "2.1 .. 2.5")),
]
