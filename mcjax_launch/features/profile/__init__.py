"""features.profile."""
