"""The run directory: one writer and one reader for every file in it.

Decides what a file of a run holds, and refuses what is damaged. It must not know how a
run was made or how it is shown.
Start at ``run_directory.py``; ``recorded_run.py`` reads a run back.
"""
