"""Faults to plant in runs, by name."""

from __future__ import annotations

from dataclasses import dataclass

from emu.testing.faults import Fault


@dataclass(frozen=True)
class RunFault(Fault):
    """One change of the product that makes runs false.

    Parameters
    ----------
    scenario
        That shows it.
    unseen
        Why no run can show that it is false; empty where one must.
    """

    scenario: str = "golden"
    unseen: str = ""


_LINKS = "emu/problem/links.py"
_PACE = "emu/emulation/shaping.py"
_PACING = "emu/prediction/core/pacing.c"
_SHARING = "emu/prediction/core/sharing.c"
_DESK = "emu/prediction/core/desk.c"
_RECORDER = "emu/emulation/coordinator/outcome.py"
_EDGES = "emu/prediction/core/timed_edges.c"
_TASKS = "emu/prediction/core/timed_tasks.c"
_TIMED = "nodes/emu_nodes/timed_layout.py"
_PARAMETERS = "nodes/emu_nodes/dgtp/programs.py"
_WORKER = "nodes/emu_nodes/dgtp/programs.py"
_RUNTIME = "nodes/emu_nodes/runtime.py"
_CAPACITIES = "[link.capacity for"
_RATE = "seen.rate * p->byte_scale / p->time_scale"
_SINCE = "wall_of(p, seen.since)"
_SOON = "double soon = now + pace->lead_time"
_CONTENT = "window_start(p->seed, out->edge, number, p->period)"
_SIZES = "self._integers(sizes)"
_WINDOW = "body = p->pool + start"
_CLOCK = "RunClock(begin.start_wall, scale, offset)"
_TIMES = "self._numbers(times)"
_TOLD = '"""Return this server\'s ``parameters``."""\n'
_QUOTA = "state->quota[tuner] = layout->pool_slots[layout->tuners.tuned[tuner]];"
_SHARE = "least_over(layout, state->scratch.share, group)"

FAULTS: dict[str, RunFault] = {
    # What links carry.
    "capacities times 1.5": RunFault(
        _LINKS, _CAPACITIES, f"{_CAPACITIES[:1]}1.5 * {_CAPACITIES[1:]}"
    ),
    "capacities times 1.02": RunFault(
        _LINKS, _CAPACITIES, f"{_CAPACITIES[:1]}1.02 * {_CAPACITIES[1:]}"
    ),
    "a port forgotten": RunFault(
        _LINKS, "= [(OUT, IN)]", "= [(OUT,)]", scenario="incast"
    ),
    "a change that the run does not carry out": RunFault(
        "emu/prediction/core/rate_changes.c",
        "state->capacity[port] = change[2];",
        ";",
        scenario="events",
    ),
    "a flow that never shares": RunFault(
        _SHARING, _SHARE, f"(group == 0 ? 2 : 1) * {_SHARE}"
    ),
    "shares cut in half": RunFault(_SHARING, _SHARE, f"{_SHARE} / 2"),
    # What senders do.
    "senders at 1.5 times their rate": RunFault(_PACING, _RATE, f"1.5 * {_RATE}"),
    "senders one flow ahead": RunFault(
        _PACING,
        "{seen.served * p->byte_scale,",
        "{1e9 + seen.served * p->byte_scale,",
    ),
    "senders half a second ahead": RunFault(_PACING, _SOON, f"{_SOON} + 0.5"),
    "one store sends early": RunFault(
        _PACING, _SINCE, f"{_SINCE} - (edge == 1 ? 0.1 : 0.0)"
    ),
    "the lead of fluid under arrival": RunFault(
        _PACE,
        '_LEAD * longest if settings.flow_ends == "fluid" else 0.0',
        "_LEAD * longest",
        unseen="a last byte comes some 6 ms early, which is less than what a sound run "
        "owes to wake-ups; the makespan is the same, lateness up to 6 ms is hidden",
    ),
    "the last piece is not kept back": RunFault(
        _PACING,
        "(double)volume - pace->tail",
        "(double)volume",
        unseen="the last 16 kB of a flow come early, here 3 ms, and end it no sooner",
    ),
    # What is reported.
    "arrivals noted 5 ms early": RunFault(
        "emu/prediction/core/receiving.c",
        "    return a->last;",
        "    return a->last -= 0.005;",
    ),
    "arrivals told 50 ms early": RunFault(
        _EDGES,
        "{run_time_of(p->pacing, wall),",
        "{run_time_of(p->pacing, wall) - 0.5,",
    ),
    "arrivals do not count": RunFault(
        _DESK,
        "larger(desk->arrived[edge], desk->fluid_end[edge])",
        "desk->fluid_end[edge]",
    ),
    "inputs not held back": RunFault(
        _TASKS,
        "if (in->latency > 0.0) {",
        "if (false) {",
        scenario="latency",
        unseen="a sound coordinator orders a task for when its inputs have landed, by "
        "the note of their receiver; tests of the core hold inputs back alone",
    ),
    "latencies that nobody counts": RunFault(
        "emu/problem/placement.py",
        "of_link = self.links.latencies",
        "of_link = self.links.latencies[:0]",
        scenario="latency",
    ),
    "frames of an iteration not noted": RunFault(
        _EDGES,
        "    add_frame(p->arrivals, r->edge,",
        "    if (r->iteration != 1)\n        add_frame(p->arrivals, r->edge,",
    ),
    "starts noted early": RunFault(
        _DESK,
        "found->task_iteration[i]] = now;",
        "found->task_iteration[i]] = now - 0.5;",
    ),
    "flows noted early": RunFault(
        _DESK,
        "found->flow_iteration[i]] = now;",
        "found->flow_iteration[i]] = now - 0.5;",
    ),
    "half the bytes noted": RunFault(
        _RECORDER,
        "np.where(is_flow, self._volumes, np.nan)",
        "np.where(is_flow, self._volumes / 2, np.nan)",
    ),
    "half the rates noted": RunFault(
        "emu/emulation/coordinator/rate_record.py",
        'rate=columns["rate"],',
        'rate=columns["rate"] / 2,',
    ),
    "makespans 10 % short": RunFault(
        "emu/problem/schedule.py",
        "return float(np.nanmax(self.task_end))",
        "return 0.9 * float(np.nanmax(self.task_end))",
    ),
    # Clocks.
    "a clock 1 % fast": RunFault(
        _PACING,
        "return (wall + ahead - p->start) / p->time_scale;",
        "return (wall + ahead - p->start) / p->time_scale * 1.01;",
    ),
    "the clock of one process 1 % fast": RunFault(
        _RUNTIME,
        _CLOCK,
        _CLOCK.replace("scale,", 'scale * (0.99 if self._name == "w0" else 1),'),
    ),
    "the clock of one process 20 ms ahead": RunFault(
        _RUNTIME,
        _CLOCK,
        _CLOCK.replace("offset", 'offset + (0.02 if self._name == "w0" else 0.0)'),
    ),
    # What is sent.
    "volumes halved": RunFault(
        _TIMED, _SIZES, _SIZES.replace("sizes", "[size // 2 for size in sizes]")
    ),
    "no bytes every tenth iteration": RunFault(
        _TIMED,
        _SIZES,
        _SIZES.replace(
            "sizes", "[size * (n % 10 != 9) for n, size in enumerate(sizes)]"
        ),
        scenario="incast",
    ),
    "half the bytes, announced whole": RunFault(
        _TASKS, "volume = (double)out->size", "volume = 2.0 * (double)out->size"
    ),
    "wrong content": RunFault(_EDGES, _WINDOW, f"{_WINDOW} + 1"),
    "content of the iteration before": RunFault(
        _EDGES, _CONTENT, _CONTENT.replace("number", "at_least(number - 1, 0)")
    ),
    "content of another edge": RunFault(
        _EDGES, _CONTENT, _CONTENT.replace("out->edge", "0")
    ),
    "a byte altered on its way": RunFault(
        "emu/prediction/core/frames.c",
        "        compare(r->expected, r->filled, bytes, size);",
        # The checksum of the frame stays that of what came.
        "    {\n        ((uint8_t *)bytes)[0] ^= size > 0;\n"
        "        compare(r->expected, r->filled, bytes, size);\n    }",
    ),
    "features of other vertices": RunFault(
        "nodes/emu_nodes/dgtp/programs.py",
        "self._features[places]",
        "self._features[places[::-1]]",
        scenario="training",
    ),
    "a gradient back to front": RunFault(
        _WORKER,
        "made[first:last]}",
        "made[first:last][::-1].copy()}",
        scenario="learning",
    ),
    "the first worker counts alone": RunFault(
        _PARAMETERS, "mean_gradient(gradients)", "gradients[0]", scenario="learning"
    ),
    "parameters of the step before": RunFault(
        _PARAMETERS,
        "return {name: self._parameters.copy()}",
        "held = getattr(self, '_held', self._parameters.copy())\n        "
        "self._held = self._parameters.copy()\n        "
        "return {name: held}",
        scenario="learning",
    ),
    "labels of other seeds": RunFault(
        _WORKER,
        "self._dataset.labels[batch.seeds]",
        "self._dataset.labels[batch.seeds[::-1]]",
        scenario="training",
    ),
    "senders count half of what they send": RunFault(
        "emu/prediction/core/pacing.c",
        "s->payload_bytes += s->volume;",
        "s->payload_bytes += s->volume / 2;",
    ),
    "first bytes stamped 50 ms early": RunFault(
        "emu/prediction/core/sending.c",
        "s->last = monotonic();",
        "s->last = monotonic() - 0.05;",
    ),
    "the same seeds in every iteration": RunFault(
        "emu/graph_data/batches.py",
        "first = step * self.batch_size",
        "first = 0",
        scenario="training",
    ),
    "weights written a hundredth smaller": RunFault(
        _PARAMETERS,
        f'{_TOLD}        return {{"parameters": self._parameters}}',
        f'{_TOLD}        return {{"parameters": 0.99 * self._parameters}}',
        scenario="learning",
    ),
    # Tasks, slots, windows.
    "tasks take half their time": RunFault(
        _TIMED, _TIMES, _TIMES.replace("times", "[time / 2 for time in times]")
    ),
    "every other row of features zeroed": RunFault(
        "nodes/emu_nodes/dgtp/programs.py",
        "rows = self._features[places]",
        "rows = self._features[places]; rows[1::2] = 0",
        scenario="training",
    ),
    "tasks take 0.97 of their time": RunFault(
        _TIMED,
        _TIMES,
        _TIMES.replace("times", "[0.97 * time for time in times]"),
        scenario="incast",
    ),
    "a credit window off by one": RunFault(
        "emu/problem/workloads/all_reduce.py",
        "Edge(end, start, lag=window, credit=True)",
        "Edge(end, start, lag=window + 1, credit=True)",
        scenario="incast",
    ),
    "one task ends early": RunFault(
        _TIMED,
        _TIMES,
        _TIMES.replace(
            "times", '[time / (2 if task.name == "w0" else 1) for time in times]'
        ),
    ),
    "ends told half a second early": RunFault(
        _TASKS, "larger(now, due), began", "larger(now, due) - 0.5, began"
    ),
    "one slot too many": RunFault(
        "emu/prediction/core/state.c",
        _QUOTA,
        f"{_QUOTA}\n    for (int64_t i = 0; i < layout->pools && !measures(room); i++)"
        "\n        state->free[i]++;",
        scenario="incast",
    ),
    # What everything is read from.
    "NICs read as twice as fast": RunFault(
        "emu/problem/fields/cluster_section.py",
        "=self.nic.outward",
        "=2 * self.nic.outward",
        unseen="guards, too, know a NIC by what the one parser read; its tests hold it "
        "against numbers worked out by hand",
    ),
    "an error of 0 whatever happens": RunFault(
        "emu/problem/schedule.py",
        "return difference / running if",
        "return 0.0 if",
    ),
    "a prediction that is the makespan of the run": RunFault(
        "emu/experiment/run_result.py",
        '"predicted_makespan": prediction.makespan,',
        '"predicted_makespan": schedule.makespan,',
    ),
}
