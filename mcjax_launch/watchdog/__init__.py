"""What may not go on: limits of time, ranks that diverge, ranks that never come."""
