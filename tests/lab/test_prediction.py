"""Predictions of labs: judged by what crossed, with who moved the iterations."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.errors import ScenarioError, ScenarioErrors
from emu.lab.fitting.fitted_job import write_fit
from emu.lab.fitting.iterations import fit_iterations
from emu.lab.prediction import forecast, judge_lab, laid_out, predict_lab
from emu.prediction.analysis.traffic import Traffic, count_bytes
from emu.problem import Schedule
from emu.scenario.scenario_file import load_lab, loads
from tests.lab.fitting.crossed import crossed
from tests.lab.fitting.test_fit import PROGRAMS, job

ASK, ADD = [0.004, 0.006, 0.005], 0.010
ANSWERS = [20000, 30000, 25000, 8000, 40000, 31000] * 2
LAB = job(ASK, ADD, ANSWERS)


def went(document: dict[str, Any], **nics: object) -> Traffic:
    """Return what crosses in a lab whose NICs are these."""
    overrides = {f"cluster.machines[{at[1:]}].nic": nic for at, nic in nics.items()}
    schedule = emu.simulate(loads(json.dumps(document), overrides, name="drawn.json"))
    return crossed(schedule, PROGRAMS, packets=30)


def separate(document: dict[str, Any]) -> dict[str, Any]:
    """Return the job with an entry for every machine."""
    (one,) = document["cluster"]["machines"]
    each = [
        {**{k: v for k, v in one.items() if k != "count"}, "name": f"m{i}"}
        for i in range(one["count"])
    ]
    return {**document, "cluster": {"machines": each}}


SEEN = went(separate(LAB))
FITTED = json.dumps(write_fit("fit", fit_iterations(SEEN), SEEN))


@functools.cache
def expected(**nics: object) -> Schedule:
    overrides = {f"cluster.machines[{at[1:]}].nic": nic for at, nic in nics.items()}
    return emu.simulate(loads(FITTED, overrides))


def judged(traffic: Traffic, **nics: object) -> dict[str, Any]:
    """Return the verdict on the fit of `SEEN`, at other NICs."""
    return {**judge_lab(traffic, expected(**nics), threshold=0.03)}


@pytest.mark.parametrize("nics", [{}, {"m1": "5 Mbit/s"}, {"m0": "40 Mbit/s"}])
def test_a_lab_that_does_as_was_predicted_agrees(nics: dict[str, str]) -> None:
    found = judged(went(separate(LAB), **nics), **nics)

    assert (found["outcome"], found["since"], found["links"]) == ("agrees", None, [])
    assert abs(found["error"]) < 0.03


@settings(max_examples=4, deadline=None)
@given(machine=st.integers(0, 2), share=st.floats(0.4, 0.75))
def test_a_nic_below_its_rate_is_named(machine: int, share: float) -> None:
    """It is stated 10 Mbit/s and carries less: links of others lose nothing."""
    slow = went(separate(LAB), **{f"m{machine}": f"{10 * share:g} Mbit/s"})
    found = judged(dataclasses.replace(slow, nics=SEEN.nics))

    assert found["outcome"] == "differs"
    assert found["error"] > 0.03
    assert {link.split()[0] for link in found["links"][:1]} == {f"m{machine}"}
    assert 0 < found["since"] <= slow.packets["time"][-1]
    assert found["reasons"]


@settings(max_examples=4, deadline=None)
@given(slower=st.floats(1.5, 4.0))
def test_programs_that_compute_longer_blame_no_link(slower: float) -> None:
    found = judged(went(separate(job(ASK, ADD * slower, ANSWERS))))

    assert (found["outcome"], found["links"]) == ("differs", [])
    (reason,) = found["reasons"]
    assert reason.startswith("programs took other times than predicted")


def test_more_bytes_than_predicted_are_the_reason() -> None:
    more = [2 * size for size in ANSWERS]
    found = judged(went(separate(job(ASK, ADD, more))))

    assert (found["outcome"], found["links"]) == ("differs", [])
    assert any("of bytes crossed per iteration" in line for line in found["reasons"])


def test_a_lab_of_other_iterations_is_compared_by_each() -> None:
    found = judged(went(separate(job(ASK, ADD, ANSWERS * 2))))

    assert found["outcome"] == "agrees"


def test_timeouts_that_took_the_time_come_first() -> None:
    late = judge_lab(
        went(separate(LAB), m0="5 Mbit/s"), expected(), threshold=0.03, timeouts=9
    )

    assert late["reasons"][0] == (
        "TCP waited for 9 timeouts, 0.2 s each or more: 100 % of the difference"
    )


def test_since_is_the_first_iteration_that_is_off() -> None:
    """From the seventh on the answers are four times as long."""
    later = [*ANSWERS[:6], *(4 * size for size in ANSWERS[6:])]
    traffic = went(separate(job(ASK, ADD, later)))
    found = judged(traffic)
    begun = fit_iterations(traffic).starts

    assert found["outcome"] == "differs"
    assert begun[5] <= found["since"] <= begun[8]


def test_messages_laid_out_are_what_max_min_makes_of_them() -> None:
    """A simulated network is max-min: every message takes what its flow takes."""
    laid = laid_out(SEEN, (-1.0, 1e9))
    assert laid is not None
    measured, fluid = laid
    took = measured.flow_end - measured.flow_start
    ideal = fluid.flow_end - fluid.flow_start

    assert (measured.flow_bytes[measured.flow_bytes > 0]).size > 100
    # A first packet of a simulated flow has no time: a fifth of it, not 1448 bytes.
    assert (abs(took - ideal)[measured.flow_bytes > 1] < 3e-3).all()


@pytest.mark.parametrize("count", [2, 10, 40])
def test_a_message_takes_what_its_packets_behind_the_first_take(count: int) -> None:
    """It is seen from the end of its first packet to the end of its last one."""
    rate = 1e6
    packets = np.zeros(count, SEEN.packets.dtype)
    packets["time"] = 0.5 + np.arange(count) * 1448 / rate
    packets["source"], packets["destination"] = 0, 1
    packets["source_port"], packets["destination_port"] = 7, 8
    packets["bytes"] = 1448
    nics = np.full_like(SEEN.nics, rate)
    traffic = dataclasses.replace(SEEN, packets=packets, nics=nics)

    laid = laid_out(traffic, (0.0, 1e9))
    assert laid is not None
    for schedule in laid:
        took = schedule.flow_end - schedule.flow_start
        sent = schedule.flow_bytes > 0
        assert took[sent].tolist() == pytest.approx([(count - 1) * 1448 / rate])


def test_messages_are_laid_out_from_their_sender_over_its_nic() -> None:
    """The ring sends one way round; NICs differ out and in."""
    nics = np.array([[1e6, 2e6, 3e6], [4e6, 5e6, 6e6]])
    laid = laid_out(dataclasses.replace(SEEN, nics=nics), (-1.0, 1e9))
    assert laid is not None
    schedule, _ = laid
    problem = schedule.problem
    sizes = np.zeros((3, 3))
    machine_of = problem.placement.machine_of
    for edge, volumes in zip(problem.job.edges, schedule.flow_bytes, strict=True):
        ends = machine_of[edge.source], machine_of[edge.destination]
        sizes[ends] += np.nansum(volumes)
    crossed_sizes = count_bytes(SEEN.packets, 3)

    assert ((sizes > sizes.T) == (crossed_sizes > crossed_sizes.T)).all()
    assert (sizes > sizes.T).sum() == 3
    machines = problem.cluster.machines
    assert [m.bandwidth_out for m in machines] == [1e6, 2e6, 3e6]
    assert [m.bandwidth_in for m in machines] == [4e6, 5e6, 6e6]


def test_without_iterations_nothing_is_judged() -> None:
    none = dataclasses.replace(SEEN, packets=SEEN.packets[:5])
    found = judged(none)

    assert (found["outcome"], found["error"]) == ("unknown", None)
    assert found["reasons"][0]


FILE = """
cluster:
  machines:
    - {name: m0, nic: 5 Mbit/s}
    - {name: m1, nic: 10 Mbit/s}
    - {name: m2, nic: 10 Mbit/s}
lab:
  prediction: {scenario: fitted.json}
"""


def test_what_tcp_may_add_is_foreseen_of_a_lab() -> None:
    """Two answers of 20 to 40 kB at once into 5 Mbit/s, whose queue has 12.5 kB."""
    slow = expected(m0="5 Mbit/s")
    found = forecast(slow)

    assert found.at_risk > 0
    assert found.links[0] == "m0 in"
    assert not found.holds
    # At a tenth of the speed a timeout of 200 ms of wall time is a tenth as long.
    dilated = forecast(slow, 10.0)
    assert dilated.waits == pytest.approx(found.waits / 10)
    assert (dilated.at_risk, dilated.links) == (found.at_risk, found.links)


def test_the_prediction_is_made_at_the_nics_of_the_lab(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(FILE)
    (tmp_path / "fitted.json").write_text(FITTED)

    found = predict_lab(load_lab(tmp_path / "lab.yaml"))

    assert found is not None
    assert found.makespan == expected(m0="5 Mbit/s").makespan
    assert predict_lab(load_lab(tmp_path / "lab.yaml", ["lab.prediction=null"])) is None
    each_way = ["cluster.machines[1].nic={out: 8 Mbit/s, in: 16 Mbit/s}"]
    found = predict_lab(load_lab(tmp_path / "lab.yaml", each_way))
    assert found is not None
    machine = found.problem.cluster.machines[1]
    assert (machine.bandwidth_out, machine.bandwidth_in) == (1e6, 2e6)


def at_speeds(document: dict[str, Any], speeds: dict[str, float]) -> dict[str, Any]:
    """Return the job as it is on machines that compute so much faster."""
    again = copy.deepcopy(document)
    for task in again["job"]["tasks"]:
        on = again["placement"]["tasks"][task["name"]]
        task["time"] = f"{float(task['time'].split()[0]) / speeds.get(on, 1.0)!r} s"
    return again


@settings(max_examples=5, deadline=None)
@given(
    before=st.dictionaries(st.sampled_from(["m0", "m1", "m2"]), st.floats(0.25, 3.0)),
    after=st.dictionaries(st.sampled_from(["m0", "m1", "m2"]), st.floats(0.25, 3.0)),
)
def test_a_fit_at_some_cores_predicts_others(
    before: dict[str, float], after: dict[str, float]
) -> None:
    seen = went(at_speeds(separate(LAB), before))
    fitted = json.dumps(write_fit("fit", fit_iterations(seen), seen, before))
    lab = yaml_of([f"cpu: {after.get(name, 1.0)!r}" for name in ("m0", "m1", "m2")])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "lab.yaml").write_text(lab)
        Path(folder, "fitted.json").write_text(fitted)
        predicted = predict_lab(load_lab(Path(folder, "lab.yaml")))
    assert predicted is not None

    found = judge_lab(went(at_speeds(separate(LAB), after)), predicted, threshold=0.03)

    assert (found["outcome"], found["links"]) == ("agrees", [])
    assert found["error"] == pytest.approx(0.0, abs=0.02)


def yaml_of(cores: list[str]) -> str:
    """Return a lab of three machines with the fit's NICs, and so many cores."""
    machines = "".join(
        f"    - {{name: m{i}, nic: 10 Mbit/s, {cpu}}}\n" for i, cpu in enumerate(cores)
    )
    return (
        f"cluster:\n  machines:\n{machines}"
        "lab: {time_scale: 8, prediction: {scenario: fitted.json}}\n"
    )


def test_a_fit_whose_times_go_by_no_speed_predicts_no_other_cores(
    tmp_path: Path,
) -> None:
    (tmp_path / "lab.yaml").write_text(yaml_of(["cpu: 1", "cpu: 0.5", "cpu: 1"]))
    old = json.loads(FITTED)
    del old["job"]["times"]
    (tmp_path / "fitted.json").write_text(json.dumps(old))

    with pytest.raises(ScenarioError, match=r"scenario: fitted.json goes by no speed"):
        predict_lab(load_lab(tmp_path / "lab.yaml"))


def test_times_are_by_device_or_by_speed() -> None:
    both = json.loads(FITTED)
    both["cluster"]["machines"][0]["device"] = "a100"
    both["job"]["tasks"][0]["time"] = {"default": "2 ms", "a100": "1 ms"}

    with pytest.raises(ScenarioError, match=r"tasks\[0\].time: states times by device"):
        loads(json.dumps(both), name="both.json")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("cluster.machines[2].name=other", "scenario: fitted.json is of machines m0"),
        ("lab.capture=false", "lab.capture: is false, but a prediction"),
        ("lab.prediction.scenario=no.yaml", "no.yaml"),
        ("lab.prediction.max_difference=0", "max_difference"),
        ("events=[{at: 1 s, machine: m0, nic: 1 Mbit/s}]", "events: change NICs"),
        ("lab={expect: {prediction: agrees}}", "expected of no prediction"),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    tmp_path: Path, override: str, said: str
) -> None:
    (tmp_path / "lab.yaml").write_text(FILE)
    (tmp_path / "fitted.json").write_text(FITTED)

    with pytest.raises((ScenarioError, ScenarioErrors), match=said):
        predict_lab(load_lab(tmp_path / "lab.yaml", [override]))
