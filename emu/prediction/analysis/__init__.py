"""Read off a `Schedule`: checks, causes, bounds, trust.

Pure: schedules and figures in, findings out. Must not know: who made a schedule, files,
tables, processes.
"""
