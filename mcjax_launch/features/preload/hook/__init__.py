"""features.preload.hook."""
