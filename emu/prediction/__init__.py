"""The job in virtual time: what starts, what rate a flow gets, where tasks stand.

Decides schedules, placements and their bounds, and explains them. It must not know
sockets, clocks, files or torch: all of it is pure, or C on arrays that Python owns.
Start at ``simulation/simulate.py``; ``core/core.h`` states the arrays.
"""
