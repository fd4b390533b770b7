"""Frames on a connection: what the bytes mean, never how they travel.

A frame is a fixed prefix, a msgpack header and a body. Data frames carry tensors back
to back; messages carry one msgpack map. Must not know: sockets, loops, clocks, pools.
Every length is checked against a limit before memory is taken for it.
"""
