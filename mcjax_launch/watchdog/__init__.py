"""What must not go on: time limits, ranks that diverge, ranks that never join."""
