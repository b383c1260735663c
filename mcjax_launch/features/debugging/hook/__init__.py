"""features.debugging.hook."""
