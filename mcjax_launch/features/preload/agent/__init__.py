"""features.preload.agent."""
