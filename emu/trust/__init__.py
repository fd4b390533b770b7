"""Trust in a run's numbers: verdict, guards, audits, reference rates, lateness.

Decides whether a number may be believed. What guards scheduling or simulation must not
know them: it computes from what receivers and tasks reported.
Start at ``verdict.py``; ``guards/`` holds one rule per function.
"""
