"""Hosts of a scheduler's allocation. `machine/known_schedulers.py` lists all schedulers."""
