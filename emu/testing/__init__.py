"""For the tests of users and our own: problems with known answers, strategies, trials.

Decides what is drawn and what a trial in virtual time checks. It must not know
processes and sockets; `emu.testing.strategies` needs Hypothesis.
Start at ``problems.py``, ``reference.py``, then ``trials/trial.py``.
"""

from emu.testing.problems import two_machine_example

__all__ = ["two_machine_example"]
