"""--check: finds out what a job on these hosts would meet, without a program of the user's."""
