"""Files and folders that hold graphs, one module per kind of format.

Must not execute anything that a file holds: nothing is ever unpickled as it asks to be.
"""
