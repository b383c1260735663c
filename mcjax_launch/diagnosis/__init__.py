"""From the facts of a run to its root cause, in words; pure."""
