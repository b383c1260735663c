"""Patterns of the output of JAX, Gloo and Python; a new JAX release changes only this package."""
