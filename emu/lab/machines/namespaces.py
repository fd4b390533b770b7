"""Linux namespaces by the C library: Python 3.11 has no ``os.unshare``."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

NEW_MOUNT = 0x00020000
NEW_UTS = 0x04000000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NET = 0x40000000
#: What a machine has of its own.
OF_MACHINES = NEW_PID | NEW_NET | NEW_MOUNT | NEW_UTS | NEW_IPC
_DIE_WITH_PARENT = 1
_BIND = 4096
_PRIVATE = 1 << 18
_ALL_BELOW = 16384

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(kinds: int) -> None:
    """Give this process namespaces of its own; OSError when the kernel refuses."""
    _call("unshare", kinds)


def die_with_parent(parent: int) -> None:
    """Be killed when ``parent`` dies, and at once if it has died already."""
    _call("prctl", _DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def become_root() -> None:
    """Enter a user namespace as its root; OSError where these are not allowed."""
    user = os.getuid()
    group = os.getgid()
    unshare(NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def enter(process: int, descriptor: int) -> None:
    """Enter the namespaces of a process; only children enter that of process ids.

    ``descriptor`` is its pidfd. Raises OSError when it has gone, or this user may not.
    """
    kinds = OF_MACHINES
    near_user = Path("/proc/self/ns/user").stat()
    far_user = Path(f"/proc/{process}/ns/user").stat()
    if near_user.st_ino != far_user.st_ino:  # one's own is refused
        kinds |= NEW_USER
    _call("setns", descriptor, kinds)


def furnish(name: str, hosts: str) -> None:
    """Give the namespaces of this process their name, ``/etc/hosts`` and shared memory.

    Raises OSError when something cannot be mounted.
    """
    raw = name.encode()
    _call("sethostname", raw, len(raw))
    _call("mount", b"none", b"/", None, _ALL_BELOW | _PRIVATE, None)
    _call("mount", b"proc", b"/proc", b"proc", 0, None)
    _mount_memory()
    ours = Path("/dev/shm/hosts")  # noqa: S108 - in the mount made one line above
    ours.write_text(hosts, encoding="utf-8")
    _call("mount", bytes(ours), b"/etc/hosts", None, _BIND, None)
    # Covered and not deleted: a lab within this one mounts its own hosts over them.
    _mount_memory()


def _mount_memory() -> None:
    _call("mount", b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777")
