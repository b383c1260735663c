"""Derive the root cause of a run's end from its facts, and word it; pure."""
