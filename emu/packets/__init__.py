"""A second witness of a prediction: the job over packets, TCP and queues, by ns-3."""

from emu.packets.ns3 import (
    Control,
    PacketRun,
    Shares,
    check_packets,
    missing_ns3,
    packets_of,
    simulate_packets,
)

__all__ = [
    "Control",
    "PacketRun",
    "Shares",
    "check_packets",
    "missing_ns3",
    "packets_of",
    "simulate_packets",
]
