"""The one place for units: text with a unit becomes a float, and back.

Inside the code there are seconds, bytes, bytes per second, plain ratios, dollars and
dollars per hour, nothing else. Must not know: what a quantity is for.
"""

from emu.units.quantity import (
    DURATION,
    MONEY,
    PRICE,
    RATE,
    RATIO,
    SIZE,
    Quantity,
    format_duration,
    format_money,
    format_rate,
    format_ratio,
    format_size,
)

__all__ = [
    "DURATION",
    "MONEY",
    "PRICE",
    "RATE",
    "RATIO",
    "SIZE",
    "Quantity",
    "format_duration",
    "format_money",
    "format_rate",
    "format_ratio",
    "format_size",
]
