"""features.preload."""
