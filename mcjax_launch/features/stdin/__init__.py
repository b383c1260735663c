"""--stdin: rank 0, on this machine, gets the launcher's standard input."""
