"""--stdin: the launcher's standard input for ranks."""
