"""``emu doctor``: what this host can emulate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from emu.calibration import cached_profile, profile_path
from emu.calibration.host import USABLE
from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.network import lead_time, pace_at
from emu.report import terminal
from emu.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from emu.calibration import HostProfile, Prediction
    from emu.scenario import Scenario


@app.command()
def doctor(
    cached: Annotated[  # noqa: FBT002 -- typer's way to a flag
        bool, typer.Option("--cached", help="Show what was measured before, if any.")
    ] = False,
    json_target: JsonTarget = None,
) -> None:
    """Measure this host, and say what it can emulate.

    It takes some ten seconds. The figures are kept, and used where a scenario says
    ``time_scale: auto``.
    """
    host = cached_profile(fresh=not cached)
    if emit(json_target, host.to_json()):
        console = terminal()
        console.print(host_table(host))
        console.print(meaning(host))
        console.print(f"kept in {profile_path()}")


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


def meaning(host: HostProfile) -> str:
    """Return what the figures mean for scenarios, a sentence per line."""
    now, slow = (
        USABLE * host.cores / (host.wake_cpu / pace_at(scale)[0].longest)
        for scale in (1.0, 100.0)
    )
    late, lead = host.finish_error[0], lead_time(1.0, "fluid")
    return (
        f"Up to {format_rate(host.bandwidth)} of emulated traffic at time scale 1 and "
        "byte scale 1.\n"
        f"About {now:.0f} processes can send at a time at time scale 1, "
        f"{slow:.0f} from time scale 100 on.\n"
        f"A last byte arrives {1e3 * late:.2g} ms after it may leave: when its rates "
        f"have carried it, or {1e3 * lead:.0f} ms before with flow_ends: fluid."
    )


def prediction_table(prediction: Prediction, scenario: Scenario) -> Table:
    """Return what a run will take and how exact it will be."""
    table = Table(title=scenario.name, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("predicted")
    table.add_column("", justify="right")
    table.add_row("time scale", f"{prediction.time_scale:g}")
    table.add_row("byte scale", f"{prediction.byte_scale:g}")
    table.add_row("wall time", format_duration(prediction.wall, 3))
    table.add_row("time to start", format_duration(prediction.startup, 2))
    table.add_row("CPU, of all cores", f"{100 * prediction.cpu:.0f} %")
    table.add_row("memory", format_size(prediction.memory))
    table.add_row("real traffic at its peak", format_rate(prediction.bandwidth))
    known = math.isfinite(prediction.error)
    error = f"{100 * prediction.error:.2g} %" if known else "the host cannot keep up"
    table.add_row("error of the makespan", error)
    table.add_row("asked for", f"{100 * scenario.emulation.max_error:g} %")
    table.add_row("flows that end late", f"{100 * prediction.late_flows:.2g} %")
    table.add_row("asked for", f"{100 * scenario.emulation.max_late_flows:g} %")
    moved = f"{100 * prediction.sensitivity:.2g} %"
    table.add_row("moved by the slightest delays", moved)
    return table
