"""Node programs of sampled training with parameter servers or an all-reduce."""
