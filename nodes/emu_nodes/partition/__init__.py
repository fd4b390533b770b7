"""Programs of systems whose parts exchange rows of any age, share and width."""
