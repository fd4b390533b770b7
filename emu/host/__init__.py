"""The computer that `emu` itself runs on: files, signals, limits, code of others.

Decides how a file is read within bounds and how an interruption ends in one line. It
must not know jobs, machines or runs. Start at ``input_file.py``.
"""
