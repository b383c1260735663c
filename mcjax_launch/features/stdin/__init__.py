"""--stdin: passes the launcher's standard input on to ranks."""
