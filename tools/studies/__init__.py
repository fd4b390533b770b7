"""Studies, one module each, carried out by `tools/study` on the runner they share."""
