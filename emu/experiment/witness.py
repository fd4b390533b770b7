"""The third witness of a run: its job over packets, once the run has been written."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from emu.errors import DataError
from emu.experiment.observations import observe
from emu.experiment.run_result import RunResult
from emu.lab.kernel_network import burst_of
from emu.lab.machines.nic import Sharing
from emu.prediction.packets import (
    Control,
    PacketRun,
    Shares,
    check_packets,
    simulate_packets,
)
from emu.prediction.simulation import simulate
from emu.problem import Outages, Realization
from emu.runs.recorded_run import read_manifest
from emu.runs.result import Result, Row
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario
from emu.trust.witnesses import Witnesses

#: Congestion control of machines with kernel NICs.
_KERNEL = Control.RENO


class PacketNetwork(NamedTuple):
    """Queues and TCP of the packets that a run is held against."""

    sharing: Shares
    control: Control

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        sharing: Shares | None,
        control: Control | None,
    ) -> PacketNetwork:
        """Return those of a scenario's kernel NICs, where they are not stated."""
        emulation = scenario.emulation
        shares = Shares.FAIR
        default = Control.CUBIC
        if emulation.network == "kernel":
            default = _KERNEL
            if Sharing(emulation.sharing) is Sharing.TCP:
                shares = Shares.TCP
        return cls(sharing or shares, control or default)

    @classmethod
    def read(cls, content: Row) -> PacketNetwork:
        """Return the network of `to_json`; KeyError and ValueError when it is none."""
        sharing = Shares(content["sharing"])
        return cls(sharing, Control(content["congestion_control"]))

    def to_json(self) -> Result:
        """Return the form of manifest.json."""
        return {
            "sharing": str(self.sharing),
            "congestion_control": str(self.control),
        }


def with_witness(
    outcome: RunResult, network: PacketNetwork, directory: RunDirectory
) -> RunResult:
    """Return a run that was written with its third witness, and write it again.

    Raises SchedulingError when ns-3 fails (the directory then holds the run without
    it), DataError when the directory cannot be written.
    """
    with directory.claim():
        manifest = read_manifest(directory.path / "manifest.json")
        changes = manifest | {"witness": network.to_json()}
        witness = third_witness(outcome, network)
        with_it = dataclasses.replace(outcome, witness=witness)
        directory.write_json("manifest.json", changes)
        # manifest.json has changed, and its digest stands in result.json.
        with_it.content["records"] = directory.digests()
        directory.write_json("result.json", with_it.content)
    return with_it


def third_witness(outcome: RunResult, network: PacketNetwork) -> Result:
    """Return ``witness`` of result.json: three makespans, and who agrees with whom.

    Where times were measured (``compute: real``) fluid and packets have the run's own.
    Raises SchedulingError when ns-3 fails; ScenarioError, DataError as
    `emu.prediction.packets.check_packets`.
    """
    experiment = outcome.experiment
    emulation = experiment.scenario.emulation
    realization = experiment.realization
    if emulation.compute == "real":
        realization = outcome.run.realization
    byte_scale = emulation.stated_byte_scale
    time_scale = 1.0
    if emulation.network == "kernel":
        # Kernel NICs are slowed by the scale, and the timers of TCP are not:
        # packets go at the same rates as in the run.
        time_scale = emulation.stated_time_scale

    packets = simulate_packets(
        experiment.problem,
        realization,
        sharing=network.sharing,
        control=network.control,
        byte_scale=byte_scale,
        time_scale=time_scale,
    )
    seconds, size = burst_of(experiment.scenario)
    # From wall seconds and real bytes to the units of the schedules.
    burst = (seconds / time_scale, size / byte_scale)
    witnesses = _witnesses_of(outcome, realization, packets, burst)
    pairs = witnesses.pairs(
        outcome.prediction,
        outcome.verdict,
        observe(outcome, outcome.run),
    )
    return {
        "ns3": packets.version,
        **network.to_json(),
        "byte_scale": byte_scale,
        "time_scale": time_scale,
        "dropped": packets.dropped,
        "makespans": witnesses.makespans,
        "pairs": [pair.to_json() for pair in pairs],
    }


def _witnesses_of(
    outcome: RunResult,
    realization: Realization,
    packets: PacketRun,
    burst: tuple[float, float],
) -> Witnesses:
    """Return the schedules that are held against each other, without deaths."""
    experiment = outcome.experiment
    fluid = outcome.predicted
    if experiment.scenario.emulation.compute == "real":
        fluid = outcome.replayed
    no_deaths = Outages()  # packets know none

    return Witnesses(
        dataclasses.replace(fluid, outages=no_deaths),
        # The fluid that TCP comes nearest to, whatever rule the run had.
        simulate(experiment.problem, realization, "maxmin"),
        packets.schedule,
        packets.dropped,
        dataclasses.replace(outcome.run.schedule, outages=no_deaths),
        outcome.policy,
        burst,
    )


def recompute_witness(
    outcome: RunResult, asked: Row, noted: Row | None
) -> tuple[Row | None, str]:
    """Return ``witness`` computed again, and what kept it from that, in words.

    ``asked`` is that of manifest.json, ``noted`` that of result.json, which is returned
    where the same ns-3 is not at hand. Raises KeyError or ValueError when one is
    damaged.
    """
    network = PacketNetwork.read(asked)
    version = "" if noted is None else noted["ns3"]
    try:
        release = check_packets(outcome.experiment.problem)
    except DataError as error:
        return noted, f"no packets are sent again: {error}"
    # Another ns-3 may send other packets, and no fault of the run be the cause.
    if version and version != release:
        problem = f"by ns-3 {version}, and here is {release}"
        return noted, f"no packets are sent again: {problem}"
    return third_witness(outcome, network), ""
