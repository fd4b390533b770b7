"""Times by device: what is combined is what every device would make of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emu.problem.fields.quantities import DEFAULT_DEVICE, combine, time_on

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
