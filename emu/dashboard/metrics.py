"""The status in the Prometheus text format, version 0.0.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.dashboard.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(status: Status) -> str:
    """Return ``status`` as metrics; seconds and bytes are emulated unless ``wall``."""
    lines: list[str] = []

    def add(
        name: str, kind: str, text: str, *samples: tuple[Mapping[str, str], float]
    ) -> None:
        if not samples:
            return
        lines.append(f"# HELP emu_{name} {text}")
        lines.append(f"# TYPE emu_{name} {kind}")
        for labels, value in samples:
            inside = ",".join(f'{key}="{_quoted(v)}"' for key, v in labels.items())
            lines.append(f"emu_{name}{f'{{{inside}}}' if inside else ''} {value:.17g}")

    ports = [({"port": port.port}, port) for port in status.ports]
    named = {"scenario": status.scenario, "policy": status.policy}
    add("run_info", "gauge", "What runs.", ({**named, "phase": status.phase}, 1))
    add("run_time_seconds", "gauge", "Run time.", ({}, status.run_time))
    add("processes", "gauge", "Node processes that are up.", ({}, status.processes))
    add("steps", "gauge", "Tasks times iterations.", ({}, status.steps))
    add("steps_ended_total", "counter", "Steps ended.", ({}, status.steps_ended))
    add("active_flows", "gauge", "Flows that move now.", ({}, status.active_flows))
    add(
        "port_rate_bytes_per_second",
        "gauge",
        "Sum of the rates assigned through a direction of a NIC.",
        *((labels, port.rate) for labels, port in ports),
    )
    add(
        "port_capacity_bytes_per_second",
        "gauge",
        "Capacity of a direction of a NIC.",
        *((labels, port.capacity) for labels, port in ports),
    )
    add(
        "port_bytes_total",
        "counter",
        "Bytes of the flows that have arrived through a direction of a NIC.",
        *((labels, port.bytes) for labels, port in ports),
    )
    add(
        "training_figure",
        "gauge",
        "Mean of what the tasks reported last.",
        *(({"figure": name}, value) for name, value in status.figures.items()),
    )
    add("event_delay_wall_seconds", "gauge", "Of the last event.", ({}, status.delay))
    add("event_delay_max_wall_seconds", "gauge", "Worst one.", ({}, status.max_delay))
    add("late_steps_total", "counter", "Late steps.", ({}, status.late_steps))
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
