"""The host profile on disk, in the user's cache directory."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from emu.atomic_file import write_atomic
from emu.calibration.host import HostProfile
from emu.calibration.measure import measure_host
from emu.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable


def profile_path() -> Path:
    """Return where the profile of this host is kept: a home may be on several hosts."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "emu" / f"host-{platform.node() or 'unknown'}.json"


def read_profile(path: Path) -> HostProfile:
    """Return a profile that was written.

    Raises
    ------
    DataError
        When it is missing, damaged, or of another version.
    """
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", path=str(path)) from error
    return HostProfile.from_json(content, str(path))


def cached_profile(
    *,
    fresh: bool = False,
    path: Path | None = None,
    measure: Callable[[], HostProfile] = measure_host,
) -> HostProfile:
    """Return this host's profile, measuring it where there is none that can be used.

    Parameters
    ----------
    fresh
        Whether to measure even so.
    path
        Of the cache; `profile_path` by default. A cache that cannot be written is done
        without.

    Raises
    ------
    RunError
        When the host cannot be measured.
    """
    path = path or profile_path()
    if not fresh:
        try:
            return read_profile(path)
        except DataError:
            pass  # none yet, damaged, or of another emu: measured again
    profile = measure()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(profile.to_json(), indent=1) + "\n")
    except (OSError, DataError):
        pass  # a read-only home costs a measurement per run, no more
    return profile
