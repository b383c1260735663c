"""features.stdin."""
