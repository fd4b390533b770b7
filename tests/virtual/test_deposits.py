"""Memory of what ranks leave for each other."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from emu.host.files import scratch_folder

pytest.importorskip("torch", reason="deposits are of tensors")

#: In a process of its own, as ranks keep their memory for as long as they live.
PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np, torch
from emu.virtual.rank.deposits import Deposits

folder = Path(sys.argv[1])
deposits = Deposits(folder, 0)
def memory(): return (folder / "values0").stat().st_blocks * 512

first = deposits.leave(torch.arange(2100.0))
memories = [memory()]
deposits.free(first)
second = deposits.leave(torch.arange(3500.0), zeros=500)
memories.append(memory())
content = deposits.view(0, second, 14500)
are_right = np.array_equal(content[:14000].view(np.float32), np.arange(3500))

large = torch.ones(1 << 24)
places = [deposits.leave(large)]
memories.append(memory())
deposits.free(places[0])
memories.append(memory())
places.append(deposits.leave(large))
memories.append(memory())
print(json.dumps({
    "memories": memories,
    "are_right": are_right and not content[14000:].any(),
    "same": [first == second, places[0] == places[1]],
}, default=bool))
"""


def test_a_place_that_is_used_again_has_the_memory_it_needs() -> None:
    """Three pages, then four; of a large one that all have read none."""
    with scratch_folder("virtual") as folder:
        output = subprocess.check_output([sys.executable, "-c", PROGRAM, str(folder)])
    found = json.loads(output)

    large = 4 << 24
    small = 4 * 4096
    assert found["memories"][:2] == [3 * 4096, small]
    held, given_back, again = found["memories"][2:]
    assert held == again >= small + large
    assert given_back < small + large // 2
    assert found["are_right"]
    assert found["same"] == [True, True]
