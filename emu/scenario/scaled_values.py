"""Values of scenario files, as written, times a factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.problem.fields.cluster_section import Latency, Nic
from emu.scenario.events_section import EventSection
from emu.systems import Edit
from emu.units import DURATION, RATE, Quantity


def scale_nic(
    nic: Nic,
    outward: str,
    inward: str,
    names: set[str],
    factor: float,
) -> Any:
    """Return a NIC of which some links are scaled; None where none is.

    ``outward``, ``inward``: names of its links; ``names``: of all that are scaled.
    """
    if names.isdisjoint({outward, inward}):
        return None
    inward_factor = factor if inward in names else 1.0
    outward_factor = factor if outward in names else 1.0
    return write_nic(
        inward=nic.inward * inward_factor,
        outward=nic.outward * outward_factor,
        latency=getattr(nic, "latency", Latency()),
    )


def scale_events(
    events: Sequence[EventSection],
    links: set[str],
    factor: float,
) -> Edit:
    """Return the rates of some links that events state, times a factor."""
    # An event states a rate and no share: unscaled it would undo the change.
    edit: Edit = {}
    for i, event in enumerate(events):
        if event.nic is not None:
            nic = scale_nic(
                event.nic,
                f"{event.machine} out",
                f"{event.machine} in",
                names=links,
                factor=factor,
            )
            if nic:
                edit[f"events[{i}].nic"] = nic
        elif event.bandwidth is not None and event.link in links:
            rate = event.bandwidth * factor
            edit[f"events[{i}].bandwidth"] = RATE.exact(rate)
    return edit


def scale_latency(latency: Latency, factor: float) -> Latency:
    """Return a latency, in and out, times a factor."""
    content = {
        "in": DURATION.exact(latency.inward * factor),
        "out": DURATION.exact(latency.outward * factor),
    }
    return Latency.model_validate(content)


def write_nic(inward: float, outward: float, latency: Latency) -> Any:
    """Return ``nic`` of a machine of these rates, in bytes per second."""
    nic: Edit = {
        "in": RATE.exact(inward),
        "out": RATE.exact(outward),
    }
    if latency != Latency():
        nic["latency"] = latency.model_dump(mode="json", by_alias=True)
    elif inward == outward:
        return nic["in"]
    return nic


def scale_value(quantity: Quantity, stated: Any, factor: float) -> Any:
    """Return one value, one per iteration or one per device, times ``factor``."""
    # One text for any shape: nothing is the same in all iterations and on all devices.
    if not factor:
        return f"0 {quantity.inside}"
    if isinstance(stated, dict):
        scaled = {}
        for device, value in stated.items():
            scaled[device] = quantity.exact(value * factor)
        return scaled
    if isinstance(stated, tuple):
        return [quantity.exact(value * factor) for value in stated]
    return quantity.exact(stated * factor)
