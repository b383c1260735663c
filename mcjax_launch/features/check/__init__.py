"""--check: tests whether a job could run on these hosts, without a program of the user."""
