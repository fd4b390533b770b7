"""Node programs of P3."""
