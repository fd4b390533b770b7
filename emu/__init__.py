"""Run distributed GNN training on an emulated cluster, beside its simulation."""
