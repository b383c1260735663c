"""Events of a job as JSON lines, for programs (`--events`)."""
