"""Some of torch's own tests of process groups, in this rank: `torch_tests` starts it.

_torch_test.py FOLDER [TEST ...]

Without tests it prints the names of those that a CPU with gloo is asked to run.
"""

from __future__ import annotations

import os
import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

#: Lists of backends of which tests look for spans in torch's profiler.
_SPANS = ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS")


def main() -> None:
    """Run the tests that the command names one after the other."""
    folder = Path(sys.argv[1])
    for name in ("barrier", "test_dir"):
        (folder / name).mkdir(exist_ok=True)
    os.environ |= {"BACKEND": "gloo", "TEMP_DIR": str(folder)}
    os.environ.setdefault("WORLD_SIZE", "4")
    tests = make_tests()
    if len(sys.argv) == 2:
        names = [name for name in dir(tests) if name.startswith("test_")]
        asked = [name for name in names if not is_skipped(getattr(tests, name))]
        print("\n".join(asked))
        return

    for name in sys.argv[2:]:
        outcome = run(tests, name, folder)
        print("outcome", name, outcome, flush=True)
        if outcome == "failed":
            sys.exit(1)


def make_tests() -> Any:
    """Return torch's tests as a class, without their demand for spans of gloo."""
    from torch.testing._internal.distributed import distributed_test as suite

    for name in _SPANS:
        setattr(suite, name, [])
    bases = (suite.TestDistBackend, suite.DistributedTest._DistTestBase)  # noqa: SLF001
    return type("Tests", bases, {})


def is_skipped(test: object) -> bool:
    """Return True where a decorator leaves a test out."""
    return getattr(test, "__unittest_skip__", False)


def run(tests: Any, name: str, folder: Path) -> str:
    """Run a test as torch's own harness does: ``passed``, ``skipped`` or ``failed``."""
    from torch import distributed
    from torch.testing._internal.common_distributed import TEST_SKIPS

    skips = {skip.exit_code for skip in TEST_SKIPS.values()}
    _, pipe = Pipe()
    meeting = folder / f"meeting-{name}"
    try:
        tests._run(  # noqa: SLF001 - what its own harness calls
            int(os.environ["RANK"]), name, str(meeting), pipe
        )
    except SystemExit as end:
        if end.code in skips:
            if distributed.is_initialized():
                distributed.destroy_process_group()
            return "skipped"
        return "failed" if end.code else "passed"
    return "passed"


if __name__ == "__main__":
    main()
