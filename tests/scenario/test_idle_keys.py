"""Keys without effect are named where a file is simulated or run, and are no errors."""

from __future__ import annotations

import pytest

from emu.scenario import prepare
from emu.scenario.scenario_file import loads

TEXT = """
name: idle
cluster:
  machines:
    - {name: m, count: 2, nic: 10 MB/s}
job:
  system: custom
  iterations: 2
  tasks:
    - {name: a, time: 1 s}
    - {name: b, time: 1 s}
  flows:
    - {from: a, to: b, volume: 1 MB}
"""
LAMBDAS = """
name: lambdas
cluster:
  machines:
    - {name: m, count: 2, nic: 1 Gbit/s}
    - {name: ps, nic: 1 Gbit/s}
job:
  system: dorylus
  machines: [m0, m1]
  parameter_servers: [ps]
  intervals: 2
  dataset: {name: products-like, scale: 0.0005}
  model: {hidden: 4}
  epochs: 2
  rates: {aggregate: 1 ns, multiply: 1 ns, sample: 1 ns, collect: 1 ns, step: 1 ns, launch: 1 us}
"""  # noqa: E501


def remarks_on(text: str, machine: str = "") -> list[str]:
    """Return the remarks on a file whose first machines have further keys."""
    with_keys = text.replace("count: 2, ", f"count: 2, {machine}")
    return prepare(loads(with_keys)).remarks()


def test_a_device_without_times_takes_the_default_ones() -> None:
    assert remarks_on(TEXT) == []
    (remark,) = remarks_on(TEXT, "device: a100, ")
    assert remark.startswith("device a100: no time or rate is stated for it")

    timed = TEXT.replace("b, time: 1 s", "b, time: {default: 1 s, a100: 2 s}")
    assert remarks_on(timed, "device: a100, ") == []
    rated = LAMBDAS.replace("step: 1 ns", "step: {default: 1 ns, a100: 2 ns}")
    assert remarks_on(rated, "device: a100, ") == []


def test_values_beyond_the_last_iteration_are_named() -> None:
    longer = TEXT.replace("a, time: 1 s", "a, time: [1 s, 2 s, 9 s]")
    sentence = "time of task a: of 3 values the first 2 count, as many as there are "
    assert remarks_on(longer) == [f"{sentence}iterations"]

    more = longer.replace("1 MB}", "[1 MB, 2 MB, 3 MB]}")
    more = more.replace("b, time: 1 s", "b, time: [1 s, 1 s, 1 s, 1 s]")
    assert remarks_on(more) == [f"{sentence}iterations (and 2 more such lists)"]

    assert remarks_on(longer.replace("iterations: 2", "iterations: 3")) == []
    own = more.replace("name: b,", "name: b, iterations: 3,")
    own = own.replace("name: a,", "name: a, iterations: 3,")
    (remark,) = remarks_on(own)
    assert remark.startswith("time of task b: of 4 values the first 3 count")
    flows = "  flows:"
    among = "  collectives:\n    - allgather: {among: [a, b], volume: [1 B, 1 B, 1 B]}"
    (of_exchange,) = remarks_on(TEXT.replace(flows, f"{among}\n{flows}"))
    assert of_exchange.startswith("volume of allgather of a: of 3 values the first 2")


def test_a_device_of_one_of_several_jobs_is_no_idle_one() -> None:
    head, job = TEXT.split("job:\n")
    indented = job.replace("\n  ", "\n      ")
    timed = indented.replace("a, time: 1 s", "a, time: {default: 1 s, a100: 2 s}")

    for second, count in ((indented, 1), (timed, 0)):
        text = f"{head}jobs:\n  - name: x\n    job:\n    {indented}"
        text += f"  - name: y\n    job:\n    {second}"
        text += "schedule: {share: job}\n"
        assert len(remarks_on(text, "device: a100, ")) == count


def test_speeds_are_of_measured_times() -> None:
    (remark,) = remarks_on(TEXT, "speed: 0.5, ")
    assert remark.startswith("speed 0.5 of machines changes nothing")
    assert remarks_on(TEXT, "speed: 1, ") == []

    measured = TEXT.replace("iterations: 2", "iterations: 2\n  times: measured")
    assert remarks_on(measured, "speed: 0.5, ") == []
    (rated,) = remarks_on(LAMBDAS, "speed: 2, ")
    assert rated.startswith("speed 2 of machines changes nothing")


def test_links_are_of_routes() -> None:
    links = ", ".join(f"{{name: l{number}, bandwidth: 1 MB/s}}" for number in range(5))
    linked = TEXT.replace("job:\n", f"  links: [{links}]\njob:\n")
    (remark,) = remarks_on(linked)
    assert remark.startswith("link l0, l1, l2 and 2 more: no route crosses it")

    through = ", ".join(f"l{number}" for number in range(5))
    route = f"  routes: [{{from: m0, to: m1, through: [{through}]}}]\njob:\n"
    assert remarks_on(linked.replace("job:\n", route)) == []


def test_a_flow_that_never_goes_and_a_kind_that_may_be_misspelt_are_named() -> None:
    def with_lag(lag: int) -> str:
        return TEXT.replace("volume: 1 MB", f"volume: 1 MB, lag: {lag}")

    assert remarks_on(with_lag(1)) == []
    assert remarks_on(with_lag(2)) == [
        "flow a->b: with lag 2 nothing is sent in 2 iterations"
    ]
    more_rounds = with_lag(2).replace("b, time: 1 s", "b, time: 1 s, iterations: 3")
    assert remarks_on(more_rounds) == []

    def of_kind(kind: str) -> str:
        return TEXT.replace("{name: b,", f"{{name: b, kind: {kind},")

    meant_kinds = ("worker1", "worker2", "worker_a", "worker_", "resampler")
    for kind in ("worker", "task", "server", "reducer", "param_server", *meant_kinds):
        assert remarks_on(of_kind(kind)) == []
    for kind in ("wroker", "Worker", "workers"):
        (remark,) = remarks_on(of_kind(kind))
        assert remark == f"kind {kind} is a word of its own: did you mean 'worker'?"


def test_slots_that_no_task_takes_limit_nothing() -> None:
    slots = "slots: {x: 3, y: 1}, "
    assert remarks_on(TEXT, slots) == ["slots of x, y limit nothing: no task takes one"]

    taking = TEXT.replace("a, time: 1 s", "a, time: 1 s, slot: x")
    assert remarks_on(taking, "slots: {x: 3}, ") == []
    (remark,) = remarks_on(taking, slots)
    assert remark.startswith("slots of y limit nothing")


@pytest.mark.parametrize(
    ("backend", "problem"),
    [
        ("lambda", "prices change nothing where no machine has one"),
        ("cpu", "prices are of functions, and the job has none"),
    ],
)
def test_prices_of_functions_are_of_jobs_that_have_some(
    backend: str, problem: str
) -> None:
    text = f"{LAMBDAS}  backend: {backend}\n"
    assert remarks_on(text) == []
    (remark,) = remarks_on(f"{text}prices: {{request: 1 $}}\n")
    assert problem in remark


def test_prices_of_functions_and_machines_are_read() -> None:
    """Also where the cluster states the functions, which the job brings else."""
    text = LAMBDAS.replace("nic: 1 Gbit/s", "nic: 1 Gbit/s, price: 1 $/h")
    assert remarks_on(f"{text}prices: {{request: 1 $}}\n") == []

    first, *_ = [line for line in text.splitlines() if "price: 1 $/h" in line]
    stated = first.replace("name: m", "name: lambda").replace("count: 2", "count: 16")
    assert stated != first
    with_functions = text.replace(first, f"{first}\n{stated}")
    assert remarks_on(f"{with_functions}prices: {{request: 1 $}}\n") == []


def test_keys_of_another_rule_network_or_scale_are_named() -> None:
    def with_keys(keys: str) -> list[str]:
        return remarks_on(f"{TEXT}{keys}\n")

    assert with_keys("placement: {policy: etp, beta: 3, iterations: 9}") == []
    assert with_keys("placement: {policy: best, iterations: 9}") == []
    assert with_keys("placement: {beta: 3, tolerance: 0}") == [
        "placement: beta, tolerance change nothing: of policy: etp, found best"
    ]
    assert with_keys("placement: {policy: ifs, iterations: 9}") == [
        "placement: iterations changes nothing: of policy: best or etp, found ifs"
    ]

    assert with_keys("emulation: {network: kernel, sharing: tcp}") == []
    assert with_keys("emulation: {time_scale: auto, trial_budget: 3 s}") == []
    assert with_keys("emulation: {sharing: tcp, trial_budget: 3 s}") == [
        "emulation: sharing changes nothing: of network: kernel, found userspace",
        "emulation: trial_budget changes nothing: of time_scale: auto, found 1",
    ]

    assert with_keys("schedule: {share: job}") == [
        "schedule: share changes nothing: of several jobs, found one"
    ]
    assert with_keys("failures: {seed: 1}") == [
        "failures: seed changes nothing: of machine or link, found none"
    ]
    pauses = "machine: {every: 2 s, for: 100 ms, what: pause}"
    assert with_keys(f"failures: {{seed: 1, {pauses}}}") == []


def test_a_job_of_lambdas_or_plans_names_its_idle_keys() -> None:
    def of_lambdas(keys: str) -> list[str]:
        return list(loads(LAMBDAS.replace("epochs: 2", keys)).job.idle_keys())

    slow = "slow_lambdas: {share: 0.5, factor: 3}"
    assert of_lambdas(f"epochs: 2\n  {slow}") == []
    assert of_lambdas("epochs: 2\n  mode: async\n  first_epoch: free") == []
    for keys in ("slow_lambdas: {share: 0.5}", "slow_lambdas: {factor: 3}"):
        (remark,) = of_lambdas(f"epochs: 2\n  {keys}")
        assert remark.startswith("job.slow_lambdas changes nothing")
    (remark,) = of_lambdas("epochs: 2\n  dying_lambdas: {attempts: 2}")
    assert remark.startswith("job.dying_lambdas changes nothing: write share")
    (remark,) = of_lambdas("epochs: 2\n  first_epoch: free")
    assert remark.endswith("it is of mode: async, found pipe")

    servers = "  parameter_servers: [ps]\n  intervals: 2\n"
    plan = LAMBDAS.replace("dorylus", "dgcl").replace(servers, "  plan: PLAN\n")
    plan = plan.replace("hidden: 4", "hidden: 4, layers: 2")
    for key in ("host: m0", "plan_eps: 1"):
        job = loads(plan.replace("PLAN", f"peer_to_peer\n  {key}")).job
        (remark,) = job.idle_keys()
        assert remark.startswith(f"job.{key[:4]}")
    job = loads(plan.replace("PLAN", "spst\n  plan_eps: 1")).job
    assert list(job.idle_keys()) == []


def test_an_event_of_a_machine_without_tasks_is_named() -> None:
    def with_event(event: str) -> list[str]:
        placed = "placement: {policy: explicit, tasks: {a: m0, b: m0}}"
        return remarks_on(f"{TEXT}{placed}\nevents: [{{at: 1 s, {event}}}]\n")

    for event in (
        "pause: m1, for: 1 s",
        "slow: m1, by: 2",
        "cut: m1",
        "machine: m1, nic: 1 B/s",
    ):
        (remark,) = with_event(event)
        assert remark == "events[0]: no task stands on m1: it changes nothing"
    assert with_event("pause: m0, for: 1 s") == []
