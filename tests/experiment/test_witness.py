"""Units of the third witness, and the network that a scenario has: by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import DataError
from emu.experiment import witness
from emu.experiment.witness import PacketNetwork, third_witness
from emu.prediction.packets import Control, Shares


def scenario_of(network: str, sharing: str = "assigned", compute: str = "timed") -> Any:
    emulation = SimpleNamespace(
        network=network,
        sharing=sharing,
        compute=compute,
        stated_byte_scale=0.25,
        stated_time_scale=8.0,
    )
    return SimpleNamespace(emulation=emulation)


@pytest.mark.parametrize(
    ("network", "sharing", "shares", "control"),
    [
        ("kernel", "tcp", Shares.TCP, Control.RENO),
        ("kernel", "assigned", Shares.FAIR, Control.RENO),
        ("emulated", "tcp", Shares.FAIR, Control.CUBIC),
    ],
)
def test_packets_have_the_network_of_the_scenario_or_what_is_stated(
    network: str, sharing: str, shares: Shares, control: Control
) -> None:
    scenario = scenario_of(network, sharing)
    assert PacketNetwork.of(scenario, None, None) == (shares, control)
    stated = PacketNetwork.of(scenario, Shares.TCP, Control.RENO)
    assert stated == (Shares.TCP, Control.RENO)
    assert PacketNetwork.read(stated.to_json()) == stated


@pytest.mark.parametrize(
    ("network", "compute", "time_scale"),
    [("kernel", "timed", 8.0), ("kernel", "real", 8.0), ("emulated", "real", 1.0)],
)
def test_packets_go_at_the_rates_of_the_run_and_bursts_in_units_of_schedules(
    network: str, compute: str, time_scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst of 4 wall seconds or 1,000 real bytes."""
    asked: list[Any] = []
    packets = SimpleNamespace(version="3.41", dropped=5)

    def simulate_packets(problem: Any, realization: Any, **options: Any) -> Any:
        asked.append((problem, realization, options))
        return packets

    def witnesses_of(_: Any, realization: Any, seen: Any, burst: Any) -> Any:
        assert seen is packets
        asked.append((realization, burst))
        pair = SimpleNamespace(to_json=lambda: "a pair")
        return SimpleNamespace(makespans={"fluid": 2.0}, pairs=lambda *_: [pair])

    monkeypatch.setattr(witness, "simulate_packets", simulate_packets)
    monkeypatch.setattr(witness, "burst_of", lambda _: (4.0, 1000.0))
    monkeypatch.setattr(witness, "_witnesses_of", witnesses_of)
    monkeypatch.setattr(witness, "observe", lambda *_: None)
    scenario = scenario_of(network, compute=compute)
    experiment = SimpleNamespace(
        scenario=scenario, problem="problem", realization="expected"
    )
    outcome: Any = SimpleNamespace(
        experiment=experiment,
        run=SimpleNamespace(realization="measured"),
        prediction=None,
        verdict=None,
    )
    found = third_witness(outcome, PacketNetwork(Shares.TCP, Control.CUBIC))

    realization = "measured" if compute == "real" else "expected"
    options = {
        "sharing": Shares.TCP,
        "control": Control.CUBIC,
        "byte_scale": 0.25,
        "time_scale": time_scale,
    }
    assert asked == [
        ("problem", realization, options),
        (realization, (4.0 / time_scale, 4000.0)),
    ]
    assert (found["byte_scale"], found["time_scale"]) == (0.25, time_scale)
    assert (found["ns3"], found["dropped"]) == ("3.41", 5)
    assert (found["makespans"], found["pairs"]) == ({"fluid": 2.0}, ["a pair"])


def test_packets_are_sent_again_by_the_same_ns3_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run: Any = SimpleNamespace(experiment=SimpleNamespace(problem=None))
    again = {"ns3": "3.40", "makespan": 2.0}
    reader = SimpleNamespace(read=lambda asked: asked)
    monkeypatch.setattr(witness, "PacketNetwork", reader)
    monkeypatch.setattr(witness, "third_witness", lambda *_: again)
    monkeypatch.setattr(witness, "check_packets", lambda _: "3.40")

    same = {"ns3": "3.40"}
    other = {"ns3": "3.39"}
    assert witness.recompute_witness(run, {}, None) == (again, "")
    assert witness.recompute_witness(run, {}, same) == (again, "")
    kept, problem = witness.recompute_witness(run, {}, other)
    assert kept is other
    assert problem == "no packets are sent again: by ns-3 3.39, and here is 3.40"

    def lack(_: object) -> str:
        raise DataError("there is no ns-3")

    monkeypatch.setattr(witness, "check_packets", lack)
    kept, problem = witness.recompute_witness(run, {}, same)
    assert kept is same
    assert problem == "no packets are sent again: there is no ns-3"
