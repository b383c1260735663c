"""What must not go on: time limits, hangs, ranks that never join."""
