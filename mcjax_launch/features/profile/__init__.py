"""--profile: records a trace of each rank."""
