"""Build the core of a copied tree, where an edit or a sanitizer is to be tried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: What a copy makes for itself.
MADE = shutil.ignore_patterns("*.so", "CMakeCache.txt", "CMakeFiles", "build.ninja")


def build_core(tree: Path, *, sanitize: bool = False, plain: bool = False) -> None:
    """Build the core in ``tree``; what has not changed is not built again.

    ``plain``: nothing is optimized; it is built in a third of the time.

    Raises subprocess.CalledProcessError when it cannot be built; its output holds what
    the compiler says.
    """
    made = tree / ".core"
    if not made.exists():
        choices = {
            "CMAKE_BUILD_TYPE": "Release",
            "Python_EXECUTABLE": sys.executable,
            "SANITIZE": "ON" if sanitize else "OFF",
            "PLAIN": "ON" if plain else "OFF",
        }
        given = [f"-D{name}={value}" for name, value in choices.items()]
        source = tree / "emu/prediction/core/build"
        _call("cmake", "-G", "Ninja", "-S", str(source), "-B", str(made), *given)
    _call("cmake", "--build", str(made))


def _call(*command: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
