"""The status in the Prometheus text format, version 0.0.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.names import for_label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.dashboard.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(status: Status) -> str:
    """Return ``status`` as metrics; seconds and bytes are emulated unless ``wall``."""
    return "".join(
        [
            _run_metrics(status),
            _port_metrics(status),
            _metric(
                "training_figure",
                "gauge",
                "Mean of what the tasks reported last",
                *(({"figure": name}, value) for name, value in status.figures.items()),
            ),
            _metric(
                "event_delay_wall_seconds",
                "gauge",
                "Of the last event",
                ({}, status.delay),
            ),
            _metric(
                "event_delay_max_wall_seconds",
                "gauge",
                "Worst one",
                ({}, status.max_delay),
            ),
            _metric(
                "late_steps_total",
                "counter",
                "Steps that ended late",
                ({}, status.late_steps),
            ),
        ]
    )


def _run_metrics(status: Status) -> str:
    named = {"scenario": status.scenario, "policy": status.policy}
    made = [
        _metric("run_info", "gauge", "What runs", ({**named, "phase": status.phase}, 1))
    ]
    for name, kind, text, value in (
        ("run_time_seconds", "gauge", "Run time", status.run_time),
        ("processes", "gauge", "Node processes that are up", status.processes),
        ("steps", "gauge", "Tasks times iterations", status.steps),
        ("steps_ended_total", "counter", "Steps that have ended", status.steps_ended),
        ("active_flows", "gauge", "Flows that move now", status.active_flows),
    ):
        made.append(_metric(name, kind, text, ({}, value)))
    return "".join(made)


def _port_metrics(status: Status) -> str:
    ports = [({"port": port.port}, port) for port in status.ports]
    return "".join(
        [
            _metric(
                "port_rate_bytes_per_second",
                "gauge",
                "Sum of the rates through a direction of a NIC or another link",
                *((labels, port.rate) for labels, port in ports),
            ),
            _metric(
                "port_capacity_bytes_per_second",
                "gauge",
                "Capacity of a direction of a NIC or another link",
                *((labels, port.capacity) for labels, port in ports),
            ),
            _metric(
                "port_bytes_total",
                "counter",
                "Bytes of the flows that have arrived through a direction of a NIC or "
                "another link",
                *((labels, port.bytes) for labels, port in ports),
            ),
        ]
    )


def _metric(
    name: str, kind: str, text: str, *samples: tuple[Mapping[str, str], float]
) -> str:
    """Return one metric with its help; nothing without samples."""
    if not samples:
        return ""
    lines = [f"# HELP emu_{name} {text}.", f"# TYPE emu_{name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{key}="{for_label(v)}"' for key, v in labels.items())
        lines.append(f"emu_{name}{f'{{{inside}}}' if inside else ''} {value:.17g}")
    return "\n".join(lines) + "\n"
