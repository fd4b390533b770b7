"""An experiment from scenario to run directory: scales, run, replay, judgement.

Decides at which scales a run goes, what it is compared with, and what of it is kept. It
must not know sockets, how a rate is chosen, or how results are drawn.
Start at ``run_experiment.py``.
"""
