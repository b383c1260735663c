"""Ranks that make calls, and what they show of values."""
