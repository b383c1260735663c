"""--profile: a trace of each rank."""
