"""Labs: programs of one's own on kernel NICs, and fits of what they did.

Must not know: how a scenario's job is run over sockets.
"""
