"""Cost of a schedule in money, and value: what is trained per second and dollar.

Machines cost their hourly price for the whole makespan. Functions (lambdas) cost a
request each, and the time from launch to answer rounded up to a granularity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from emu.problem import Schedule

_HOUR = 3600.0
#: Of a granularity: what rounding makes of times that are whole multiples of it.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Prices:
    """Prices of functions; defaults are those of AWS Lambda in the paper of Dorylus."""

    request: float = 0.20 / 1e6
    """Dollars per request."""
    function_second: float = 0.01125
    """Dollars per hour that a function runs."""
    granularity: float = 0.1
    """Seconds that its time is rounded up to multiples of."""

    def functions(self, seconds: NDArray[np.float64]) -> float:
        """Return the dollars of functions that ran for so long each."""
        billed = np.ceil(seconds / self.granularity - _ROUNDING) * self.granularity
        running = float(billed.sum()) * self.function_second / _HOUR
        return self.request * seconds.size + running


@dataclass(frozen=True)
class Cost:
    """Dollars of one run, by what they were paid for."""

    servers: float
    lambdas: float
    parameter_servers: float
    seconds: float
    """Makespan."""
    lost: float = 0.0
    """Part of those for lambdas that went to lambdas without an answer."""

    @property
    def total(self) -> float:
        """Dollars in all."""
        return self.servers + self.lambdas + self.parameter_servers

    @property
    def value(self) -> float:
        """Reciprocal of time times cost, 1 / (s $); infinite where it is free."""
        spent = self.seconds * self.total
        return 1 / spent if spent else np.inf

    def to_json(self) -> dict[str, float | None]:
        """Return dollars by what they are for, in all, and the value, None if free."""
        return {
            "servers": self.servers,
            "lambdas": self.lambdas,
            "parameter_servers": self.parameter_servers,
            "total": self.total,
            "value": self.value if np.isfinite(self.value) else None,
            **({"lost": self.lost} if self.lost else {}),
        }


def machine_cost(machines: int, hourly: float, seconds: float) -> float:
    """Return the dollars of equal machines that run for so long."""
    return machines * hourly * seconds / _HOUR


def schedule_cost(
    schedule: Schedule,
    hourly: Mapping[str, float],
    prices: Prices,
    *,
    functions: NDArray[np.float64],
    lost: NDArray[np.float64],
    parameter_kinds: Collection[str] = (),
) -> Cost:
    """Return the cost of a schedule.

    Parameters
    ----------
    hourly
        Machine -> dollars per hour.
    functions, lost
        Seconds that every function ran: that answered, and that did not.
    parameter_kinds
        Kinds of task of parameter servers: machines with processes of no other kind
        are shown apart.
    """
    problem = schedule.problem
    kinds: dict[str, set[str]] = {}
    for task, machine in zip(
        problem.job.tasks, problem.placement.machine_of, strict=True
    ):
        if not task.gate:
            name = problem.cluster.machines[machine].name
            kinds.setdefault(name, set()).add(task.kind)
    parameters = {name for name, found in kinds.items() if found <= {*parameter_kinds}}
    hours = {True: 0.0, False: 0.0}
    for name, price in hourly.items():
        hours[name in parameters] += price
    in_vain = prices.functions(lost)
    span = schedule.makespan
    return Cost(
        machine_cost(1, hours[False], span),
        prices.functions(functions) + in_vain,
        machine_cost(1, hours[True], span),
        span,
        in_vain,
    )
