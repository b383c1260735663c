"""What may not go on: limits of time, divergence, ranks that do not come."""
