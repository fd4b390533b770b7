"""For the tests of users and our own: problems with known answers, strategies.

Must not know: processes and sockets.
"""

from emu.testing.problems import two_machine_example

__all__ = ["two_machine_example"]
