"""Stands in for the node programs, so that a fork server can be tested alone."""
