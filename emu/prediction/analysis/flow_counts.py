"""Counts of the kernels at both ends of every flow."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from emu.array_types import Floats, Records


@dataclass(frozen=True, eq=False)
class FlowCounts:
    """Counts by (edge, iteration); seconds of wall time, bytes; 0 where none is known.

    Bytes that a socket still holds as its next flow begins count to that one.
    """

    retransmitted: Floats
    """Segments that were sent again."""
    timeouts: Floats
    timer: Floats
    """Timeouts of the sender, and how long one lasts."""
    busy: Floats
    receiver_limited: Floats
    buffer_limited: Floats
    """Time in which the sender had unacknowledged data; of it, time that the receiver's
    window, or the sender's own buffer, held it up."""
    round_trip: Floats
    least_round_trip: Floats
    """Smoothed after the flow, and the least of the connection until then."""
    window: Floats
    """The receiver's window after the flow."""
    allowed: Floats
    """The sender's own window before the flow: slow start begins there."""
    hole: Floats
    """Time in which the newest bytes waited for a lost segment."""
    unread: Floats
    """Time in which bytes that were not the last waited to be read."""

    def of_flow(self, edge: int, iteration: int) -> dict[str, float]:
        """Return the counts of a flow that are not 0, by name."""
        counts = {}
        for field in fields(self):
            value = float(getattr(self, field.name)[edge, iteration])
            if value:
                counts[field.name] = value
        return counts


def count_flows(
    edges: int,
    iterations: int,
    connections: Records,
    waits: Records,
) -> FlowCounts:
    """Return the counts of every flow, from rows of `emu.emulation.wire.frame_layout`.

    Rows of flows that the job does not have count for nothing.
    """
    columns = {
        field.name: np.zeros((edges, iterations)) for field in fields(FlowCounts)
    }
    # States stand in the order of time; the one after a flow is the next of its edge.
    order = np.argsort(connections["edge"], kind="stable")
    states = connections[order]
    before = states[:-1]
    after = states[1:]
    is_flow = before["edge"] == after["edge"]
    is_flow &= before["edge"] < edges
    is_flow &= before["iteration"] < iterations
    before = before[is_flow]
    after = after[is_flow]
    flows = before["edge"], before["iteration"]

    for name, unit in _COUNTED.items():
        count_before = before[name].astype(float)
        count_after = after[name].astype(float)
        increase = np.maximum(count_after - count_before, 0.0)
        columns[name][flows] = unit * increase
    columns["timer"][flows] = 1e-6 * before["timer"]
    columns["round_trip"][flows] = 1e-6 * after["round_trip"]
    columns["least_round_trip"][flows] = 1e-6 * after["least_round_trip"]
    columns["window"][flows] = after["window"]
    allowed = before["segments_allowed"].astype(float)
    columns["allowed"][flows] = allowed * before["segment"]

    is_flow = waits["edge"] < edges
    is_flow &= waits["iteration"] < iterations
    rows = waits[is_flow]
    flows = rows["edge"], rows["iteration"]
    for name in ("hole", "unread"):
        columns[name][flows] = rows[name]
    return FlowCounts(**columns)


#: Counts that grow along a connection, and what one is in the unit of `FlowCounts`.
_COUNTED = {
    "retransmitted": 1.0,
    "timeouts": 1.0,
    "busy": 1e-6,
    "receiver_limited": 1e-6,
    "buffer_limited": 1e-6,
}
