"""The run directory: one writer and one reader for every file in it.

Must not know: how a run was made, how it is shown.
"""
