"""Labs: programs of one's own on kernel NICs, and fits of what they did.

Decides how machines become namespaces and how what crossed becomes a custom job. It
must not know how a scenario's job is run over sockets.
Start at ``run.py``; ``machines/lab.py`` sets up NICs, ``fit_run.py`` makes fits.
"""
