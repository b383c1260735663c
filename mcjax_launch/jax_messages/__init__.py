"""Patterns of what JAX, Gloo and Python print; a new release of JAX changes only this package."""
