"""The hook in a rank's Python."""
