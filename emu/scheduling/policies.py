"""The rate policies by name."""

from __future__ import annotations

from dataclasses import dataclass

from emu.scheduling.rates import MAXMIN, OES


@dataclass(frozen=True)
class Policy:
    """One rate policy.

    Parameters
    ----------
    name
        As in scenario files.
    code
        What the compiled code knows it by (`emu.scheduling.rates`).
    summary
        One line for tables.
    keeps_theorem
        Whether every flow always gets at least its ``oes`` rate, which is all that the
        paper's proof of T <= Delta * (longest path) uses.
    """

    name: str
    code: int
    summary: str
    keeps_theorem: bool


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("oes", OES, "equal shares of every port (the paper's)", True),
        Policy("maxmin", MAXMIN, "max-min fair shares", True),
        Policy("none", MAXMIN, "no application schedule: TCP shares the NICs", True),
    )
}


def policy_named(name: str) -> Policy:
    """Return the policy called ``name``.

    Raises
    ------
    ValueError
        When there is none.
    """
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise ValueError(f"no policy is called {name}; there are {known}")
    return POLICIES[name]
