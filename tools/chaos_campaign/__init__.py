"""Seeded kills, stops and resumes of processes of a run, and what came of them."""
