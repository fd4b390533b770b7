"""A machine of a lab, and a program that runs there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LabMachine:
    """A machine: its host name, payload bytes per second out of and into its NIC."""

    name: str
    nic_out: float
    nic_in: float


@dataclass
class Program:
    """A program that runs, or ran, in a machine."""

    machine: str
    number: int
    process: int
    """Its process id as the machine sees it."""
    code: int | None = None
    """Its exit code, negative for a signal; None while it runs."""
