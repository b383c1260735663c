"""--setup: a command that runs once on each host before the ranks, and makes the host ready."""
