"""Runs beside their simulations: what is drawn, how it is run, what neighbours do."""
