"""features.debugging."""
