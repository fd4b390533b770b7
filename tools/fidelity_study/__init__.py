"""Figures of many trials: tables, distributions, rank correlation."""
