"""Small faults planted in copies of the product, and which of them tests see."""
