"""Field types and sections that every other section of a scenario file is made of.

Must not know: scenario files, systems, how a schedule is made.
"""
