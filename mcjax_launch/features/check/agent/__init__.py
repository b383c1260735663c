"""features.check.agent."""
