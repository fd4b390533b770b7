"""An experiment from scenario to run directory: scales, run, replay, judgement.

Must not know: sockets, how a rate is chosen, how results are drawn.
"""
