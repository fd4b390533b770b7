"""The job over real sockets: who runs it, what crosses, and how fast it may.

Decides when a message may leave and what ended when, by what receivers report. It must
not know why a placement or a rate was chosen (`emu.prediction`), nor how a run is drawn
(`emu.report`). Start at ``coordinator/run.py``; ``network/out_edge.py`` sends the
bytes.
"""
