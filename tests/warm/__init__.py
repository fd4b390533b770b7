"""Processes of emu that tests start, forked from one that has imported what they need.

An agent and its fork server import for 0.5 s of CPU, with torch for 2.1, ranks of a
virtual cluster for 1.7: more than most runs of tests take. A server of each worker of
pytest imports all of it once, and forks what would be started. A process forked so has
the environment, folder, limits, output, session, parent and command line that it would
have, and runs the same module as ``__main__``.

Interpreters start anew under the mark ``cold``, from commands that tests run as
processes, in `tests/emulation/launch`, and everywhere where ``EMU_COLD`` is set, as by
``make nightly``.
"""
