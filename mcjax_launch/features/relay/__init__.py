"""features.relay."""
