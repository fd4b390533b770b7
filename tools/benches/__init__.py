"""Timings of the simulator, of searches, and of what carries bytes, beside aims."""
