"""What `make bench` measures: medians and ratios within one run."""
