"""Programs of DGCL."""
