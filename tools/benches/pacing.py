"""How exactly flows are paced over real sockets, and what it costs.

A run has flows end with their fluid, or with their last byte if that is later: how late
that is, is the error of a finish. CPU counts both ends. Measured are: one flow of 10,
50 and 100 ms at several rates, and some of 1 s, whose rate is their volume over the
time they took; one long flow, its rate over every window that begins on a multiple of
10 ms, by the bytes that came by then, first 20 ms left out (both are shorter where a
message of 1 GiB, the largest, is over by then); 16 flows in 8 processes, 4 that send
and 4 that receive, whose rates are redrawn every 20 ms (0 in 15 % of the draws), idle
and with every core busy for 60 % of the time; and a port that 4 flows always fill,
bytes that arrived in any 10 ms beyond what the port carries.

A sender looks every 2 ms (`QUANTUM`) and sends at once what its rate carried since, if
that is 4 KB. So bytes count as even over as long before they came: a portion that
straddled the end of a window of 50 ms counted whole, and was 2 % of it. A burst within
2 ms is not seen so; what a sender catches up after a longer pause is. Notes say for how
long the hypervisor kept a core meanwhile: what stands still then is late, whoever paces
it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.emulation.network.tuning import tune_process
from emu.emulation.shaping import QUANTUM, Pace
from emu.emulation.wire.frame_layout import WireLimits
from emu.prediction.core import lib
from tools.benches.figures import Figure, stolen_seconds
from tools.benches.flows import Flows, cpu_load

MEGABITS = (10, 100, 1000, 4000, 10_000, 16_000)
LENGTHS = (0.01, 0.05, 0.1)
#: Seconds of the flows whose finish is not among the quantiles, and how many there are.
LONG, LONGS = 1.0, 3
#: Bytes per second around which rates are drawn: 16 flows then ask for 5.6 Gbit/s.
MEAN_RATE = 59e6
CHANGE = 0.02
#: Seconds -> share by which a rate may be off: of flows so long, and in windows.
RATES = {1.0: 0.0005, 0.05: 0.005, 0.01: 0.03}
#: Quantiles of finishes and their aims, ms: one flow; 16 flows, by load of the cores.
ONE = {50: 0.2, 90: 0.4}
MANY = {0.0: {90: 0.3, 99: 0.6, 100: 1.0}, 0.6: {90: 0.4, 99: 1.5}}
PORT = 125e6
FRESH = 0.02
#: Bytes that a sender collects at least.
PORTION = Pace().lead_bytes / lib.PARTS_OF_LEAD


def finishes(
    what: str, errors: Sequence[float], ends: Sequence[float], aims: dict[int, float]
) -> Iterator[Figure]:
    """Yield quantiles of finishes, and of last bytes after they might leave, ms.

    Flows that raced a new line have no finite error, and are left out.
    """
    late = 1e3 * np.array([error for error in errors if np.isfinite(error)])
    over = 1e3 * np.array([max(end, 0.0) for end in ends if np.isfinite(end)])
    for share, aim in aims.items():
        name = "max" if share == 100 else f"p{share}"
        for word, values in (("finish", over), ("last byte", late)):
            value = float(np.percentile(values, share))
            note = f"{len(values)} flows"
            yield Figure(f"{what}{word}, {name}", value, "ms", aim, note=note)


def words_of(stolen: float) -> str:
    """Return for how long the hypervisor kept a core, as the end of a note."""
    return f", {1e3 * stolen:.0f} ms of a core stolen" if stolen else ""


def cost(what: str, closed: dict[str, Any], aim: float | None = None) -> Figure:
    """Return what the processes took, of what `Flows.close` returned."""
    note = f"{closed['core_pct']:.0f} % of a core, {closed['wakes_s']:.0f} wakes/s"
    return Figure(f"{what}CPU", closed["cpu_s_gb"], "s/GB", aim, note=note)


def window_errors(
    times: NDArray[np.float64],
    sizes: NDArray[np.int64],
    *,
    rate: float,
    span: tuple[float, float],
    width: float,
    step: float,
    spread: float,
) -> NDArray[np.float64]:
    """Return bytes per window over what the rate would bring, less 1; shape (windows,).

    Windows begin ``step`` apart and lie within ``span``: they overlap where ``step`` is
    the shorter.

    Parameters
    ----------
    times, sizes
        When each chunk was received (seconds, rising) and its bytes, shape (chunks,).
    rate
        Bytes per second.
    span
        Where the rate was assigned, seconds.
    width, step
        Seconds.
    spread
        Seconds before its time over which the bytes of a chunk are even: for which a
        sender collects them.
    """
    first, last = span
    count = int((last - first - width) / step + 1e-9) + 1
    steps = np.arange(max(count, 0), dtype=np.float64)
    begin = first + step * steps
    received_at_end = received_by(begin + width, times, sizes, spread)
    received_at_begin = received_by(begin, times, sizes, spread)
    errors: NDArray[np.float64] = (received_at_end - received_at_begin) / (
        rate * width
    ) - 1.0
    return errors


def received_by(
    instants: NDArray[np.float64],
    times: NDArray[np.float64],
    sizes: NDArray[np.int64],
    spread: float,
) -> NDArray[np.float64]:
    """Return the bytes received by each instant, shape of ``instants``.

    The others are as of `window_errors`.
    """
    if not times.size:
        return np.zeros_like(instants)
    # Each chunk is a rate from its start to its end; these may overlap.
    corners = np.concatenate([times - spread, times])
    changes = np.concatenate([sizes, -sizes]) / spread
    order = np.argsort(corners, kind="stable")
    corners = corners[order]
    rates = np.cumsum(changes[order])
    steps = rates[:-1] * np.diff(corners)
    received = np.concatenate([[0.0], np.cumsum(steps)])
    found: NDArray[np.float64] = np.interp(instants, corners, received)
    return found


def seconds_of_a_message(rate: float) -> float:
    """Return how long the largest message takes at a rate, bytes per second."""
    return WireLimits().body / rate


def single(seconds: float, megabits: int) -> Iterator[Figure]:
    """Yield the finish error of one flow at a time."""
    rate = megabits * 1e6 / 8
    longest = min(LONG, seconds_of_a_message(rate))
    sizes = [round(rate * length) for length in (*LENGTHS, longest)]
    flows = Flows(1, 1, reserved=sizes)
    errors: list[float] = []
    while flows.now() < seconds or len(errors) < 12:
        n = len(errors)
        errors.append(one(flows, n, sizes[n % 3], rate))
    count = len(errors)
    long = [one(flows, n, sizes[-1], rate) for n in range(count, count + LONGS)]
    what = f"one flow at {megabits} Mbit/s: "
    yield from finishes(what, errors[3:], [e - flows.lead for e in errors[3:]], ONE)
    of_length = {length: errors[3 + k :: 3] for k, length in enumerate(LENGTHS)}
    of_length[longest] = long
    for length, aim in {longest: RATES[LONG], **RATES}.items():
        if length not in of_length:
            continue
        off = 100 * abs(float(np.median(of_length[length]))) / length
        name = f"{what}rate of flows of {length * 1e3:g} ms, median"
        yield Figure(name, off, "%", 100 * aim)
    yield cost(what, flows.close())


def one(flows: Flows, n: int, size: int, rate: float) -> float:
    """Send one flow and return how late its last byte came for when it might leave."""
    flows.send(0, n, size)
    since = flows.now()
    flows.board.publish([0], [n], [0.0], [rate], since)
    flows.notify([0])
    _, _, wall = flows.receivers[0].recv()
    return float(wall - flows.begun - since - max(size / rate - flows.lead, 0.0))


def steady(megabits: int) -> Iterator[Figure]:
    """Yield how far windows of one long flow are from the assigned rate, percent."""
    rate = megabits * 1e6 / 8
    length = min(2.2, seconds_of_a_message(rate))
    size = round(rate * length)
    flows = Flows(1, 1, reserved=[size], chunked=True)
    stolen = stolen_seconds()
    flows.send(0, 0, size)
    since = flows.now()
    flows.board.publish([0], [0], [0.0], [rate], since)
    flows.notify([0])
    flows.receivers[0].recv()
    closed, span = flows.close(), (since + FRESH, since + length - FRESH)
    stolen = stolen_seconds() - stolen
    chunks = closed["times"], closed["sizes"]
    spread = max(QUANTUM, PORTION / rate)
    for width, aim in RATES.items():
        if width > length - 2 * FRESH:
            continue  # of one message that is over by then
        off = window_errors(
            *chunks, rate=rate, span=span, width=width, step=0.01, spread=spread
        )
        p50, p99 = 100 * np.percentile(np.abs(off), [50, 99])
        name = f"one flow at {megabits} Mbit/s: rate over {width * 1e3:g} ms, median"
        note = f"p99 {p99:.3g} %{words_of(stolen)}"
        yield Figure(name, float(p50), "%", 100 * aim, note=note)


def many(seconds: float, load: float) -> Iterator[Figure]:
    """Yield the finish error of 16 flows in 8 processes, rates redrawn each 20 ms."""
    what = f"16 flows, load {100 * load:.0f} %: "
    with cpu_load(load):
        flows = Flows(4, 4)
        stolen = stolen_seconds()
        rates = RandomRates(flows, MEAN_RATE)
        while flows.now() < seconds:
            rates.change()
            time.sleep(CHANGE - flows.now() % CHANGE)
        note = words_of(stolen_seconds() - stolen).removeprefix(", ")
        throughput = flows.sent * 8 / flows.now() / 1e9
        yield Figure(f"{what}throughput", throughput, "Gbit/s", note=note)
        yield from finishes(what, rates.errors[32:], rates.finishes[32:], MANY[load])
        yield cost(what, flows.close(), 0.8)


def port(seconds: float) -> Figure:
    """Return bytes that a full port's 4 flows brought beyond it in 10 ms, percent."""
    volume = round(PORT * seconds)
    flows = Flows(1, 4, reserved=[volume] * 4, chunked=True)
    shared = SharedPort(flows, PORT, volume)
    stolen = stolen_seconds()
    begun = flows.now()
    while flows.now() < begun + 0.9 * seconds:
        shared.change()
        time.sleep(CHANGE - flows.now() % CHANGE)
    span = begun + 2 * CHANGE, flows.now()
    stolen = stolen_seconds() - stolen
    closed = flows.close()
    chunks = closed["times"], closed["sizes"]
    over = 100 * window_errors(
        *chunks, rate=PORT, span=span, width=0.01, step=0.001, spread=QUANTUM
    )
    p50, p99 = np.percentile(over, [50, 99])
    note = f"mean {over.mean():.3g}, p50 {p50:.3g}, p99 {p99:.3g} of {over.size}"
    note += words_of(stolen)
    what = "full port, any 10 ms: beyond"
    return Figure(what, float(over.max()), "%", 1.0, note=note)


def pacing(seconds: float) -> Iterator[Figure]:
    """Yield the figures of one flow, of many, and of a full port."""
    tune_process()  # what draws the rates must be as punctual as what sends
    for megabits in MEGABITS:
        yield from single(seconds / len(MEGABITS), megabits)
    for megabits in MEGABITS:
        yield from steady(megabits)
    for load in MANY:
        yield from many(seconds / 2, load)
    yield port(2.0)


class RandomRates:
    """Draws every rate anew, starts flows where none is, notes when each arrived.

    In ``errors`` after the time from which its last bytes might leave, in ``finishes``
    after its fluid. A rate is 0 in 15 % of the draws.

    Parameters
    ----------
    mean_rate
        Bytes per second of a flow.
    """

    def __init__(self, flows: Flows, mean_rate: float) -> None:
        self._flows, self._mean_rate = flows, mean_rate
        self._rng = np.random.default_rng(1)
        count = flows.edges
        self._iteration = np.full(count, -1)
        self._volume, self._served, self._rate = np.zeros((3, count))
        self._due, self._end = np.full((2, count), np.inf)
        self._active = np.zeros(count, dtype=bool)
        self._since = 0.0
        self.errors: list[float] = []
        self.finishes: list[float] = []

    def change(self) -> None:
        """Note what has ended, start what is idle, draw and publish every rate."""
        flows, rng = self._flows, self._rng
        for edge, arrived in flows.arrivals():
            self.errors.append(arrived - self._due[edge])
            self.finishes.append(arrived - self._end[edge])
            self._active[edge] = False
        now = flows.now()
        served = self._served + self._rate * (now - self._since)
        idle = ~self._active
        for edge in np.flatnonzero(idle).tolist():
            self._iteration[edge] += 1
            self._volume[edge] = round(self._mean_rate * rng.uniform(0.05, 0.2))
            flows.send(edge, int(self._iteration[edge]), int(self._volume[edge]))
        # Over, or over before a new line is on the board: keeps its line. So does a
        # flow that was not counted (NaN): it has ended, which was not reported yet.
        kept = self._active & ~(self._due >= now + 0.001)
        drawn = rng.uniform(0.2, 1.8, flows.edges) * self._mean_rate
        drawn[rng.random(flows.edges) < 0.15] = 0.0
        self._rate = np.where(kept, self._rate, drawn)
        self._served = np.where(idle, 0.0, np.minimum(served, self._volume))
        self._since, self._active[:] = now, True
        new = np.flatnonzero(~kept)
        flows.board.publish(
            new, self._iteration[new], self._served[new], self._rate[new], now
        )
        flows.notify(new[self._rate[new] > 0].tolist())
        with np.errstate(divide="ignore", invalid="ignore"):
            end = now + (self._volume - self._served) / self._rate
        # A flow that left by its old line while the new one was being published is
        # neither early nor late: not counted.
        raced = ~idle & (self._due < flows.now())
        due = np.maximum(end - flows.lead, now)
        self._due = np.where(kept, self._due, np.where(raced, np.nan, due))
        self._end = np.where(kept, self._end, np.where(raced, np.nan, end))


class SharedPort:
    """Splits one port among flows that never end, anew at every draw.

    Parameters
    ----------
    port
        Bytes per second: what the rates add up to at any time.
    volume
        Bytes of each flow, more than it will be given.
    """

    def __init__(self, flows: Flows, port: float, volume: int) -> None:
        self._flows, self._port = flows, port
        self._rng = np.random.default_rng(2)
        self._served, self._rate = np.zeros((2, flows.edges))
        self._since = flows.now()
        for edge in range(flows.edges):
            flows.send(edge, 0, volume)

    def change(self) -> None:
        """Draw and publish every rate; 15 % of the flows get nothing."""
        count, now = self._flows.edges, self._flows.now()
        share = self._rng.uniform(0.2, 1.8, count)
        share[self._rng.random(count) < 0.15] = 0.0
        if not share.any():
            share[0] = 1.0
        self._served += self._rate * (now - self._since)
        self._rate, self._since = self._port * share / share.sum(), now
        self._flows.board.publish(
            np.arange(count), np.zeros(count, int), self._served, self._rate, now
        )
        self._flows.notify(np.flatnonzero(self._rate).tolist())
