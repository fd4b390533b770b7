"""GraphSAGE, its parameters, optimiser and evaluation."""
