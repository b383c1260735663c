"""Controller of a job: startup, the event loop, and the job's end."""
