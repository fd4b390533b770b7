"""Sections of drawn scenario files, with every key that a file may have.

Sections are drawn apart from each other, so that about one file in four is refused.
Jobs are small: up to five machines and some tens of tasks, a made-up graph of 1,224
vertices, times of whole and half seconds, so that ties are common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emu.prediction.scheduling import RATE_POLICIES
from tests.testing.draw import Draw, Section

TRAINED = ("dgtp", "p3", "data_parallel", "dgcl", "dorylus")
#: Rules that came later: drawn apart, so that a seed stays what it was.
LATE_RULES = ("sincronia", "aalo")
_RULES = [name for name in RATE_POLICIES if name not in LATE_RULES]


class Scenario:
    """One file in the making."""

    def __init__(self, seed: int, system: str) -> None:
        self.draw = draw = Draw(seed)
        self.seed, self.system = seed, system
        self.trains = system != "custom"
        self.rate, self.unit = (2e6, 0.01) if self.trains else (5.0, 1.0)
        several = system in {"custom", "dgtp", "data_parallel"} and draw.chance(0.2)
        self.cluster = self._cluster()
        content: Section = {
            "name": f"drawn-{seed}",
            "cluster": self.cluster,
            "emulation": self._emulation(),
            "seed": draw.count(0, 3),
        }
        if several:
            content |= draw.maybe(0.5, place_jobs=("sequential", "joint"))
            if content.get("place_jobs") == "joint":
                content |= draw.maybe(0.5, joint_cost=("max", "sum", "weighted"))
            content["jobs"] = self._jobs(content)
        else:
            content["job"] = self._job(system)
        if not several or content.get("place_jobs") == "joint" or draw.chance(0.1):
            content |= draw.maybe(0.8, placement=self._placement(content))
        content["schedule"] = self._schedule()
        content |= self._recovery(several=several)
        self.restarts = "on_failure" in content
        content |= draw.maybe(0.4, events=self._events())
        content |= draw.maybe(0.1, failures=self._failures())
        content |= draw.maybe(
            0.1, prices=draw.maybe(0.5, request="1e-6 $", granularity="1 ms")
        )
        if self.trains and draw.chance(0.05):
            content["until"] = {"accuracy": "0.1 %", "every": 1} | draw.maybe(
                split=("train", "valid", "test"), every=(1, 2)
            )
        content |= draw.maybe(0.05, expect=draw.maybe(0.5, trust="trusted"))
        self.content = content

    def nic(self) -> Any:
        """Return a NIC, or one of two directions that differ."""
        rates = [f"{self.rate * self.draw.one(1, 0.4, 2)!r} B/s" for _ in range(2)]
        one_way = {"in": rates[0], "out": rates[1]}
        return one_way if self.draw.chance(0.3) else rates[0]

    def _cluster(self) -> Section:
        draw = self.draw
        if self.system == "dgcl" and draw.chance(0.5):
            self.names = [f"d{n}" for n in range(8)]
            self.links: list[str] = []
            self.racks: list[str] = []
            return {"topology": draw.one("dgx1", "dgx1", "pcie_8")}
        count = draw.count(1, 5)
        self.names = [f"m{n}" for n in range(count)]
        priced, capable = draw.chance(0.2), draw.chance(0.1)
        self.pooled = not self.trains and draw.chance(0.4)
        machines = []
        for name in self.names:
            machine = {"name": name, "nic": self.nic()}
            machine |= draw.maybe(0.1, speed=(0.5, 1.0, 2.0), device=("a", "b"))
            if self.pooled:
                machine["slots"] = draw.maybe(0.9, gpu=(1, 2), cpu=(1, 2))
            if priced:
                machine["price"] = f"{draw.count(1, 3)} $/h"
            if capable:
                machine |= draw.maybe(0.8, cpu=(4, 16), memory=("8 GB", "64 GB"))
                machine |= draw.maybe(0.3, gpu=(1, 2))
            machines.append(machine)
        if draw.chance(0.15):
            machines[-1] |= {"count": 2}
            self.names[-1:] = [f"{self.names[-1]}{n}" for n in range(2)]
        return {"machines": machines} | self._links(machines)

    def _links(self, machines: list[Section]) -> Section:
        draw, names = self.draw, self.names
        self.racks, self.links, section = [], [], dict[str, Any]()
        if len(names) > 1 and draw.chance(0.2):
            half = len(names) // 2
            self.racks = ["r0", "r1"]
            section["racks"] = [
                {"name": rack, "machines": there, "uplink": self.bandwidth()}
                for rack, there in zip(
                    self.racks, (names[:half], names[half:]), strict=True
                )
            ]
        elif len(names) > 1 and draw.chance(0.25):
            self.links = [f"l{n}" for n in range(draw.count(1, 2))]
            section["links"] = [
                {"name": link, "bandwidth": self.bandwidth()} for link in self.links
            ]
            section["routes"] = [
                {
                    "from": a,
                    "to": b,
                    "through": draw.one(
                        ["out", self.links[0], "in"], [self.links[-1]], self.links
                    ),
                }
                for a in names
                for b in names
                if a != b and draw.chance(0.6)
            ]
            if draw.chance(0.2) and "count" not in machines[-1]:
                machines[-1]["nic"] = "none"
        return section

    def bandwidth(self) -> str:
        """Return that of a link."""
        return f"{self.rate * self.draw.one(1, 0.5, 3)!r} B/s"

    def _emulation(self) -> Section:
        draw = self.draw
        scales: Section = {"time_scale": draw.one(2, 5)}
        if not self.trains:
            scales = {
                "time_scale": draw.one(0.05, 0.5, 1),
                "byte_scale": draw.one(1000, 3000),
            }
        compute = draw.one("timed", "timed", "padded") if self.trains else "timed"
        return {
            **scales,
            "compute": compute,
            "deadline": "10 min",
            **draw.maybe(0.2, flow_ends=("arrival", "fluid")),
            **draw.maybe(0.1, catch_up=("unlimited", "0 s", "1 s")),
            **draw.maybe(0.1, max_error="2 %", max_difference="5 %", silence="30 s"),
        }

    # Jobs.

    def _jobs(self, content: Section) -> list[Section]:
        draw, jobs = self.draw, []
        for name in "abc"[: draw.count(1, 3)]:
            system = draw.one(self.system, "custom") if self.trains else "custom"
            item = {"name": name, "job": self._job(system)}
            item |= draw.maybe(0.4, release=draw.seconds(self.unit))
            if content.get("joint_cost") == "weighted" or draw.chance(0.02):
                item |= draw.maybe(0.5, weight=(0.5, 2))
            if content.get("place_jobs") != "joint" or draw.chance(0.1):
                item |= draw.maybe(0.5, placement=self._placement(item))
            jobs.append(item)
        return jobs

    def _job(self, system: str) -> Section:
        job: Section = getattr(self, f"_{system}")()
        return {"system": system} | job

    def stated_time(self) -> Any:
        """Return a time, or one per device."""
        time = self.draw.seconds(self.unit)
        if self.draw.chance(0.02):
            return {"default": time, "a": self.draw.seconds(self.unit)}
        return time

    def _custom(self) -> Section:
        draw, iterations = self.draw, self.draw.count(1, 5)
        names = [f"t{n}" for n in range(draw.count(1, 7))]
        tasks = [self._task(name, iterations) for name in names]
        job: Section = {
            "iterations": iterations,
            "tasks": tasks,
            "flows": self._flows(tasks, iterations),
            **draw.maybe(0.4, credit_window=(1, 2, 4, "unlimited")),
            **draw.maybe(0.05, times=("stated", "measured")),
        }
        plain = [t["name"] for t in tasks if {*t} <= {"name", "kind", "time", "pin"}]
        if len(plain) > 1 and draw.chance(0.25):
            among = draw.some(plain, 2)
            reduction = {"among": among, "volume": f"{draw.one(0, 6, 30)} B"}
            reduction |= draw.maybe(0.3, lag=(1, 2), segments=(1, 2, 3))
            others = [name for name in plain if name not in among]
            if len(others) >= len(among) and draw.chance(0.5):
                reduction |= {"then": others[: len(among)]}
            job["collectives"] = [{"allreduce": reduction}]
        return job

    def _task(self, name: str, iterations: int) -> Section:
        draw = self.draw
        kinds = ("graph_store", "sampler", "worker", "parameter_server", "task")
        task: Section = {"name": name} | draw.maybe(0.6, kind=kinds)
        task["time"] = self.stated_time()
        own = draw.count(1, iterations) if draw.chance(0.2) else None
        if own is not None:
            task["iterations"] = own
        if draw.chance(0.1):
            rounds = own or iterations
            task["time"] = [draw.seconds() for _ in range(rounds)]
        task |= draw.maybe(0.15, pin=(*self.names,), process=("p0", "p1"))
        pools = draw.one("slot", "takes", "server", "gate", "", "")
        if not self.pooled and not draw.chance(0.01):
            pools = pools.replace("slot", "").replace("takes", "")
        if pools in {"slot", "takes"}:
            task[pools] = draw.one("gpu", "cpu")
            if pools == "takes" and draw.chance(0.2):
                task["frees"] = draw.one("gpu", "cpu", "none")
        elif pools == "server" and "process" not in task:
            task["server"] = "kv"
        elif pools == "gate" and draw.chance(0.3):
            task = {"name": name, "gate": True, "time": "0 s"}
        task |= draw.maybe(0.05, demands={"cpu": draw.one(1, 2)})
        return task

    def _flows(self, tasks: list[Section], iterations: int) -> list[Section]:
        draw, flows = self.draw, []
        for here, source in enumerate(tasks):
            for there, task in enumerate(tasks):
                if not draw.chance(0.3):
                    continue
                lag = draw.one(0, 0, 1, 2) if here < there else draw.count(1, 3)
                size = [f"{draw.one(0, 1, 5, 10, 10, 40)} B" for _ in range(iterations)]
                gates = source.get("gate") or task.get("gate")
                flow = {
                    "from": source["name"],
                    "to": task["name"],
                    "volume": "0 B" if gates else size[0],
                    **({"lag": lag} if lag else {}),
                }
                if draw.chance(0.1) and not gates:
                    flow["volume"] = size[: source.get("iterations", iterations)]
                flow |= draw.maybe(0.15, channel=("a", "a", "b"))
                flow |= draw.maybe(0.1, reads=("each", "latest"))
                flows.append(flow)
        return flows

    def _trained(self) -> Section:
        """Return what all jobs that train state."""
        draw = self.draw
        dataset = {"name": "products-like", "scale": 0.0005, "seed": 0}
        dataset |= draw.maybe(0.2, feature_length=(5, 120), normalise=True)
        optimizer = {"name": draw.one("adam", "sgd")}
        optimizer |= draw.maybe(0.3, lr=(0.01, 0.1), half_life=(2, 10))
        return {
            "dataset": dataset,
            **draw.maybe(0.3, optimizer=optimizer, precision=("float32", "float64")),
        }

    def _sampled(self) -> Section:
        draw, layers = self.draw, self.draw.count(1, 3)
        kind = draw.one("sage", "gcn", "gat", "gin")
        model = {"kind": kind, "hidden": draw.one(4, 6), "layers": layers}
        model |= draw.maybe(0.3, heads=2) if kind == "gat" else {}
        fanouts: Any = [draw.one(1, 2, 3) for _ in range(layers)]
        if draw.chance(0.03):
            fanouts = "all"
        length = draw.maybe(0.05, epochs=1) or {"iterations": draw.count(1, 4)}
        return {
            **self._trained(),
            "model": model,
            "fanouts": fanouts,
            "batch_size": 90 if "epochs" in length else draw.one(4, 6, 12, 12, 120),
            **length,
            **draw.maybe(0.2, epoch=("replicate", "shard", "local")),
            **draw.maybe(0.5, credit_window=(1, 2, 4, "unlimited")),
        }

    def times(self, *kinds: str, rarely: Sequence[str] = ()) -> dict[str, Any]:
        """Return times of all kinds, and of some."""
        return {kind: self.stated_time() for kind in kinds} | {
            kind: self.stated_time() for kind in rarely if self.draw.chance(0.4)
        }

    def _demands(self, *kinds: str) -> Section:
        if not self.draw.chance(0.1):
            return {}
        amounts = {kind: {"cpu": self.draw.one(1, 2)} for kind in kinds}
        return {"demands": amounts}

    def _dgtp(self) -> Section:
        draw = self.draw
        job = self._sampled() | {
            "partitioner": draw.one("hash", "metis"),
            "workers": draw.count(1, 3),
            "samplers_per_worker": draw.count(1, 2),
            "times": self.times(
                "graph_store", "sampler", "worker", "parameter_server",
                rarely=("all_reduce",),
            ),
            **draw.maybe(0.4, sync=("parameter_server", "ring", "halving_doubling")),
            **draw.maybe(0.4, parameter_servers=(1, 2, 3)),
            **draw.maybe(0.3, sampling=("oneshot", "multiround")),
            **self._demands("graph_store", "worker", "sampler"),
        }  # fmt: skip
        if job.get("sync") == "ring":
            job |= draw.maybe(0.5, ring=("rank", "placed"))
        if job.get("sync", "parameter_server") != "parameter_server":
            job.pop("parameter_servers", None)
            job["times"].pop("parameter_server")
        else:
            job["times"].pop("all_reduce", None)
        if job.get("sampling") == "multiround":
            job["times"] |= self.times(
                "graph_store_hop", "sampler_hop", "sampler_fetch"
            )
        return job

    def _machines(self) -> Section:
        return self.draw.maybe(0.3, machines=self.draw.some(self.names, 1))

    def _p3(self) -> Section:
        draw = self.draw
        job = self._sampled() | self._machines()
        if "iterations" in job:
            job["iterations"] = draw.count(2, 6)
        job |= {
            "times": self.times(
                "sampler", "model_forward", "data_forward", "data_backward",
                "model_backward", rarely=("all_reduce",),
            ),
            **draw.maybe(0.6, pipeline=("A", "B", "none")),
            **draw.maybe(0.4, push=("shipped", "derived")),
            **draw.maybe(0.4, structure=("replicated", "hashed")),
            **draw.maybe(0.3, cache=(1, 2, len(self.names))),
            **self._demands("worker"),
        }  # fmt: skip
        if draw.chance(0.2):
            shares = [draw.one(0, 1, 2, 3) for _ in self.names]
            job["columns"] = draw.one("even", [*shares[:-1], 1 + shares[-1]])
        if job.get("structure") == "hashed":
            job["times"] |= self.times("sampler_hop", "graph_store_hop")
        return job

    def _data_parallel(self) -> Section:
        job = self._sampled() | self._machines()
        return job | {
            "partitioner": self.draw.one("hash", "metis"),
            "times": self.times(
                "sampler", "worker", rarely=("graph_store", "all_reduce")
            ),
            **self._demands("worker", "graph_store"),
        }

    def _whole(self, parts: int) -> Section:
        """Return what both whole-graph systems state, of so many parts."""
        draw = self.draw
        job = self._trained() | {
            "epochs": draw.count(1, 4),
            "partitioner": draw.one("hash", "metis", "hash", "hierarchical"),
        }
        if job["partitioner"] == "hierarchical":
            job["boxes"] = [parts] if parts < 2 else [1, parts - 1]
        return job

    def _dgcl(self) -> Section:
        draw, layers = self.draw, self.draw.count(1, 3)
        kind = draw.one("gcn", "sage", "gin", "commnet")
        machines = self._machines()
        if len(self.names) > 4 and not machines:
            machines["machines"] = draw.some(self.names, 1)[:4]
        job = self._whole(len(machines.get("machines", self.names))) | machines
        one, each = self.times("forward", "backward"), draw.chance(0.3)
        return job | {
            "model": {
                "kind": kind,
                "hidden": draw.one(4, 6),
                "layers": layers,
                **draw.maybe(0.2, norm=("symmetric", "mean")),
                **draw.maybe(0.2, activation=("relu", "tanh")),
            },
            "times": {
                **(
                    {k: [draw.seconds(self.unit)] * layers for k in one}
                    if each
                    else one
                ),
                **self.times(rarely=("gather", "scatter", "receive")),
            },
            **draw.maybe(
                0.7,
                plan=(
                    "spst",
                    "peer_to_peer",
                    "best_of",
                    "swap",
                    "replication",
                    "dgcl_r",
                ),
            ),
            **draw.maybe(0.3, coordination=("decentralized", "central")),
            **draw.maybe(0.3, backward=("nonatomic", "atomic")),
            **draw.maybe(0.3, cache_features=(True, False), plan_sweeps=(0, 1)),
            **draw.maybe(0.1, plan_seed=3, plan_eps=0.01, plan_group=(1, 4)),
            **draw.maybe(0.1, host=(*self.names,)),
        }

    def _dorylus(self) -> Section:
        draw = self.draw
        kind, intervals = draw.one("gcn", "gcn", "gat"), draw.count(1, 4)
        times = self.times(
            "gather", "apply", "scatter",
            rarely=("gather_back", "apply_back", "scatter_back", "call", "answer",
                    "ghosts", "stash", "gradient_sum", "weight_update"),
        )  # fmt: skip
        if kind == "gat":
            times |= self.times("edge_apply", rarely=("edge_apply_back",))
        servers = draw.some(self.names, 1)[:3]
        others = [name for name in self.names if name not in servers]
        graph = others if others and draw.chance(0.7) else draw.some(self.names, 1)
        job = self._whole(len(graph))
        if graph != others or draw.chance(0.3):
            job["machines"] = graph
        job |= {
            "model": {"kind": kind, "hidden": draw.one(4, 6)}
            | draw.maybe(0.3, layers=(1, 2, 3), activation=("relu", "tanh")),
            "times": times,
            "parameter_servers": servers,
            "intervals": intervals,
            "mode": draw.one("pipe", "no_pipe", "async"),
            **draw.maybe(0.3, interval_cut=("contiguous", "balanced")),
            **draw.maybe(0.3, threads=(1, 2)),
            **draw.maybe(0.3, receivers=("server", "interval")),
            **draw.maybe(0.3, first_epoch=("sync", "free")),
            **draw.maybe(0.2, fuse=(True, False), rematerialize=True, stream=(1, 2)),
        }
        if job["mode"] == "async":
            job["staleness"] = draw.count(0, 2)
        if draw.chance(0.6):
            job |= self._lambdas(intervals)
        else:
            job["backend"] = draw.one("cpu", "gpu", "lambda")
        return job

    def _lambdas(self, intervals: int) -> Section:
        draw = self.draw
        section = draw.maybe(0.6, lambdas=(1, intervals, "auto"))
        if section.get("lambdas") == "auto":
            section |= draw.maybe(0.5, tuner={"period": f"{draw.one(5, 20)} ms"})
        slow = {"share": draw.one(0.2, 0.5), "factor": 3.0}
        dying = {"share": draw.one(0.1, 0.3), "timeout": "20 ms"}
        dying |= draw.maybe(0.5, late=(0, 1.0), ratio=(1.5, 3.0), attempts=(3, 20))
        return section | draw.maybe(
            0.3,
            launch=draw.maybe(0.7, cold="30 ms", warm="5 ms"),
            slow_lambdas=slow | draw.maybe(spread=("exponential",)),
            dying_lambdas=dying,
            lambda_nic="50 Mbit/s",
            lambda_uplink="80 Mbit/s",
        )

    # Placement, rates, events.

    def _placement(self, part: Mapping[str, Any]) -> Section:
        draw = self.draw
        policies: tuple[str, ...] = ("best", "etp", "ifs", "random", "round_robin")
        if part.get("job", {}).get("system") in {"dgtp", "custom", None}:
            policies += ("explicit",)
        if part.get("job", {}).get("system") == "dgtp" or draw.chance(0.03):
            policies += ("distdgl",)
        policy = draw.one(*policies)
        section: Section = {"policy": policy}
        if policy in {"best", "etp"}:
            section["iterations"] = draw.one(5, 30)
            section |= draw.maybe(0.4, simulated_iterations=(1, 3))
        if policy == "etp":
            section |= draw.maybe(0.4, beta=0.5, beta_unit="1 s", tolerance=0.5)
        job = part.get("job", {})
        processes = dict.fromkeys(
            task.get("process", task.get("server", task["name"]))
            for task in job.get("tasks", ())
            if "pin" not in task and not task.get("gate")
        )
        if policy == "explicit" or (processes and draw.chance(0.2)):
            names = [*processes] if policy == "explicit" else draw.some([*processes])
            section["tasks"] = {name: draw.one(*self.names) for name in names}
        if policy == "explicit" and job.get("system") == "dgtp":
            section["tasks"] = {
                f"{letter}{n}": draw.one(*self.names)
                for letter, count in (
                    ("w", job["workers"]),
                    ("s", job["workers"] * job["samplers_per_worker"]),
                    ("ps", job.get("parameter_servers", 1) * ("sync" not in job)),
                )
                for n in range(count)
            }
        return section

    def _schedule(self) -> Section:
        draw = self.draw
        section: Section = {"policy": draw.one(*_RULES)}
        if draw.chance(0.1):
            section = {"policy": "rule.py:Shares"}
        elif section["policy"] in {"oes", "maxmin"}:
            section |= draw.maybe(0.3, share=("flow", "job"))
        return section

    def _events(self) -> list[Section]:
        draw, events = self.draw, []
        for _ in range(draw.count(1, 4)):
            at = f"{draw.one(0.5, 1, 2, 2.5, 4, 7) * self.unit!r} s"
            event: Section = {"at": at}
            links = self.links + [
                f"{r} {way}" for r in self.racks for way in ("up", "down")
            ]
            ends = {"for": f"{draw.one(1, 2, 3) * self.unit!r} s"}
            what = draw.one("nic", "link", "cut", "slow", "pause", "slow_nic")
            if draw.chance(0.5 if self.restarts else 0.03):
                events.append({"at": at, "kill": draw.one(*self.names)})
                continue
            if "topology" in self.cluster:  # devices without NICs
                what = draw.one("slow", "pause")
            if what == "nic" or (what == "link" and not links):
                event |= {"machine": draw.one(*self.names), "nic": self.nic()}
            elif what == "link":
                event |= {"link": draw.one(*links), "bandwidth": self.bandwidth()}
            elif what == "cut":
                event |= {"cut": draw.one(*self.names, *links)} | ends
                if event["cut"] in self.names:
                    event |= draw.maybe(direction=("in", "out", "both"))
            else:
                key = what.removesuffix("_nic")
                event |= {key: draw.one(*self.names)}
                if key == "slow":
                    event |= {"by": draw.one(1.5, 2, 3)}
                if what == "slow_nic":
                    event |= {"direction": draw.one("in", "out", "both")}
                event |= ends if key == "pause" or draw.chance(0.7) else {}
            events.append(event)
        return events

    def _failures(self) -> Section:
        draw = self.draw
        each = f"{draw.one(5, 10, 20) * self.unit!r} s"
        lasts = f"{self.unit / 2!r} s"
        machine: Section = {"every": each, "for": lasts} | draw.maybe(most=(1, 5))
        if draw.chance(0.4):
            machine |= {"what": "slow", "by": 2}
        elif draw.chance(0.2):
            machine = {"every": each, "what": "kill"}
        section: Section = {"machine": machine} | draw.maybe(seed=(0, 5))
        if (self.links or self.racks) and draw.chance(0.5):
            section["link"] = {"every": each, "for": lasts, "what": "cut"}
        return section

    def _recovery(self, *, several: bool) -> Section:
        """Return checkpoints, and whether a job that dies goes on."""
        draw = self.draw
        if several or not self.trains:
            return draw.maybe(0.15, on_failure="restart")
        if not draw.chance(0.2):
            return {}
        kept = {"every": f"{draw.one(1, 2)} iterations"}
        kept |= draw.maybe(0.4, to=("disk", "peer"), takes=f"{self.unit!r} s")
        restarts = {"on_failure": "restart"} | draw.maybe(
            recovery=f"{self.unit!r} s", max_restarts=(3, 9)
        )
        return {"checkpoint": kept} | (restarts if draw.chance(0.5) else {})
