"""The controller of one job: startup, the event loop, and how the job ends."""
