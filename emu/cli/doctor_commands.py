"""``emu doctor``: what this host can emulate."""

from __future__ import annotations

from rich import box
from rich.table import Table

from emu.calibration import HostProfile, measure_host
from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.report import terminal
from emu.units import format_duration, format_rate, format_size


@app.command()
def doctor(json_target: JsonTarget = None) -> None:
    """Measure this host: what a run is made of, piece by piece.

    It takes some ten seconds. No run needs it: ``time_scale: auto`` is chosen by short
    trials of the scenario.
    """
    host = measure_host()
    if emit(json_target, host.to_json()):
        terminal().print(host_table(host))


def host_table(host: HostProfile) -> Table:
    """Return every figure with its unit."""
    table = Table(
        title=f"{host.name}, measured {host.measured}",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    for name in ("", "median", "99 %"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("cores", str(host.cores), "")
    table.add_row("memory", format_size(host.memory), "")
    table.add_row("payload between two processes", format_rate(host.throughput), "")
    table.add_row(
        "CPU per GB, both ends", format_duration(1e9 * host.cpu_per_byte, 3), ""
    )
    table.add_row("CPU per look of a paced flow", _micro(host.wake_cpu), "")
    table.add_row("CPU per control message", _micro(host.event_cpu), "")
    for name, (median, high) in (
        ("timer after its time", host.timer_overshoot),
        ("last byte after its time", host.finish_error),
        ("control round trip, idle", host.round_trip),
        ("control round trip beside payload", host.loaded_round_trip),
    ):
        table.add_row(name, _micro(median), _micro(high))
    table.add_row("start of one process", format_duration(host.process_seconds, 2), "")
    table.add_row("memory of one process", format_size(host.process_memory), "")
    for name, answer in host.available.items():
        table.add_row(name, answer, "")
    return table


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.0f} us"
