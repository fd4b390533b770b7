"""Faults planted in copies of the product, and what a run of each says of itself."""
