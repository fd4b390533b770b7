"""The one place for units: text with a unit becomes a float, and back.

Inside the code there are seconds, bytes, bytes per second and plain ratios, nothing
else. Must not know: what a quantity is for.
"""

from emu.units.quantity import (
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

__all__ = [
    "DURATION",
    "RATE",
    "RATIO",
    "SIZE",
    "Quantity",
    "format_duration",
    "format_rate",
    "format_ratio",
    "format_size",
]
