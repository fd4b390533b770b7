"""Scenario files drawn from a seed."""

from __future__ import annotations

import re
from typing import Any

from emu.problem.workloads.collectives import ALGORITHMS
from tests.testing.draw import Draw, Section
from tests.testing.drawn_sections import LATE_RULES, TRAINED, Scenario

#: A rule for rates, as in ``schedule.policy: rule.py:Shares``.
RULE = """
class Shares:
    def rates(self, flows, links):
        count = {}
        for flow in flows:
            for link in flow.links:
                count[link] = count.get(link, 0) + 1
        return [min(links[x] / count[x] for x in flow.links) for flow in flows]
"""

#: Rates with which tasks of graphs of 1,200 vertices take tenths of seconds.
_RATES = {
    "aggregate": ("1 us", "3 us"),
    "multiply": ("0.2 us", "1 us"),
    "sample": ("1 ms",),
    "collect": ("2 us", {"default": "1 us"}),
    "step": ("50 us",),
    "launch": ("50 ms", "1 us"),
}


def draw_scenario(seed: int) -> Section:
    """Return the content of the scenario file of a seed.

    A rule of its own is `RULE`, in a file rule.py beside it.
    """
    system = ("custom", "custom", *TRAINED, "dorylus")[seed % 8]
    content = Scenario(seed, system).content
    draw = Draw(seed + 2**40)  # of latencies: without any a seed stays what it was
    if draw.chance(0.3):
        draw.add_latencies(content["cluster"])
        job = content.get("job", {})
        if (job.get("system"), job.get("backend", "lambda")) == ("dorylus", "lambda"):
            job |= draw.maybe(0.5, lambda_latency=("1 ms", "0.2 s"))
    draw = Draw(seed + 2**41)  # likewise of rates, and of looks by seeds
    jobs = [content.get("job", {}), *(item["job"] for item in content.get("jobs", ()))]
    for job in jobs:
        if "dataset" in job and draw.chance(0.2):
            del job["times"]
            job["rates"] = {name: draw.one(*some) for name, some in _RATES.items()}
    if "until" in content and draw.chance(0.3):
        content["until"]["seeds"] = 5000
        del content["until"]["every"]
    _group_and_keep(jobs, Draw(seed + 2**42))
    draw = Draw(seed + 2**43)
    schedule = content.get("schedule", {})
    if schedule.get("policy", "").startswith(("omcoflow", "sebf")) and draw.chance(0.3):
        schedule["policy"] = draw.one(*LATE_RULES)
    draw = Draw(seed + 2**44)
    for job in jobs:
        if "collectives" in job and draw.chance(0.7):
            _exchange_otherwise(job["collectives"], draw)
    _give_means(content, jobs, Draw(seed + 2**45))
    return content


def _give_means(content: Section, jobs: list[Section], draw: Draw) -> None:
    """State means of jobs on mini-batches: samplers, and memory of devices."""
    for job in jobs:
        if "fanouts" not in job or draw.chance(0.5):
            continue
        job.update(draw.maybe(0.5, samplers_per_worker=(1, 2, 3)))
        job.update(draw.maybe(0.5, features=("host", "device")))
        if "rates" in job:
            job["rates"] |= draw.maybe(0.5, collect_device=("1 us", "0.2 us"))
    for machine in content["cluster"].get("machines", ()):
        machine.update(draw.maybe(0.1, gpu_memory=("20 kB", "8 GB")))


def _exchange_otherwise(collectives: list[Section], draw: Draw) -> None:
    """Make another collective of each, by one of its algorithms."""
    for collective in collectives:
        kind = draw.one(*ALGORITHMS)
        _, one = collective.popitem()
        how = draw.one(*ALGORITHMS[kind])
        if how != "halving_doubling" or len(one["among"]).bit_count() == 1:
            one["algorithm"] = how
        collective[kind] = one


def _group_and_keep(jobs: list[Section], draw: Draw) -> None:
    """State coflows, and caches of rows of others, of some jobs."""
    for job in jobs:
        if job:
            job.update(draw.maybe(0.2, coflow=("task", "stage", "job")))
        for flow in job.get("flows", ()):
            flow.update(draw.maybe(0.1, coflow=("x", "y")))
        if job.get("system") in {"dgtp", "data_parallel"} and draw.chance(0.2):
            policy = draw.one("degree", "vip", "lru", "window")
            window = {"window": 1} if policy == "window" else {}
            job["cache"] = {"policy": policy, "size": draw.one("2 kB", "40 kB")}
            job["cache"] |= window


def key_paths(content: Any, at: str = "") -> set[str]:
    """Return the keys of a file, as in ``cluster.machines[].nic``."""
    if isinstance(content, list):
        return {key for item in content for key in key_paths(item, f"{at}[]")}
    if not isinstance(content, dict):
        return set()
    found = set()
    for key, value in content.items():
        below = re.sub(r"^\.", "", f"{at}.{key}")
        found |= {below, *key_paths(value, below)}
    return found
