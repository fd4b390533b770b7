"""CPU that gloo and TCP take for messages: measured once on a host, and kept."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from emu.errors import DataError, RunError
from emu.host.files import cache_home, write_atomic
from emu.host.input_file import parse_json, read_json
from emu.host.this_host import module_command


@dataclass(frozen=True)
class MessageCosts:
    """CPU seconds that a rank's messages take of its core."""

    per_byte: float
    """Sent or taken, headers included; sums that gloo makes on the way count here."""
    per_frame: float
    """Sent or taken: a message has three."""
    measured: str
    """When: ISO 8601, UTC."""
    torch: str
    """Version of torch."""


def costs_of_host() -> MessageCosts:
    """Return what messages cost on this host; measures it where that is not known.

    That takes some seconds once: `emu.virtual.rank.measure_messages`. The outcome is
    kept in the cache (``virtual/message_costs.json``) until torch is another one.

    Raises RunError where two processes cannot meet on the loopback interface.
    """
    path = cache_home() / "virtual" / "message_costs.json"
    torch = version("torch")
    try:
        costs = MessageCosts(**read_json(path))
        if costs.torch == torch:
            return costs
    except (DataError, TypeError):
        pass  # not measured, or kept by another version

    outcome = subprocess.run(
        module_command("emu.virtual.rank.measure_messages"),
        capture_output=True,
        text=True,
        check=False,
    )
    if outcome.returncode:
        lines = outcome.stderr.splitlines() or ["it ended without a word"]
        problem = f"the CPU of messages cannot be measured: {lines[-1]}; "
        raise RunError(problem + "--free-messages does without")
    measured = datetime.now(UTC).isoformat(timespec="minutes")
    costs = MessageCosts(**parse_json(outcome.stdout), measured=measured, torch=torch)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(asdict(costs)))
    return costs
