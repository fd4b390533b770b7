"""The run directory: one writer and one reader for every file in it.

Decides what a file of a run holds, and refuses what is damaged. It must not know how a
run was made or how it is shown. All that reads raises DataError, with the path, where a
file is missing, damaged, of another job or of another version; all that writes raises
it where the disk refuses.
Start at ``run_directory.py``; ``recorded_run.py`` reads a run back.
"""
