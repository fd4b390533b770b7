"""The public test kit: Hypothesis strategies for problems."""
