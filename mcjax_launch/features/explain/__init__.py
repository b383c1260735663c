"""Explanations of what happens in a run, from its facts: findings, causes, hints, noise."""
