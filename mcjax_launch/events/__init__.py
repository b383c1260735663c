"""The stream of events: what happens in a job, as JSON lines for programs (`--events`)."""
