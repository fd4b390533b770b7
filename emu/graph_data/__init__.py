"""graph_data."""
