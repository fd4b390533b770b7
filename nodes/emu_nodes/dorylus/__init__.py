"""Programs of Dorylus."""
