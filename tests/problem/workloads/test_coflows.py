"""Which flows of a job are a coflow: by task, stage, job, or by their names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from emu.problem import Edge, Job, Task
from emu.problem.workloads import JobPart, several_jobs
from emu.problem.workloads.coflows import with_coflows
from emu.scenario import find_errors, load
from emu.testing.problems import two_machine_example

SHIPPED = Path(__file__).parents[3] / "scenarios"


def shuffle(**flow: str) -> dict[str, object]:
    """Return a custom scenario: two mappers, two reducers, one of them in a coflow."""
    ends = [(a, b) for b in ("r0", "r1") for a in ("m0", "m1")]
    flows: list[dict[str, object]] = [
        {"from": a, "to": b, "volume": "1 MB"} for a, b in ends
    ]
    flows[0] |= flow
    job = {
        "system": "custom",
        "iterations": 2,
        "tasks": [{"name": n, "time": "1 s"} for n in ("m0", "m1", "r0", "r1")],
        "flows": flows,
    }
    nic = {"in": "1 Gbit/s", "out": "1 Gbit/s"}
    return {"cluster": {"machines": [{"count": 4, "nic": nic}]}, "job": job}


def coflows(job: Job) -> list[str]:
    return [edge.coflow for edge in job.edges if not edge.credit]


def job_of(tmp_path: Path, text: dict[str, object]) -> Job:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(text))
    return load(path).to_job()


def test_a_flow_keeps_its_name_whatever_the_job_says(tmp_path: Path) -> None:
    text = shuffle(coflow="mine")
    assert coflows(job_of(tmp_path, text)) == ["mine", "", "", ""]
    text["job"] |= {"coflow": "stage"}  # type: ignore[operator]
    assert coflows(job_of(tmp_path, text)) == ["mine", *["task->task"] * 3]
    text["job"] |= {"coflow": "job"}  # type: ignore[operator]
    assert coflows(job_of(tmp_path, text)) == ["mine", "job", "job", "job"]


def test_what_carries_nothing_is_in_no_coflow(tmp_path: Path) -> None:
    text = shuffle(coflow="mine", volume="0 B")
    text["job"]["tasks"][0] |= {"gate": True}  # type: ignore[index]
    text["job"]["flows"][2] |= {"volume": "0 B"}  # type: ignore[index]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(text))
    (error,) = find_errors(path)
    assert "job.flows[0].coflow" in str(error)
    assert "nothing is sent to or from the gate 'm0'" in str(error)


def test_stages_of_dgtp_are_between_kinds_of_task() -> None:
    problem, _ = two_machine_example(2)
    kinds = [task.kind for task in problem.job.tasks]
    named = with_coflows(problem.job, "stage")
    assert with_coflows(problem.job, "task") is problem.job
    assert {*coflows(named)} == {
        f"{kinds[edge.source]}->{kinds[edge.destination]}" for edge in named.edges
    }


@pytest.mark.parametrize("system", ["dgcl", "dorylus"])
def test_stages_of_layers_are_apart(system: str) -> None:
    job = load(min(SHIPPED.glob(f"**/{system}*.yaml"))).to_job(opened=True)
    names = {*coflows(with_coflows(job, "stage"))}
    layers = {
        name.rpartition(" of layer ")[2] for name in names if " of layer " in name
    }
    assert len(layers) > 1


def test_a_stage_is_of_the_layer_of_who_receives_or_else_of_who_sends() -> None:
    layers = (1, 2, None, None)
    tasks = tuple(
        Task(f"t{number}", f"k{number}", settings={"layer": layer} if layer else {})
        for number, layer in enumerate(layers)
    )
    edges = (Edge(0, 1), Edge(1, 2), Edge(2, 3), Edge(2, 0, lag=1))
    assert coflows(with_coflows(Job(tasks, edges, 2), "stage")) == [
        "k0->k1 of layer 2",
        "k1->k2 of layer 2",
        "k2->k3",
        "k2->k0 of layer 1",
    ]


def test_two_jobs_have_coflows_of_their_own() -> None:
    problem, _ = two_machine_example(2)
    edges = tuple(replace(edge, coflow="x") for edge in problem.job.edges)
    job = replace(problem.job, edges=edges)
    both = several_jobs([JobPart("a", job, 0.0), JobPart("b", job, 0.0)])
    assert {*both.coflows} == {"a/x", "b/x"}
    assert Edge(0, 1).coflow == ""
