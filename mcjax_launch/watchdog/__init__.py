"""Watch for jobs that must not go on: time limits, hangs, ranks that never join."""
