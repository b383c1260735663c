"""features.function."""
