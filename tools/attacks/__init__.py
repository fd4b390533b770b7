"""Damage of any kind, done to loaders, ports, processes and patience."""
